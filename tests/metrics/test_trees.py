from __future__ import annotations

import pytest
import torch

from t2t_torch.features import TreeFeature
from t2t_torch.metrics.metric import lower_is_better, metric_of
from t2t_torch.text.tree import NO_TREES, TransitionEncoder, compare_texts

FEATURE = TreeFeature(TransitionEncoder(["IN:A", "SL:B", "SL:C"]))
PAIRS = [
    ("[IN:A x [SL:B y ] ]", "[IN:A x [SL:C y ] ]"),
    ("[IN:A x y z ]", "[IN:A x y z ]"),
    ("[IN:A [SL:B x ] [SL:B y ] ]", "[IN:A [SL:B x ] [SL:B y ] ]"),
]


def logits_of(ids: list[list[int]], width: int) -> torch.Tensor:
    padded = torch.zeros(len(ids), width, dtype=torch.int64)
    for i, row in enumerate(ids):
        padded[i, : len(row)] = torch.tensor(row)
    return torch.nn.functional.one_hot(padded, FEATURE.vocab_size).float()


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("bracket_precision", lambda counts: counts.precision),
        ("bracket_recall", lambda counts: counts.recall),
        ("bracket_f1", lambda counts: counts.f1),
        ("tree_f1", lambda counts: counts.tree_f1),
        ("tree_frame_accuracy", lambda counts: counts.frames / 3),
        ("malformed_trees", lambda counts: counts.malformed / 3),
    ],
)
def test_guessed_trees_are_counted_as_written_ones(name, of) -> None:
    ours, theirs = ([FEATURE.encode(pair[i]) for pair in PAIRS] for i in (0, 1))
    targets = logits_of(theirs, 9).argmax(-1)
    metric = metric_of(name, FEATURE)
    sums = metric.update(logits_of(ours, 9), targets)
    counts = NO_TREES
    for pair in PAIRS:
        counts = counts.plus(compare_texts(*pair))
    assert metric.result(sums) == pytest.approx(of(counts))


def test_guesses_that_build_no_tree_are_counted_and_mended() -> None:
    right = FEATURE.encode("[IN:A x y ]")
    targets = logits_of([right], 6).argmax(-1)
    broken = logits_of([[5, 2, 6, 2, 1, 1]], 6)  # the slot never ends
    results = {
        name: metric_of(name, FEATURE).result(metric_of(name, FEATURE).update(broken, targets))
        for name in ("malformed_trees", "bracket_precision", "bracket_recall")
    }
    assert results == {"malformed_trees": 1.0, "bracket_precision": 0.5, "bracket_recall": 1.0}
    assert lower_is_better("malformed_trees") and lower_is_better("decode/malformed_trees")
    assert not lower_is_better("decode/bracket_f1")
