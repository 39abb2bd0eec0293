"""Export of a trial: ONNX graph with verification, or weights as safetensors.

Exporting needs the trial's code, data and validation loader; the artifact does not.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.exporter import Exporter, ModelOrigin, WeightsExporter, check_size
from t2t_torch.export.graph import OPSETS
from t2t_torch.export.network import NamedNetwork, exported
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.verification import TOLERANCE
from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.files import copy_regular
from t2t_torch.run.code import copy_code
from t2t_torch.runtime.nesting import Nesting, names_in, nesting_of, put_together, taken_apart
from t2t_torch.runtime.session import TensorArtifact
from t2t_torch.runtime.signature import MODEL, Signature
from t2t_torch.trial.experiment import NAME
from t2t_torch.trial.nested import as_arrays, copied, described, fill, mapped, rows_of, sliced
from t2t_torch.trial.predictor import forward, load_trial, open_run, validation_inputs
from t2t_torch.trial.user_code import Definition, is_of_user

ALONE_IN, ALONE_OUT = "input", "output"
"""Names of an input or output that is a single tensor."""

_ELSEWHERE = "t2t_torch.load of the run itself answers, with PyTorch."
_TOO_FEW = 2  # minimum rows of the example: a size of 1 would become a constant of the graph
_ONNX_DTYPES = "float16 float32 float64 int8 int16 int32 int64 uint8 bool".split()


class CallingConvention(NamedTuple):
    """Calling convention of a model, inferred from batches of the validation loader.

    Attributes:
      inputs: nesting of the inputs.
      outputs: nesting of the outputs.
      like: inputs without values, in the containers of the loader.
      fields: inputs of the graph.
      targets: outputs of the graph.
      varying: dynamic axes of each input.
    """

    inputs: Nesting
    outputs: Nesting
    like: Any
    fields: tuple[InputSpec, ...]
    targets: tuple[OutputSpec, ...]
    varying: Mapping[str, Sequence[int]]


def named_outputs(
    convention: CallingConvention, model: nn.Module, inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the outputs of a trial's model by name, for its inputs by name."""
    given = fill(convention.like, inputs, ALONE_IN)
    return dict(taken_apart(convention.outputs, forward(model, given)))


def infer_convention(
    model: nn.Module, batches: Sequence[Any], outputs: Sequence[Any]
) -> CallingConvention:
    """Returns the calling convention of a model.

    Args:
      model: model of the trial.
      batches: nested inputs, one per batch of the validation loader.
      outputs: outputs of the model for each batch.

    Raises:
      ExportError: an input or output is no tensor, has no row per record, or differs between
        batches in more than its sizes.
    """
    name = type(model).__name__
    into = _nesting(batches[0], ALONE_IN, f"{name} takes", "")
    given = [_tensors(into, one, f"{name} takes", rows_of(one)) for one in batches]
    out = _nesting(outputs[0], ALONE_OUT, f"{name} returns", "")
    if set(names_in(into)) & set(names_in(out)):  # names in a graph are unique
        out = _nesting(outputs[0], ALONE_OUT, f"{name} returns", ALONE_OUT)
    returned = [
        _tensors(out, one, f"{name} returns", rows_of(inputs))
        for one, inputs in zip(outputs, batches, strict=True)
    ]
    fields = tuple(InputSpec(one, "tensor", **kind) for one, kind in _kinds(name, given))
    targets = tuple(OutputSpec(one, "tensor", **kind) for one, kind in _kinds(name, returned))
    varying = {
        field.name: (0, *(1 + axis for axis, size in enumerate(field.shape) if size < 0))
        for field in fields
    }
    like = mapped(batches[0], lambda *_: None)
    return CallingConvention(into, out, like, fields, targets, varying)


def graph_of(
    model: nn.Module, convention: CallingConvention, batches: Sequence[Any], code: Definition
) -> Any:
    """Returns the ONNX graph of a model.

    Args:
      model: model of the trial, on the CPU; it is not modified.
      convention: calling convention of the model.
      batches: inputs; the largest is used for tracing.
      code: definition of the trial, to locate its source code.

    Raises:
      ExportError: the model cannot be exported; names the line of the trial's code and the reason.
    """
    name = type(model).__name__
    flat = [dict(taken_apart(convention.inputs, batch)) for batch in batches]
    largest = max(flat, key=lambda one: sum(tensor.numel() for tensor in one.values()))
    if len(next(iter(largest.values()))) < _TOO_FEW:
        largest = {name: torch.cat([tensor, tensor]) for name, tensor in largest.items()}
    example = {name: tensor.clone() for name, tensor in largest.items()}
    try:
        with torch.no_grad():
            still = copy.deepcopy(model).eval().requires_grad_(False)
            network = NamedNetwork(example, still, functools.partial(named_outputs, convention))
            with _symbolic_len(still):
                graph = exported(name, network, example, convention.varying, otherwise=_ELSEWHERE)
    except Exception as error:  # also of the trial's code, which is traced with symbolic values
        message = str(error) if isinstance(error, ExportError) else ""
        raise ExportError(_graph_error(name, error, message, code)) from error
    actual = sorted(output.name for output in graph.graph.output)
    if actual != sorted(target.name for target in convention.targets):
        raise ExportError(f"the graph has other outputs than {name}: {actual}. {_ELSEWHERE}")
    return graph


@contextlib.contextmanager
def _symbolic_len(model: nn.Module) -> Iterator[None]:
    """Makes `len(tensor)` in the trial's files symbolic: Python's `len` returns a constant."""

    def own_len(value: Any) -> Any:
        return value.size(0) if isinstance(value, Tensor) and value.dim() else len(value)

    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    files = {kind.__module__ for kind in kinds if is_of_user(kind)}
    with contextlib.ExitStack() as stack:
        for module in (sys.modules[file] for file in files):
            if "len" not in vars(module):
                stack.enter_context(mock.patch.object(module, "len", own_len, create=True))
        yield


def _nesting(value: Any, alone: str, what: str, within: str) -> Nesting:
    """Returns the nesting of inputs or outputs, with the prefix `within` for all names."""
    try:
        nesting = nesting_of({within: value} if within else value, alone)
    except DataError as error:
        raise ExportError(f"{what} what a graph cannot name: {error} {_ELSEWHERE}") from None
    if nesting is not None and within:
        (nesting,) = nesting["dict"].values()
    return nesting


def _tensors(nesting: Nesting, value: Any, what: str, count: int) -> dict[str, Tensor]:
    """Returns the named tensors of inputs or outputs.

    Raises:
      ExportError: a value is no tensor, or has a wrong number of rows.
    """
    try:
        tensors = dict(taken_apart(nesting, value))
    except DataError as error:
        raise ExportError(
            f"{what} differently nested values from batch to batch: {error} {_ELSEWHERE}"
        ) from None
    if not tensors:
        raise ExportError(f"{what} nothing: there is no tensor in it.")
    for name, leaf in tensors.items():
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
    return tensors


def _kinds(
    name: str, batches: Sequence[Mapping[str, Tensor]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the name of each tensor, and dtype and shape of one record of it.

    Raises:
      ExportError: dtype or number of axes differs between batches.
    """
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
        yield one, {"dtype": str(first.dtype).removeprefix("torch."), "shape": tuple(shape)}


def _graph_error(name: str, error: BaseException, message: str, code: Definition) -> str:
    """Returns the error message: the reason, and the line of the trial's code."""
    if message:
        error = error.__cause__ or error
    root = code.path if code.path.is_dir() else code.path.parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
    where = ""
    if own:
        line = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
        where = f" at {Path(own[-1].filename).name}, line {own[-1].lineno} ({line})"
    kind = type(error).__name__
    is_packed = any(
        frame.f_code.co_filename.endswith("torch/nn/utils/rnn.py")
        or any(isinstance(value, PackedSequence) for value in frame.f_locals.values())
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    if is_packed:
        why = (
            "it packs sequences (pack_padded_sequence), and the sizes of what is packed depend on "
            "numbers in a tensor: a graph has none such. Give the layer the padded sequences, and "
            "mask what it returns"
        )
    elif "data-dependent" in str(error) or kind.startswith("GuardOnDataDependent"):
        why = (
            "what it computes depends on a number in a tensor (an if, a loop, item(), or a size), "
            "and a graph has one way for all numbers: take torch.where, or a mask"
        )
    elif message and not own:
        return message
    else:
        why = f"{kind}: {(str(error).strip() or kind).splitlines()[0].rstrip('.')}"
    return f"{name} cannot be exported: forward{where}: {why}. {_ELSEWHERE}"


_SHOWN = 6  # maximum number of output values in an error message
_MOST_EXAMPLES = 20

_Arrays = Mapping[str, npt.NDArray[Any]]


class VerifiedTrial(NamedTuple):
    """Result of the comparison of an artifact with the model of a trial.

    Attributes:
      rows: number of compared rows.
      batches: number of compared batches.
      largest: number of rows of the largest batch.
      difference: largest difference of a value; relative for values above 1.
      first: inputs and outputs of the first rows, in JSON form.
    """

    rows: int
    batches: int
    largest: int
    difference: float
    first: list[dict[str, Any]]

    def examples(self) -> list[dict[str, Any]]:
        """Returns `first`."""
        return self.first

    def lines(self, signature: Signature) -> list[str]:
        """Returns the lines for the command's output."""
        batches = "batch" if self.batches == 1 else "batches"
        shapes = [
            ", ".join(f"{one.name} {one.dtype} {['batch', *one.shape]}" for one in parts)
            for parts in (signature.fields, signature.targets)
        ]
        inputs, outputs = (one.replace("'", "") for one in shapes)
        return [
            f"  inputs    {inputs}",
            f"  outputs   {outputs}",
            f"  verified  {self.rows} rows of the validation loader, each alone and in its "
            f"batch ({self.batches} {batches} of {self.largest} at most): within "
            f"{self.difference:.1e}",
        ]


def _plain(nesting: Any, arrays: _Arrays) -> Any:
    return put_together(nesting, arrays.__getitem__, plain=True)


def _row(arrays: _Arrays, row: int) -> dict[str, npt.NDArray[Any]]:
    return {name: array[row] for name, array in arrays.items()}


_DEPENDS = (
    "the model's own outputs for a row depend on the rest of its batch, and an artifact answers "
    "one record by one. Look for means or sums over the first axis, for BatchNorm without running "
    "means, and for random numbers that are drawn in evaluation, too."
)
_DIFFERS = (
    "the outputs of the artifact differ from those of the model, run {}. Nothing was written. If "
    "forward draws random numbers in evaluation, too, that is why; else it is a fault of the "
    "export: please report it with the run."
)


def _compare(expected: _Arrays, actual: _Arrays, name: str, fault: str) -> float:
    """Returns the largest difference of the outputs for a row.

    Raises:
      ExportError: the difference exceeds the tolerance.
    """
    greatest = 0.0
    for output, array in expected.items():
        gap = _gap(array, actual[output])
        if not gap <= TOLERANCE:
            one, other = _shown(array), _shown(actual[output])
            raise ExportError(f"{fault}\n  {name}: {output} = {one}\n  and {other}")
        greatest = max(greatest, gap)
    return greatest


def _gap(expected: npt.NDArray[Any], actual: npt.NDArray[Any]) -> float:
    """Returns the largest difference, relative for numbers above 1; infinity for other shapes.

    Values that are not floating-point, and non-finite values, must be equal.
    """
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return np.inf
    is_number = np.isfinite(expected) & np.isfinite(actual) & (expected.dtype.kind == "f")
    if not np.array_equal(expected[~is_number], actual[~is_number], equal_nan=True):
        return np.inf
    one, other = expected[is_number].astype(np.float64), actual[is_number].astype(np.float64)
    return float((np.abs(one - other) / np.maximum(1.0, np.abs(one))).max(initial=0.0))


def _shown(array: npt.NDArray[Any]) -> str:
    some = ", ".join(f"{number:.6g}" for number in array.reshape(-1)[:_SHOWN].tolist())
    return f"[{some}{', ...' if array.size > _SHOWN else ''}] {array.dtype} {list(array.shape)}"


_EXAMPLE_NUMBERS = 200_000  # maximum total of all examples; a few megabytes of JSON


class TrialExporter(Exporter):
    """Exports the model of a trial as an ONNX graph."""

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        device = torch.device("cpu")
        task, predictor = open_run(settings.run_dir, device, settings.chosen_checkpoint)
        self._model = model = predictor.model
        check_size(model, _ELSEWHERE)
        self.origin = ModelOrigin(task.name, type(model).__name__, *predictor.chosen)
        self._batches = list(validation_inputs(task, model, device, rows=settings.verify_rows))
        self._code = task.definition

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`."""
        model, batches = self._model, self._batches
        with torch.no_grad():
            outputs = [forward(model, inputs) for inputs in batches]
        self._convention = convention = infer_convention(model, batches, outputs)
        onnx.save(graph_of(model, convention, batches, self._code), folder / MODEL)
        copy_regular(self.settings.run_dir / NAME, folder / NAME)
        return self.signature(
            fields=convention.fields,
            targets=convention.targets,
            opset=OPSETS[""],
            nesting={"inputs": convention.inputs, "outputs": convention.outputs},
        )

    def verify(self, folder: Path) -> VerifiedTrial:
        """Compares the outputs of model and artifact for whole batches and for single rows.

        Raises:
          ExportError: the outputs differ, or the model's output for a row depends on the rest of
            its batch; names the first such row.
        """
        convention, artifact = self._convention, TensorArtifact(folder)
        greatest, rows, largest = 0.0, 0, 0
        stored: list[dict[str, Any]] = []
        space = _EXAMPLE_NUMBERS

        def of_artifact(inputs: Any) -> _Arrays:
            return dict(taken_apart(convention.outputs, artifact.batch(as_arrays(inputs))))

        def of_model(inputs: Any) -> _Arrays:
            with torch.no_grad():
                outputs = forward(self._model, copied(inputs))
            return dict(taken_apart(convention.outputs, as_arrays(outputs)))

        for inputs in self._batches:
            count = rows_of(inputs)
            expected, actual = of_model(inputs), of_artifact(inputs)
            for row in range(count):
                name = f"row {rows + row} of the validation loader"
                one = sliced(inputs, slice(row, row + 1))
                in_batch, alone = _row(expected, row), _row(of_model(one), 0)
                answer = _row(of_artifact(one), 0)
                gap = _compare(in_batch, _row(actual, row), name, _DIFFERS.format("in its batch"))
                _compare(in_batch, alone, f"{name}, in its batch of {count} and alone", _DEPENDS)
                gap = max(gap, _compare(alone, answer, name, _DIFFERS.format("alone")))
                greatest = max(greatest, gap)
                given = _row(dict(taken_apart(convention.inputs, as_arrays(one))), 0)
                size = sum(array.size for array in (*given.values(), *answer.values()))
                if not stored or (size <= space and len(stored) < _MOST_EXAMPLES):
                    space -= size
                    pair = {"input": _plain(convention.inputs, given)}
                    stored.append(pair | {"answer": _plain(convention.outputs, answer)})
            rows, largest = rows + count, max(largest, count)
        return VerifiedTrial(rows, len(self._batches), largest, greatest, stored)


class TrialWeightsExporter(WeightsExporter):
    """Exports the weights of a trial's run with a copy of its code."""

    code_note = ", with the trial's code, of which `code/` is a copy"
    settings_note = f"`{NAME}` has the configuration and the hyperparameters."

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        Exporter.__init__(self, settings, scratch)  # the run is no run of a problem
        predictor = load_trial(settings.run_dir, settings.chosen_checkpoint, device="cpu")
        self.model = predictor.model
        self.origin = ModelOrigin(predictor.name, type(self.model).__name__, *predictor.chosen)

    def copy_settings(self, folder: Path) -> None:
        """See `WeightsExporter.copy_settings`."""
        for file in ("task.json", NAME):
            copy_regular(self.settings.run_dir / file, folder / file)
        copy_code(self.settings.run_dir, folder)

    def load(self, folder: Path) -> nn.Module:
        """See `WeightsExporter.load`."""
        return load_trial(folder, device="cpu").model
