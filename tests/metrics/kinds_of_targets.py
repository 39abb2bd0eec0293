"""Made-up targets of every kind, with guesses, and batches of them."""

from __future__ import annotations

import torch

from t2t_torch import registry
from t2t_torch.features import (
    Choice,
    ClassLabel,
    MultiLabel,
    PixelSequence,
    QueryId,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
)
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.metrics.metric import WITH_IDS
from t2t_torch.model import Loss, Output
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.text.tree import TransitionEncoder

ROWS = 12
_LABELS = ClassLabelEncoder(["O", "B-a", "I-a", "B-b", "I-b"])

FEATURES = {
    "text": Text(ByteEncoder()),
    "picture": PixelSequence(height=1, width=2, channels=3),
    "tree": TreeFeature(TransitionEncoder(["S", "NP"])),
    "tags": Tags(_LABELS, allow_unknown=True),
    "two classes": ClassLabel(ClassLabelEncoder(["no", "yes"])),
    "five classes": ClassLabel(_LABELS, allow_unknown=True),
    "distribution": SoftLabel(_LABELS),
    "labels": MultiLabel(_LABELS),
    "numbers": Real(3),
    "span": Span(),
    "choice": Choice(("first", "second", "third")),
}


def examples(feature, rows, seed):
    """Returns logits and targets of so many examples, sequences filled up to the longest."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    def draw_ids(high, *shape, low=0):
        return torch.randint(low, high, shape, generator=generator)

    if isinstance(feature, Text | Tags):
        low = 2 if isinstance(feature, Text) else -1  # -1 is an unknown label
        lengths = draw_ids(8, rows, low=1)
        targets = draw_ids(feature.vocab_size, rows, 7, low=low)
        targets[torch.arange(7) >= lengths[:, None]] = feature.padding
        logits = draw(rows, 7, feature.vocab_size)
        # Right now and then, else there is nothing to count.
        right = targets.clamp(min=0)[..., None]
        return logits.scatter_add(-1, right, 6 * draw(rows, 7, 1)), targets
    if isinstance(feature, Span):
        first = draw_ids(4, rows)
        targets = torch.stack([first, first + draw_ids(2, rows)], 1)
        targets[::3] = -1
        return 3 * draw(rows, 6, 2), targets
    if isinstance(feature, Real):
        targets = draw(rows, 3)
        return targets + draw(rows, 3) / 2, targets
    if isinstance(feature, MultiLabel):
        return draw(rows, 5), draw_ids(2, rows, 5).byte()
    if isinstance(feature, SoftLabel):
        return draw(rows, 5), draw(rows, 5).softmax(-1)
    low = -1 if getattr(feature, "allow_unknown", False) else 0
    return 2 * draw(rows, feature.vocab_size), draw_ids(feature.vocab_size, rows, low=low)


def batch_of(feature, logits, targets, rows, more):
    """Returns a batch of some rows, as wide as the longest of them and `more`.

    Where there is only filling the guesses are of no meaning, and differ from batch to batch.
    """
    logits, targets = logits[rows], targets[rows]
    if not isinstance(feature, Text | Tags):
        return logits, targets
    width = int((targets != feature.padding).sum(1).max()) if len(rows) else 0
    logits, targets = logits[:, :width].clone(), targets[:, :width]
    filling = targets.new_full((len(rows), more), feature.padding)
    nonsense = 9 * torch.randn(len(rows), more, logits.size(-1))
    nonsense[:, ::2] = float("inf") if more % 2 else -9.0
    logits[targets == feature.padding] = 1e4 * more
    return torch.cat([logits, nonsense], 1), torch.cat([targets, filling], 1)


def all_padding(feature):
    """Returns an empty batch: no rows, or of sequences a row of filling alone."""
    logits, targets = examples(feature, 2, 0)
    if isinstance(feature, Text | Tags):
        return logits, torch.full_like(targets, feature.padding)
    return logits[:0], targets[:0]


def fitting(name):
    """The kinds of targets that a metric is of."""
    kinds = getattr(registry.metric(name), "of", WITH_IDS)
    if name.startswith("two_class"):
        return ["two classes"]
    return [kind for kind, feature in FEATURES.items() if isinstance(feature, kinds)]


def evaluation():
    """Returns one of all metrics of all kinds of targets, and the metrics by target."""
    names = registry.list_names("metric")
    metrics = {kind: [name for name in names if kind in fitting(name)] for kind in FEATURES}
    notes = {f"{kind}_mask": FEATURES["text"] for kind in FEATURES}
    notes |= {f"{kind}_query": QueryId() for kind in FEATURES}
    return Evaluation(FEATURES, metrics, "all", notes), metrics


def add(to, rows, more=0, device="cpu"):
    """Adds a batch of these rows of everybody's examples, filled up by `more`, to an evaluation."""
    logits, batch, losses = {}, {}, {}
    for kind, feature in FEATURES.items():
        whole = examples(feature, ROWS, seed=len(kind))
        logits[kind], batch[kind] = batch_of(feature, *whole, rows, more)
        losses[kind] = Loss(torch.tensor(float(sum(rows))), torch.tensor(float(len(rows))))
        if batch[kind].dim() == 2:
            batch[f"{kind}_mask"] = (batch[kind] % 2 == 0).long()
        batch[f"{kind}_query"] = torch.tensor([row % 3 for row in rows])
    logits = {name: values.to(device) for name, values in logits.items()}
    losses = {name: Loss(*(x.to(device) for x in loss)) for name, loss in losses.items()}
    to.update(Output(logits, losses), {name: values.to(device) for name, values in batch.items()})
