"""Figures of the attention weights of each head for one fixed sentence."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import UsageError, require
from t2t_torch.features import Feature, Features
from t2t_torch.features.feature import select_texts
from t2t_torch.layers.attention import AttentionWeights, LocalMask, SelfAttention, distances
from t2t_torch.layers.pooling import MaskedSoftmax
from t2t_torch.registry import register_hook
from t2t_torch.reports.plots import heat_maps
from t2t_torch.text.encoder import EOS
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.mode import Split
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.task import Batch, Task


_LONGEST = 24  # maximum tokens of a figure, and of the sentence if the first batch has one so short
_SEARCHED = 8  # batches searched for the sentence
_START = "·"  # start symbol, input of a decoder at its first position


class _Axis(NamedTuple):
    """An axis of a figure: the tokens of its positions, and the name of their feature."""

    name: str
    tokens: list[str]


@register_hook
class AttentionMaps(Hook):
    """Draws the attention weights of each head and layer for one sentence after each evaluation.

    TensorBoard shows them as `attention/<layer>`; `figures/attention/` in the run directory holds
    the newest.  Rows sum to 1.  In a decoder a row is labelled with the predicted token, a column
    with the input token; the first input is the start symbol "·".  With several problems each has
    its own sentence and figures, `attention/<problem>/<layer>`.

    Raises:
      UsageError: matplotlib is missing.
    """

    def __init__(self) -> None:
        require("matplotlib", "plots", "--hooks=attention_maps draws with matplotlib")
        self._sentences: dict[tuple[str, Split], Batch] = {}

    def begin(self, estimator: Estimator) -> None:
        """Checks that the model has attention weights to draw.

        Raises:
          UsageError: the model has no attention, or the task no features.
        """
        kinds = (AttentionWeights, MaskedSoftmax)
        if not any(isinstance(module, kinds) for module in estimator.model.modules()):
            raise UsageError(
                f"--hooks=attention_maps: {type(estimator.model).__name__} has no layer of "
                "attention (AttentionWeights of layers/attention.py, MaskedSoftmax of "
                "layers/pooling.py). Leave the hook out."
            )
        _drawn(estimator)

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """Draws the figures.  All processes compute: weights may be sharded."""
        drawn = _drawn(estimator)
        for one in drawn:
            if (one.name, split) not in self._sentences:
                batches = one.task.eval_batches(split, rank=0, world_size=1)
                first = _sentence(itertools.islice(batches, _SEARCHED), one.features)
                self._sentences[one.name, split] = first
        with estimator.averaged(), estimator.precision.autocast(), torch.no_grad():
            attention = [
                _weights(
                    one.model.eval(),
                    one.task.batches.to_device(
                        self._sentences[one.name, split], estimator.world.device
                    ),
                    one.network,
                )
                for one in drawn
            ]
        if not estimator.world.leads:
            return
        for one, weights in zip(drawn, attention, strict=True):
            _draw(estimator, one, self._sentences[one.name, split], weights)


class _Drawn(NamedTuple):
    """A problem whose model is drawn; the name is empty if there is only one.

    `network` computes the pass: of sharded weights it is more than the model.
    """

    name: str
    task: Task
    features: Features
    model: nn.Module
    network: nn.Module


def _drawn(estimator: Estimator) -> list[_Drawn]:
    whole: Any = estimator.model
    task = estimator.task
    tasks: Mapping[str, Any] = getattr(task, "tasks", {})
    if len(tasks) > 1:
        models = whole.problems
        return [
            _Drawn(name, one, one.features, models[name], models[name])
            for name, one in tasks.items()
        ]
    features = getattr(task, "features", None)
    if not isinstance(features, Features):
        raise UsageError(
            f"--hooks=attention_maps: {type(task).__name__} has no features that say what its "
            "tokens are. Leave the hook out."
        )
    return [_Drawn("", task, features, whole, estimator.evaluated)]


def _draw(
    estimator: Estimator, drawn: _Drawn, sentence: Batch, attention: Mapping[str, Tensor]
) -> None:
    """Draws the weights of each layer, [N, T, S], with the tokens of a sentence."""
    features, step = drawn.features, estimator.state.step
    lengths = _axes(sentence, features)
    for layer, weights in attention.items():
        name = f"{drawn.name}/{layer}" if drawn.name else layer
        # Positions of unknown lengths are numbered.
        queries, keys = (
            lengths.get(size) or _Axis("position", list(map(str, range(size))))
            for size in weights.shape[1:]
        )
        read = [_START, *keys.tokens[:-1]] if keys.name in features.targets else keys.tokens
        rows, columns = queries.tokens[:_LONGEST], read[:_LONGEST]
        figure = heat_maps(
            list(weights[:, : len(rows), : len(columns)].float().cpu().numpy()),
            title=f"{name}, step {step:,}",
            titles=[f"head {head}" for head in range(len(weights))],
            rows=rows,
            columns=columns,
            axes=(queries.name, keys.name),
        )
        estimator.summary.figure(f"attention/{name}", figure, step)


def _texts(features: Mapping[str, Feature]) -> list[str]:
    return list(select_texts(features))


def _sentence(batches: Iterable[Batch], features: Features) -> Batch:
    """Returns one example of some batches: the longest of the short ones, else the shortest.

    A target as long as the inputs is padded by one position, because figure axes are identified
    by their length.
    """
    best = -math.inf
    chosen: Batch = {}
    for batch in batches:
        names = [name for name in _texts(features.all) if name in batch]
        lengths = torch.stack([(batch[name] != 0).sum(1) for name in names]).amax(0)  # [B]
        worth = torch.where(lengths <= _LONGEST, lengths, -lengths)
        row = int(worth.argmax())
        if worth[row] > best:
            best = float(worth[row])
            chosen = {name: values[row : row + 1] for name, values in batch.items()}
    for name in _texts(features.targets):
        others = {size for other, size in _sizes(chosen, features) if other != name}
        while chosen[name].size(1) in others:
            chosen[name] = nn.functional.pad(chosen[name], (0, 1))
    return chosen


def _sizes(batch: Batch, features: Features) -> Iterator[tuple[str, int]]:
    """Yields the number of positions of each text, and of joined "inputs"."""
    inputs = [name for name in _texts(features.inputs) if name in batch]
    if len(inputs) > 1:
        yield " + ".join(inputs), sum(batch[name].size(1) for name in inputs)
    for name in (*inputs, *_texts(features.targets)):
        if name in batch:
            yield name, batch[name].size(1)


def _axes(batch: Batch, features: Features) -> dict[int, _Axis]:
    """Returns the axis for each length."""
    axes: dict[int, _Axis] = {}
    for name, size in _sizes(batch, features):
        parts = name.split(" + ")
        tokens = [token for part in parts for token in _tokens(features.all[part], batch[part][0])]
        if len(parts) == 1:
            tokens = tokens[: max(1, int(batch[name][0].count_nonzero()))]  # no padding
        axes.setdefault(size, _Axis(name, tokens))
    return axes


def _tokens(feature: Any, ids: Tensor) -> list[str]:
    """Returns the text of each id, or its number if the text is empty, as for half a character."""
    names = {0: "", EOS: "<EOS>"}
    for i in {*ids.tolist()} - names.keys():
        text = feature.encoder.decode([i])
        names[i] = text if text.strip() else "␣" if text else str(i)
    return [names[i] for i in ids.tolist()]


def _weights(model: nn.Module, batch: Batch, network: nn.Module | None = None) -> dict[str, Tensor]:
    """Returns the attention weights of each layer, [N, T, S], for a batch of one example.

    The hops of attention pooling are the rows of one map.
    """
    attention: dict[str, Tensor] = {}

    def whole(attention: SelfAttention, x: Tensor, mask: Any = None, **given: Any) -> Any:
        """Reads with the mask of all positions instead of one whose blocks are computed apart."""
        mask = mask.mask if isinstance(mask, LocalMask) else mask
        return SelfAttention.read(attention, x, mask, **given)

    def note(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        q, k = given["q"].float(), given["k"].float()
        q = q * q.size(-1) ** -0.5
        scores = q @ k.transpose(-1, -2)  # [1, N, T, S]
        if (relative := given.get("relative")) is not None:
            scores = scores + relative.scores(q, distances(q.size(2), k.size(2), q.device))
        mask = given.get("mask")
        if given.get("causal"):
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        attention[name] = scores.softmax(-1)[0]

    with contextlib.ExitStack() as handles:
        for name, module in model.named_modules():
            if isinstance(module, SelfAttention):
                vars(module)["read"] = functools.partial(whole, module)
                handles.callback(vars(module).pop, "read")
            if isinstance(module, AttentionWeights):
                short = name.removesuffix(".weights")
                handle = module.register_forward_pre_hook(
                    lambda *given, short=short: note(short, *given), with_kwargs=True
                )
                handles.callback(handle.remove)
            if isinstance(module, MaskedSoftmax):
                short = name.removesuffix(".weights")
                handle = module.register_forward_hook(
                    lambda _, given, weights, short=short: attention.__setitem__(
                        short, weights.float()
                    )
                )
                handles.callback(handle.remove)
        (network or model)(batch)
    return attention
