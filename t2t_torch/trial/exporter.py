"""Export of a trial: ONNX graph with verification, or weights as safetensors.

The trial's code, its data and its validation loader are needed here, and none of it afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import importlib.metadata
import json
import linecache
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import t2t_torch
from t2t_torch.checkpoint.checkpoint import MODEL as CHECKPOINT_MODEL
from t2t_torch.checkpoint.tensors import model_tensors
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.distributed.process_group import World
from t2t_torch.errors import DataError, ExportError, UsageError
from t2t_torch.export.graph import OPSETS
from t2t_torch.export.network import exported
from t2t_torch.export.request import Request, remove_leftovers, staged_folder, write_signature
from t2t_torch.export.verification import TOLERANCE
from t2t_torch.runtime.nesting import Nesting, names_in, nesting_of, put_together, taken_apart
from t2t_torch.runtime.session import TensorArtifact
from t2t_torch.runtime.signature import (
    EXAMPLES,
    FILE,
    MODEL,
    ONNX,
    SAFETENSORS,
    Field,
    Signature,
    Target,
    Written,
)
from t2t_torch.trial.attribute_capture import is_of_user
from t2t_torch.trial.definition import Definition
from t2t_torch.trial.nested import as_arrays, described, leaves, rebuilt
from t2t_torch.trial.predictor import (
    OpenedRun,
    arguments_of,
    forward,
    load_trial,
    rows_of,
    validation_inputs,
)
from t2t_torch.trial.run_record import FOLDER, NAME

# A trial's model as a graph of ONNX, its nested inputs and outputs by name.


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
        raise ExportError(_graph_error(name, error.__cause__ or error, str(error), code)) from error
    except Exception as error:  # of the trial's own code, which computes with no numbers here
        raise ExportError(_graph_error(name, error, "", code)) from error
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


def _graph_error(name: str, error: BaseException, told: str, code: Definition) -> str:
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


# Whether an artifact of a trial answers as the trial's model does, row by row.


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


_LARGEST = 1_900_000_000  # bytes of weights: a file of ONNX has 2 GiB at most
_EXAMPLE_NUMBERS = 200_000  # of all examples together; as JSON some megabytes
_PACKAGES = ("torch", "onnx", "onnxruntime")


class TrialExported(NamedTuple):
    """What was written.

    Attributes:
      folder: the artifact.
      signature: what it says of itself.
      verified: the rows that were compared.
      seconds: that it took in all.
    """

    folder: Path
    signature: Signature
    verified: Verified
    seconds: float

    def __str__(self) -> str:
        """What the command tells."""
        signature, verified = self.signature, self.verified
        size = sum(written.bytes for written in signature.files.values())
        batches = "batch" if verified.batches == 1 else "batches"
        return "\n".join(
            [
                f"{self.folder}: {signature.model} of {signature.problem}, {signature.checkpoint}",
                f"  size      {size / 2**20:.1f} MiB",
                f"  inputs    {_signature_text(signature.fields)}",
                f"  outputs   {_signature_text(signature.targets)}",
                f"  verified  {verified.rows} rows of the validation loader, each alone and in its "
                f"batch ({verified.batches} {batches} of {verified.largest} at most): within "
                f"{verified.difference:.1e}",
                f"  took      {self.seconds:.0f} seconds",
            ]
        )


def export(request: Request) -> TrialExported:
    """Writes the artifact of a trial's run, if it answers as the run's model does.

    Args:
      request: what, and where to; no data directory is read.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      ExportError: the model cannot be exported, or the artifact does not answer as it does.
      TrialError: the trial's code or data are gone or broken.
      UsageError: the request cannot be met.
    """
    start = time.perf_counter()
    remove_leftovers(request.export_dir)
    request.check()
    check_is_met(request)
    run = OpenedRun.of(request.run_dir, World(0, 1, torch.device("cpu")))
    chosen = run.load(request.checkpoint)
    model, name = run.model, type(run.model).__name__
    _check_size(model)
    batches = list(validation_inputs(run.task, model, run.device, rows=request.verify_rows))
    arguments = arguments_of(model)
    with torch.no_grad():
        outputs = [forward(model, inputs, arguments) for inputs in batches]
    taken = taken_by(model, batches, outputs, arguments)
    graph = graph_of(model, taken, batches, run.task.definition)
    with staged_folder(request.export_dir, overwrite=request.overwrite) as scratch:
        whole = scratch / "whole"
        onnx.save(graph, whole / MODEL)
        shutil.copyfile(request.run_dir / NAME, whole / NAME)
        signature = Signature(
            problem=run.task.name,
            model=name,
            step=chosen.step,
            checkpoint=chosen.told,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            fields=taken.fields,
            targets=taken.targets,
            needs_extensions=False,
            quantized="",
            opset=OPSETS[""],
            made_with=_versions(),
            files={},
            form=ONNX,
            nesting={"inputs": taken.inputs, "outputs": taken.outputs},
        )
        write_signature(signature, whole)
        artifact = TensorArtifact(whole)
        verified = verify(model, taken, artifact, batches, examples=_EXAMPLE_NUMBERS)
        _write_examples(verified.examples, whole / EXAMPLES)
        signature = write_signature(signature, whole)
    took = time.perf_counter() - start
    return TrialExported(request.export_dir, signature, verified, took)


def check_is_met(request: Request) -> None:
    """Checks that a request asks for nothing that a trial has not.

    Raises:
      UsageError: it does; all is told.
    """
    faults = []
    if request.form not in (ONNX, SAFETENSORS):
        faults.append(
            f"--format={request.form} is for a run of a problem; a trial is exported as a graph, "
            f"--format={ONNX}, or as weights, --format={SAFETENSORS}."
        )
    if request.quantize:
        faults.append(
            f"--quantize={request.quantize} is judged by a problem's metrics, and a trial has its "
            "own: leave it out."
        )
    if request.others:
        faults.append("several runs answer as one of problems alone: give one run of a trial.")
    if request.problem:
        faults.append(f"--problem={request.problem}: this is a run of a trial. Leave it out.")
    if request.decode_hparams != DecodeHParams():
        faults.append("--decode_hparams: a trial's model searches for nothing. Leave it out.")
    if faults:
        raise UsageError("\n".join(faults))


def _check_size(model: torch.nn.Module) -> None:
    size = sum(one.numel() * one.element_size() for one in model.parameters())
    if size > _LARGEST:
        raise ExportError(
            f"the model has weights of {size:,} bytes, and a file of ONNX holds 2 GiB at most. "
            "t2t_torch.load of the run itself answers, with PyTorch."
        )


def _versions() -> dict[str, str]:
    known = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"t2t_torch": t2t_torch.__version__, **known}


def _write_examples(examples: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(example, ensure_ascii=False) + "\n")


def _signature_text(parts: Sequence[Any]) -> str:
    return ", ".join(f"{one.name} {one.dtype} {['batch', *one.shape]}" for one in parts).replace(
        "'", ""
    )


# The weights of a trial's run as safetensors, in a folder that is loaded as the run is.


_READ_ME = """# {model} of {trial}

`t2t-exporter --format=safetensors` wrote this folder, of {checkpoint}. t2t_torch loads it as it
loads a run, with the trial's code, of which `code/` is a copy:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```

and any program has the weights:

```python
from safetensors.torch import load_file

weights = load_file("model.safetensors")
```
"""


class WeightsExported(NamedTuple):
    """What was written.

    Attributes:
      request: where to.
      signature: what it says of itself.
      seconds: that it took in all.
    """

    request: Request
    signature: Signature
    seconds: float

    def __str__(self) -> str:
        """What the command tells."""
        signature = self.signature
        size = sum(written.bytes for written in signature.files.values())
        about = f"{signature.model} of {signature.problem}, {signature.checkpoint}"
        return (
            f"{self.request.export_dir}: {about}\n"
            f"  size      {size / 2**20:.1f} MiB\n"
            "  verified  what is loaded from there: the same weights to the bit\n"
            f"  took      {self.seconds:.0f} seconds"
        )


def export_weights(request: Request) -> WeightsExported:
    """Writes the weights, if what is loaded from there is the same to the bit.

    Args:
      request: what, and where to; no data is read.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      ExportError: what was written is not what is read.
      TrialError: the trial's code is gone or broken.
      UsageError: the request cannot be met.
    """
    start = time.perf_counter()
    remove_leftovers(request.export_dir)
    request.check()
    run = request.run_dir
    predictor = load_trial(run, request.checkpoint, device="cpu")
    state, name = predictor.model.state_dict(), type(predictor.model).__name__
    tensors = {n: one.contiguous() for n, one in model_tensors(predictor.model).items()}
    with staged_folder(request.export_dir, overwrite=request.overwrite) as scratch:
        whole = scratch / "whole"
        save_file(tensors, whole / CHECKPOINT_MODEL, metadata={"format": "pt"})
        for file in ("task.json", NAME):
            shutil.copyfile(run / file, whole / file)
        told = {"model": name, "trial": predictor.name, "checkpoint": predictor.chosen.told}
        read_me = _READ_ME.format(**told, folder=request.export_dir.name)
        (whole / "README.md").write_text(read_me, "utf-8")
        signature = Signature(
            problem=predictor.name,
            model=name,
            step=predictor.chosen.step,
            checkpoint=predictor.chosen.told,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            fields=(),
            targets=(),
            needs_extensions=False,
            quantized="",
            opset=0,
            made_with={"t2t_torch": t2t_torch.__version__, "torch": torch.__version__},
            files={},
            form=SAFETENSORS,
        )
        if (run / FOLDER).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(run / FOLDER, whole / FOLDER, ignore=ignored)
        signature = _written(signature, whole)
        read = load_trial(whole, device="cpu").model.state_dict()
        differ = [n for n in state if n not in read or not torch.equal(state[n], read[n])]
        if differ:
            raise ExportError(
                f"what is loaded from there has other weights than the run: {differ[0]}. Nothing "
                "was written. This is a fault of the export: please report it with the run."
            )
    return WeightsExported(request, signature, time.perf_counter() - start)


def _written(signature: Signature, folder: Path) -> Signature:
    """Writes what the folder says of itself and of all files below it; returns it."""
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    files = {name.as_posix(): Written.of(folder / name) for name in names}
    signature = dataclasses.replace(signature, files=files)
    (folder / FILE).write_text(signature.to_json(), encoding="utf-8")
    return signature
