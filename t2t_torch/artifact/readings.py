"""From the tensors that a graph gives to what users read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from t2t_torch.artifact.answer import Answer, ranked
from t2t_torch.artifact.feeds import Row
from t2t_torch.artifact.signature import Target

_Scores = Mapping[str, float] | Sequence[float]


def output_names(target: Target) -> tuple[str, ...]:
    """Returns the names that a target's outputs may have."""
    return target.name, f"{target.name}_probability", f"{target.name}_scores"


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
