"""The examples of an artifact: inputs, and the answers that its exporter got for them."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from t2t_torch.artifact.answer import Answer
from t2t_torch.artifact.prediction import Prediction
from t2t_torch.artifact.signature import EXAMPLES, Target
from t2t_torch.errors import ArtifactError
from t2t_torch.text.lines import read_lines

Example: TypeAlias = dict[str, Any]
"""An `input` and its `answer`."""

_TIE = 1e-5  # of scores, relative: either of two values might be the best; of numbers' scale
_CLOSE = 1e-3  # of numbers; the exporter compares more exactly, here another version may compute


def read_examples(path: Path) -> list[Example]:
    """Returns the examples of an artifact; none if it has no file of them.

    Raises:
      ArtifactError: the file is damaged.
    """
    file = path / EXAMPLES
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in read_lines(file)]
    except ValueError as error:
        raise ArtifactError(f"{file} is damaged: {error}. Export the run again.") from None


def check_answers(
    path: Path,
    targets: Sequence[Target],
    examples: Sequence[Example],
    found: Sequence[Answer | Prediction],
) -> None:
    """Checks that examples are answered as they were when they were exported.

    Args:
      path: of the artifact.
      targets: of its signature.
      examples: of the artifact.
      found: the answers to these examples now.

    Raises:
      ArtifactError: one is answered otherwise; names it.
    """
    scales = {one.name: _scale(one, examples) for one in targets}
    for number, (example, its) in enumerate(zip(examples, found, strict=True)):
        for name, value, expected in _compared(targets, example["answer"], its):
            if not _is_same(value, expected, scales.get(name, 1.0)):
                raise _differs(path, number, f"{name!r} is {value!r}, and was {expected!r}")


def check_nested(path: Path, examples: Sequence[Example], found: Sequence[Any]) -> None:
    """As `check_answers`, of a trial's nested arrays as plain lists.

    Raises:
      ArtifactError: one is answered otherwise; names it.
    """
    for number, (example, value) in enumerate(zip(examples, found, strict=True)):
        if not _is_close(value, example["answer"]):
            told = f"{reprlib.repr(value)}, and it was {reprlib.repr(example['answer'])}"
            raise _differs(path, number, told)


def fails(path: Path, error: Exception) -> ArtifactError:
    """Returns the error of an artifact that cannot answer its examples at all."""
    return ArtifactError(
        f"'{path}' does not answer its own examples: {error!r}. Copy it again from where it was "
        "exported, or export the run again with the onnxruntime that is installed here."
    )


def _differs(path: Path, number: int, told: str) -> ArtifactError:
    return ArtifactError(
        f"'{path}' does not answer its example {number} as it did when it was exported: {told}. "
        "Copy it again from where it was exported, or export the run again with the onnxruntime "
        "that is installed here."
    )


def _compared(
    targets: Sequence[Target], answer: Mapping[str, Any], found: Answer | Prediction
) -> Iterator[tuple[str, Any, Any]]:
    """Yields what was found and what was expected, with its name."""
    if not isinstance(found, Prediction):
        for target in targets:
            if target.name in answer["values"] and not _is_tie(target, answer, found):
                yield target.name, found.values[target.name], answer["values"][target.name]
        for name, before in answer.get("scores", {}).items():
            # Labels are in the signature alone; probabilities differ between processors.
            if isinstance(before, Mapping):
                yield f"labels of {name}", sorted(found.scores[name]), sorted(before)
        return
    name, best, its = targets[0].name, answer["hypotheses"][0], found.hypotheses[0]
    is_tie = math.isclose(its.score, best["score"], rel_tol=_TIE)
    if list(its.ids) == best["ids"] or not is_tie:
        yield name, its.text, best["text"]
    yield f"{name}_scores", its.score, best["score"]


def _is_tie(target: Target, answer: Mapping[str, Any], found: Answer) -> bool:
    """Whether another part of a text, or another label, was found that is as probable."""
    now, before = found.values[target.name], answer["values"][target.name]
    if now == before:
        return False
    if target.kind == "class":
        scores = found.scores.get(target.name, {})
        if not isinstance(scores, Mapping) or not {now, before} <= scores.keys():
            return False
        return math.isclose(scores[now], scores[before], rel_tol=_CLOSE)
    if target.kind != "span":
        return False
    was = answer["probabilities"][target.name]
    return math.isclose(found.probabilities[target.name], was, rel_tol=_TIE)


def _scale(target: Target, examples: Sequence[Example]) -> float:
    """Returns the largest number among the answers: by it even numbers near 0 are rounded."""
    if target.kind != "numbers":
        return 1.0
    values = (one["answer"]["values"].get(target.name, ()) for one in examples)
    return max((abs(number) for held in values for number in held), default=1.0)


def _is_same(found: Any, expected: Any, scale: float) -> bool:
    if isinstance(expected, float):
        abs_tol = max(_CLOSE, _TIE * scale)
        return math.isclose(found, expected, rel_tol=_CLOSE, abs_tol=abs_tol)
    if isinstance(expected, Mapping):
        return all(_is_same(found[key], value, scale) for key, value in expected.items())
    if isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(_is_same(*pair, scale) for pair in pairs)
    return bool(found == expected)


def _is_close(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return all(_is_close(found[key], value) for key, value in expected.items())
    if isinstance(expected, list) and any(isinstance(one, dict | list | None) for one in expected):
        return len(found) == len(expected) and all(map(_is_close, found, expected))
    if expected is None or found is None:
        return found is expected
    return np.shape(found) == np.shape(expected) and np.allclose(
        found, expected, rtol=_CLOSE, atol=_CLOSE, equal_nan=True
    )
