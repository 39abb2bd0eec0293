"""A trial's model as a graph of ONNX, its nested inputs and outputs by name."""

from __future__ import annotations

import contextlib
import copy
import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from t2t_torch.artifact.nesting import Nesting, names_in, nesting_of, taken_apart
from t2t_torch.artifact.signature import Field, Target
from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.network import exported
from t2t_torch.trial.attribute_values import is_of_user
from t2t_torch.trial.definition import Definition
from t2t_torch.trial.nested import described, leaves
from t2t_torch.trial.predictor import forward
from t2t_torch.trial.records import rebuilt

ALONE_IN, ALONE_OUT = "input", "output"
"""The names of a tensor that stands in nothing."""

_ELSEWHERE = "t2t_torch.load of the run itself answers, with PyTorch."
_TOO_FEW = 2  # rows of an example: a size of 1 would become part of the graph
_ONNX_DTYPES = "float16 float32 float64 int8 int16 int32 int64 uint8 bool".split()


class Taken(NamedTuple):
    """How a model is called, as batches of the validation loader show.

    Attributes:
      inputs: how its inputs are nested.
      outputs: how what it returns is.
      like: inputs with nothing in them, in the containers that the loader gives.
      fields: the graph's inputs.
      targets: its outputs.
      varying: by input, the axes whose sizes vary.
      arguments: how many `forward` has to be given.
    """

    inputs: Nesting
    outputs: Nesting
    like: Any
    fields: tuple[Field, ...]
    targets: tuple[Target, ...]
    varying: Mapping[str, Sequence[int]]
    arguments: int


class Flat(nn.Module):
    """A model that takes tensors one after another and returns them by name.

    Args:
      model: the trial's.
      taken: how it is called.
    """

    def __init__(self, model: nn.Module, taken: Taken) -> None:
        super().__init__()
        self.model = model
        self._taken = taken

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Returns the outputs by name."""
        taken = self._taken
        given = dict(zip((field.name for field in taken.fields), values, strict=True))
        inputs = rebuilt(taken.like, lambda name: given.get(name or ALONE_IN))
        found = forward(self.model, inputs, taken.arguments)
        return dict(taken_apart(taken.outputs, found))


def taken_by(
    model: nn.Module, batches: Sequence[Any], outputs: Sequence[Any], arguments: int
) -> Taken:
    """Returns how a model is called.

    Args:
      model: the trial's.
      batches: inputs of the validation loader's batches, nested.
      outputs: what the model returned for each.
      arguments: how many `forward` has to be given.

    Raises:
      ExportError: something is no tensor, has no row for each record, or differs from batch to
        batch in more than sizes.
    """
    name = type(model).__name__
    into = _nesting(batches[0], ALONE_IN, f"{name} takes", "")
    sizes = [_row_count(name, inputs) for inputs in batches]
    given = _all_tensors(into, batches, f"{name} takes", sizes)
    out = _nesting(outputs[0], ALONE_OUT, f"{name} returns", "")
    if set(names_in(into)) & set(names_in(out)):  # a graph has each name once
        out = _nesting(outputs[0], ALONE_OUT, f"{name} returns", ALONE_OUT)
    found = _all_tensors(out, outputs, f"{name} returns", sizes)
    fields = tuple(
        Field(one, "tensor", dtype, shape=shape) for one, dtype, shape in _kinds(name, given)
    )
    targets = tuple(
        Target(one, "tensor", dtype=dtype, shape=shape) for one, dtype, shape in _kinds(name, found)
    )
    varying = {
        field.name: (0, *(1 + axis for axis, size in enumerate(field.shape) if size < 0))
        for field in fields
    }
    like = rebuilt(batches[0], lambda _: None)
    return Taken(into, out, like, fields, targets, varying, arguments)


def graph_of(model: nn.Module, taken: Taken, batches: Sequence[Any], code: Definition) -> Any:
    """Returns a model as a graph.

    Args:
      model: the trial's, on the CPU; it stays as it is.
      taken: how it is called.
      batches: inputs; it is traced with the largest.
      code: where the trial's code is.

    Raises:
      ExportError: it cannot be one; says where in the trial's code, and why.
    """
    example = _example(taken, batches)
    name = type(model).__name__
    try:
        with torch.no_grad():
            still = copy.deepcopy(model).eval().requires_grad_(False)
            flat = Flat(still, taken)
            with _symbolic_len(still):
                graph = exported(name, flat, example, taken.varying, otherwise=_ELSEWHERE)
    except ExportError as error:
        raise ExportError(_told(name, error.__cause__ or error, str(error), code)) from error
    except Exception as error:  # of the trial's own code, which computes with no numbers here
        raise ExportError(_told(name, error, "", code)) from error
    _check_outputs(graph, taken)
    return graph


@contextlib.contextmanager
def _symbolic_len(model: nn.Module) -> Iterator[None]:
    """Lets `len(tensor)` in the trial's own files be a size that varies: Python's is a number."""

    def own_len(value: Any) -> Any:
        return value.size(0) if isinstance(value, Tensor) and value.dim() else len(value)

    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    files = {kind.__module__ for kind in kinds if is_of_user(kind)}
    changed = [vars(sys.modules[file]) for file in files if "len" not in vars(sys.modules[file])]
    for names in changed:
        names["len"] = own_len
    try:
        yield
    finally:
        for names in changed:
            del names["len"]


def _is_packed(error: BaseException) -> bool:
    """Whether what failed was computed of packed sequences."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.endswith("torch/nn/utils/rnn.py"):
            return True
        if any(isinstance(value, PackedSequence) for value in frame.f_locals.values()):
            return True
    return False


def _all_tensors(
    nesting: Nesting, values: Sequence[Any], what: str, sizes: Sequence[int]
) -> list[dict[str, Tensor]]:
    return [_tensors(nesting, one, what, n) for one, n in zip(values, sizes, strict=True)]


def _nesting(value: Any, alone: str, what: str, within: str) -> Nesting:
    """Returns how inputs or outputs are nested; with a name before all names, if there is one."""
    try:
        found = nesting_of({within: value} if within else value, alone)
    except DataError as error:
        raise ExportError(f"{what} what a graph cannot name: {error} {_ELSEWHERE}") from None
    if found is not None and within:
        (found,) = found["dict"].values()
    return found


def _row_count(name: str, inputs: Any) -> int:
    """Returns the records of a batch.

    Raises:
      ExportError: it has no tensor, or tensors with different numbers of rows.
    """
    found = {n: leaf for n, leaf in leaves(inputs).items() if isinstance(leaf, Tensor)}
    counts = {leaf.shape[:1] for leaf in found.values()}
    if len(counts) != 1 or counts == {()}:
        told = ", ".join(f"{n or ALONE_IN}: {described(leaf)}" for n, leaf in found.items())
        raise ExportError(
            f"{name} takes tensors whose first axis is not the batch, or none: {told or 'none'}. "
            f"An artifact answers one record by one. {_ELSEWHERE}"
        )
    return int(next(iter(counts))[0])


def _tensors(nesting: Nesting, value: Any, what: str, count: int) -> dict[str, Tensor]:
    """Returns the tensors of inputs or outputs.

    Raises:
      ExportError: something is none, or has another number of rows.
    """
    try:
        found = dict(taken_apart(nesting, value))
    except DataError as error:
        raise ExportError(
            f"{what} differently nested values from batch to batch: {error} {_ELSEWHERE}"
        ) from None
    if not found:
        raise ExportError(f"{what} nothing: there is no tensor in it.")
    for name, leaf in found.items():
        dtype = str(getattr(leaf, "dtype", "")).removeprefix("torch.")
        if not isinstance(leaf, Tensor) or dtype not in _ONNX_DTYPES or leaf.is_sparse:
            raise ExportError(
                f"{what} {name!r}, {described(leaf)}: a graph has tensors of numbers alone. "
                f"Make it one, or leave it out. {_ELSEWHERE}"
            )
        if leaf.shape[:1] != (count,):
            raise ExportError(
                f"{what} {name!r}, {described(leaf)}, in a batch of {count}: its first axis is not "
                f"the batch, and an artifact answers one record by one. {_ELSEWHERE}"
            )
    return found


def _kinds(name: str, batches: Sequence[Mapping[str, Tensor]]) -> list[tuple[str, str, Any]]:
    """Returns of each tensor its name, its dtype, and the shape of one record.

    Raises:
      ExportError: batches differ in dtype or in the number of axes.
    """
    kinds = []
    for one, first in batches[0].items():
        shape = list(first.shape[1:])
        for other in (batch[one] for batch in batches[1:]):
            if other.dtype != first.dtype or other.dim() != first.dim():
                raise ExportError(
                    f"{one!r} of {name} is {described(first)} in one batch of the validation "
                    f"loader and {described(other)} in another. {_ELSEWHERE}"
                )
            same = zip(shape, other.shape[1:], strict=True)
            shape = [size if size == its else -1 for size, its in same]
        kinds.append((one, str(first.dtype).removeprefix("torch."), tuple(shape)))
    return kinds


def _example(taken: Taken, batches: Sequence[Any]) -> dict[str, Tensor]:
    """Returns the largest batch by name, doubled if it has one row."""
    flat = [dict(taken_apart(taken.inputs, batch)) for batch in batches]
    largest = max(flat, key=lambda one: sum(tensor.numel() for tensor in one.values()))
    if len(next(iter(largest.values()))) < _TOO_FEW:
        largest = {name: torch.cat([tensor, tensor]) for name, tensor in largest.items()}
    return {name: tensor.clone() for name, tensor in largest.items()}


def _check_outputs(graph: onnx.ModelProto, taken: Taken) -> None:
    """Raises ExportError if a graph has other outputs than the model."""
    found = [output.name for output in graph.graph.output]
    wanted = [target.name for target in taken.targets]
    if sorted(found) != sorted(wanted):
        raise ExportError(
            f"the graph has the outputs {', '.join(found)}, and {', '.join(wanted)} were expected. "
            f"{_ELSEWHERE}"
        )


def _told(name: str, error: BaseException, told: str, code: Definition) -> str:
    """Says in one sentence why a model is no graph, and at which line of the trial."""
    root = code.path if code.path.is_dir() else code.path.parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
    where = ""
    if own:
        line = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
        where = f" at {Path(own[-1].filename).name}, line {own[-1].lineno} ({line})"
    if _is_packed(error):
        why = (
            "it packs sequences (pack_padded_sequence), and the sizes of what is packed depend on "
            "numbers in a tensor: a graph has none such. Give the layer the padded sequences, and "
            "mask what it returns"
        )
        return f"{name} cannot be exported: forward{where}: {why}. {_ELSEWHERE}"
    if "data-dependent" in str(error) or type(error).__name__.startswith("GuardOnDataDependent"):
        why = (
            "what it computes depends on a number in a tensor (an if, a loop, item(), or a size), "
            "and a graph has one way for all numbers: take torch.where, or a mask"
        )
        return f"{name} cannot be exported: forward{where}: {why}. {_ELSEWHERE}"
    if told and not own:
        return told
    why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return f"{name} cannot be exported: forward{where}: {type(error).__name__}: {why}. {_ELSEWHERE}"
