"""Whether an artifact of a trial answers as the trial's model does, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from t2t_torch.artifact.nesting import put_together, taken_apart
from t2t_torch.artifact.tensor_session import TensorArtifact
from t2t_torch.errors import ExportError
from t2t_torch.export.verification import TOLERANCE
from t2t_torch.trial.captured import rows_of
from t2t_torch.trial.export_network import Taken
from t2t_torch.trial.nested import leaves
from t2t_torch.trial.predictor import forward
from t2t_torch.trial.records import as_arrays, rebuilt

_SHOWN = 6  # numbers of an answer that an error tells

_Arrays = Mapping[str, npt.NDArray[Any]]


class Verified(NamedTuple):
    """What was found.

    Attributes:
      rows: that were compared.
      batches: that they came in.
      largest: rows of the largest batch.
      difference: the greatest of a number, as a share of what is above 1.
      examples: of the first rows the input and the answer of the artifact, as JSON has them.
    """

    rows: int
    batches: int
    largest: int
    difference: float
    examples: Sequence[dict[str, Any]]


def verify(
    model: nn.Module,
    taken: Taken,
    artifact: TensorArtifact,
    batches: Sequence[Any],
    *,
    examples: int,
) -> Verified:
    """Asks both each batch, and each of its rows alone.

    Args:
      model: the trial's, on the CPU, in evaluation.
      taken: how it is called.
      artifact: made of it.
      batches: inputs of the validation loader.
      examples: numbers of examples together, about; one is told at least.

    Raises:
      ExportError: they differ, or the model answers a row by itself otherwise than in its batch;
        tells the first row that does.
    """
    greatest, rows, largest = 0.0, 0, 0
    told: list[dict[str, Any]] = []
    space = examples
    for inputs in batches:
        count = rows_of(inputs)
        expected = _asked(model, taken, inputs)
        found = dict(taken_apart(taken.outputs, artifact.batch(as_arrays(inputs))))
        for row in range(count):
            name = f"row {rows + row} of the validation loader"
            here = _row(expected, row)
            how = f"in a batch of {count}"
            greatest = max(greatest, _compared(name, how, here, _row(found, row)))
            one = _sliced(inputs, row)
            alone = _row(_asked(model, taken, one), 0)
            _check_independent(name, count, here, alone)
            answer = _row(dict(taken_apart(taken.outputs, artifact.batch(as_arrays(one)))), 0)
            greatest = max(greatest, _compared(name, "alone", alone, answer))
            given = _row(dict(taken_apart(taken.inputs, as_arrays(one))), 0)
            size = sum(array.size for array in (*given.values(), *answer.values()))
            if not told or (size <= space and len(told) < _MOST_EXAMPLES):
                space -= size
                told.append({"input": _plain(taken.inputs, given)} | _answer(taken, answer))
        rows, largest = rows + count, max(largest, count)
    return Verified(rows, len(batches), largest, greatest, told)


_MOST_EXAMPLES = 20


def _answer(taken: Taken, arrays: _Arrays) -> dict[str, Any]:
    return {"answer": _plain(taken.outputs, arrays)}


def _plain(nesting: Any, arrays: _Arrays) -> Any:
    return put_together(nesting, lambda name: arrays[name].tolist(), plain=True)


def _asked(model: nn.Module, taken: Taken, inputs: Any) -> dict[str, npt.NDArray[Any]]:
    with torch.no_grad():
        outputs = forward(model, _copied(inputs), taken.arguments)
    return dict(taken_apart(taken.outputs, as_arrays(outputs)))


def _copied(inputs: Any) -> Any:
    """Returns inputs that the model may change."""
    found = leaves(inputs)
    return rebuilt(inputs, lambda name: found[name].clone() if found[name] is not None else None)


def _sliced(inputs: Any, row: int) -> Any:
    found = leaves(inputs)
    return rebuilt(
        inputs, lambda name: found[name][row : row + 1] if found[name] is not None else None
    )


def _row(arrays: _Arrays, row: int) -> dict[str, npt.NDArray[Any]]:
    return {name: array[row] for name, array in arrays.items()}


def _check_independent(name: str, count: int, together: _Arrays, alone: _Arrays) -> None:
    """Raises ExportError if a row is answered otherwise alone than in its batch."""
    for output, array in together.items():
        if array.shape == alone[output].shape and _gap(array, alone[output]) <= TOLERANCE:
            continue
        raise ExportError(
            f"the model itself answers {name} otherwise alone than in its batch of {count}: "
            f"{output} is {_shown(alone[output])} and {_shown(array)}. So rows of a batch depend "
            "on each other, and an artifact, which answers one record by one, cannot be made of "
            "it: look for means or sums over the first axis, for BatchNorm without running means, "
            "and for random numbers that are drawn in evaluation, too."
        )


def _compared(name: str, how: str, expected: _Arrays, found: _Arrays) -> float:
    """Returns the greatest difference.

    Raises:
      ExportError: it is too large.
    """
    greatest = 0.0
    for output, array in expected.items():
        gap = _gap(array, found[output]) if array.shape == found[output].shape else np.inf
        if not gap <= TOLERANCE:
            raise ExportError(
                f"the artifact does not answer as the model does, asked {how}: {name}\n"
                f"  model:    {output} = {_shown(array)}\n"
                f"  artifact: {output} = {_shown(found[output])}\n"
                "Nothing was written. If forward draws random numbers in evaluation, too, that is "
                "why; else it is a fault of the export: please report it with the run."
            )
        greatest = max(greatest, float(gap))
    return greatest


def _gap(expected: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    """Returns the greatest difference, of numbers above 1 as a share of them.

    What is no fraction has to be the same; what is not finite, too.
    """
    if expected.dtype != found.dtype:
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(expected, found) else float("inf")
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(
        expected[~finite], found[~finite], equal_nan=True
    ):
        return float("inf")
    one, other = expected[finite].astype(np.float64), found[finite].astype(np.float64)
    if not one.size:
        return 0.0
    return float((np.abs(one - other) / np.maximum(1.0, np.abs(one))).max())


def _shown(array: npt.NDArray[Any]) -> str:
    some = ", ".join(f"{number:.6g}" for number in array.reshape(-1)[:_SHOWN].tolist())
    return f"[{some}{', ...' if array.size > _SHOWN else ''}] {array.dtype} {list(array.shape)}"
