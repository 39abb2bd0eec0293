"""From the tensors that a graph gives to what users read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from t2t_torch.artifact.answer import Answer, ranked
from t2t_torch.artifact.feeds import Row
from t2t_torch.artifact.prediction import Hypothesis, Prediction
from t2t_torch.artifact.signature import Target

_Scores = Mapping[str, float] | Sequence[float]


def output_names(target: Target) -> tuple[str, ...]:
    """Returns the names that a target's outputs may have."""
    return target.name, f"{target.name}_probability", f"{target.name}_scores"


_NO_SCORE = -1e7  # `NO_SCORE` of decode.beam: of a place that nothing filled, or less
_END = 1  # the id of `EOS`


def answers_of(
    targets: Sequence[Target], outputs: Mapping[str, npt.NDArray[Any]], rows: Sequence[Row]
) -> list[Answer]:
    """Returns what was found for each row of a batch.

    Args:
      targets: of a signature.
      outputs: of the graph, by name, each [B, ...].
      rows: what it was given.
    """
    plain = {name: values.tolist() for name, values in outputs.items()}
    return [_answer(targets, plain, number, row) for number, row in enumerate(rows)]


def predictions_of(target: Target, outputs: Mapping[str, npt.NDArray[Any]]) -> list[Prediction]:
    """Returns the texts that were found for each row of a batch, the best first.

    Args:
      target: of a signature, of the kind "text".
      outputs: of the graph, by name: texts and scores [B, n], ids [B, n, T].
    """
    texts, scores, ids = (outputs[f"{target.name}{of}"].tolist() for of in ("", "_scores", "_ids"))
    return [_prediction(*row) for row in zip(texts, scores, ids, strict=True)]


def _prediction(
    texts: Sequence[str], scores: Sequence[float], ids: Sequence[Sequence[int]]
) -> Prediction:
    filled = [score > _NO_SCORE for score in scores]
    count = max(1, filled.index(False) if False in filled else len(filled))
    rows = zip(texts[:count], ids, scores, strict=False)
    return Prediction(tuple(Hypothesis(text, _content(its), score) for text, its, score in rows))


def _content(ids: Sequence[int]) -> tuple[int, ...]:
    """Returns the ids before the end symbol and the padding at the end."""
    kept = list(ids[: ids.index(_END)]) if _END in ids else list(ids)
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _answer(targets: Sequence[Target], outputs: Mapping[str, Any], number: int, row: Row) -> Answer:
    values: dict[str, Any] = {}
    probabilities: dict[str, float] = {}
    scores: dict[str, _Scores] = {}
    for target in targets:
        names = output_names(target)
        found, probability, its = (
            outputs[name][number] if name in outputs else None for name in names
        )
        words = row.words[target.of] if target.kind == "tags" else None
        values[target.name] = _value(target, found, words)
        if probability is not None:
            probabilities[target.name] = float(probability)
        if its is not None:
            known = ranked(target.labels, its) if words is None else list(its[:words])
            scores[target.name] = known
    return Answer(values, probabilities, scores)


def _value(target: Target, found: Any, words: int | None) -> Any:
    if target.kind == "tags":
        return found[:words]
    if target.kind == "multilabel":
        return [label for label, there in zip(target.labels, found, strict=True) if there]
    if target.kind == "distribution":
        return dict(zip(target.labels, found, strict=True))
    return found
