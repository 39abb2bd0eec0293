"""Export of a model's network as a torch.export program, with the files needed to run it.

An `nn.LSTM` is one operator of the program, for any length: loading it requires only torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import Loaded, registered
from t2t_torch.decode.predictor import RunInfo
from t2t_torch.distributed.precision import in_float32
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import ArtifactError, ExportError
from t2t_torch.export.exporter import RunExporter
from t2t_torch.export.folder import copy_explanations, write_task
from t2t_torch.export.network import axes_of, check_varies, frozen, predict_targets, quiet, tracing
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.targets import example_of
from t2t_torch.export.verification import LabelComparison, Verified, rows_of, verify_rows
from t2t_torch.features import Features
from t2t_torch.features.feature import select_generated
from t2t_torch.files import check_regular
from t2t_torch.hparam import HParams
from t2t_torch.modality import BatchPrediction
from t2t_torch.model import T2TModel
from t2t_torch.run.directory import RunDirectory
from t2t_torch.runtime.signature import TORCH, Signature

_LSTM = torch.ops.aten.lstm.input


@contextlib.contextmanager
def _lstms_of_any_length() -> Iterator[None]:
    """Makes a trace read only the shapes of an `nn.LSTM`'s outputs.

    torch's own decomposition unrolls it, which fixes the length to that of the example.
    """

    def shapes(x: Tensor, before: Sequence[Tensor], *others: Any) -> tuple[Tensor, ...]:
        start, cell = before
        return x.new_empty(x.size(0), x.size(1), start.size(2)), start.clone(), cell.clone()

    own = {torch._C.DispatchKey.CompositeImplicitAutograd: shapes}
    chosen = mock.patch.dict(_LSTM._dispatch_cache, clear=True)  # the function of an earlier trace
    with mock.patch.dict(_LSTM.py_kernels, own), chosen:
        yield


class _OfBatch(nn.Module):
    """The predictions of a model for a batch.

    Args:
      model: the model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the outputs of `predict_targets`."""
        return predict_targets(self.model, batch)


_OTHERWISE = "Export the weights alone: --format=safetensors"


def program_of(
    model: T2TModel | Ensemble, example: Mapping[str, Tensor]
) -> torch.export.ExportedProgram:
    """Returns a model's network for batches of any size and lengths, in float32.

    It is called with a batch, features by name, and returns the outputs of
    `network.export_network`.

    Args:
      model: model that predicts labels, numbers, spans or tags; it is not modified.
      example: a batch of the input pipeline without targets, on the CPU, with at least two rows of
        several words.

    Raises:
      ExportError: the model has operations that depend on the batch.
    """
    network = _OfBatch(frozen(model)).eval()
    varying = {
        name: dict.fromkeys(axes, torch.export.Dim.AUTO)
        for name, axes in axes_of(model.features, example).items()
    }
    what = f"{type(model).__name__} cannot be a program of torch.export"
    with tracing(what, _OTHERWISE), _lstms_of_any_length():
        program = torch.export.export(
            network, (dict(example),), dynamic_shapes=(varying,), strict=False
        )
    check_varies(program, what, varying, _OTHERWISE)
    # Removes the minimum length of the trace, for which torch has no public function.  The
    # verification includes rows with one word and without words.
    ranges = program._range_constraints
    program._range_constraints = dict.fromkeys(ranges, ValueRanges(1, int_oo))
    program._guards_code = []
    return program


_ENTRY = re.compile(
    r"models/\w+\.json|data/(?:weights|constants)/\w+(?:_config\.json)?|data/sample_inputs/\w+\.pt"
    r"|archive_format|archive_version|byteorder|\.data/\w+|version"
)
_OPERATOR = re.compile(
    r"torch\.ops\.(?!higher_order\.|prim|aten\.(?:save|from_file)\.)\w+\.\w+\.\w+"
    r"|torch\.ops\.higher_order\.(?:scan|cond|while_loop|map_impl|associative_scan"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(?!call$|attrgetter$|methodcaller$)\w+|math\.\w+|torch\._?sym_\w+"
)
_SIZE_PARTS = (
    r"Symbol\('[a-z]+\d+'(?:, [a-z_]+=(?:True|False))*\)|[su]\d|\d|Integer|Rational|Add|Mul"
    r"|Pow|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|IntTrueDiv|Eq|Ne|(?:int_)?oo"
    r"|[-+*/%(), <>=&|~]"
)
_SIZE = re.compile(f"(?:{_SIZE_PARTS})*")
_GUARD = re.compile(
    rf"(?:{_SIZE_PARTS}|L(?:\['[\w.]+'\])+|\.(?:size|stride|storage_offset)\(\)|\[\d+\]|!="
    r"|\b(?:and|or|not)\b)*"
)
_TREE = re.compile(
    r'(?:"(?:type|context|children_spec)": |"builtins\.(?:tuple|list|dict)"|"collections\.'
    r'OrderedDict"|"null"|null|"\[(?:(?:, )?\\"[\w. -]*\\")*\]"|[\[\]{}, 1])*'
)
_ANY = re.compile(r"(?s:.*)")
_NAME = re.compile(r"[\w.]*")
_BY_KEY = {
    "target": _OPERATOR,
    "as_operator": _OPERATOR,
    "expr_str": _SIZE,
    "guards_code": _GUARD,
    "in_spec": _TREE,
    "out_spec": _TREE,
    **dict.fromkeys(("as_float", "as_floats"), re.compile("-?Infinity|NaN")),
    **dict.fromkeys(
        "stack_trace nn_module_stack torch_fn source_fn_stack from_node torch_version "
        "as_string as_strings".split(),
        _ANY,  # not evaluated by torch
    ),
}
"""Patterns of strings by key of the graph's JSON; other strings, and keys, must be names."""


def check_program(path: Path) -> None:
    """Checks that a program contains only the parts that `torch.export.save` writes of a network.

    `torch.export.load` and its program's `module()` can execute code from the archive: they
    unpickle example inputs, and weights and constants marked `use_pickle`, load compiled libraries,
    read an older pickled format, evaluate sizes and guards as Python, and write names into the
    source of a function.

    Raises:
      ArtifactError: the file would execute code, or is damaged.
    """
    try:
        with zipfile.ZipFile(check_regular(path)) as archive:
            why = _executed(archive)
    except (
        OSError,
        ValueError,
        KeyError,
        NotImplementedError,  # unknown compression
        RecursionError,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        raise ArtifactError(f"{path} is damaged, or has a pickle in it: {error}") from error
    if why:
        raise ArtifactError(
            f"{path} is refused: {why}, so loading it might execute code of its author. "
            "t2t-exporter --format=torch writes no such file: export the run again."
        )


def _executed(archive: zipfile.ZipFile) -> str:
    """Returns the part that could be executed; "" if none."""
    names = archive.namelist()
    if len({name.lower() for name in names}) < len(names):
        return "two of its entries have one name"
    inner = {name: name.partition("/")[2] for name in names}
    if (
        len({name.partition("/")[0] for name in names}) != 1
        or "archive_format" not in inner.values()
    ):
        return "it is not an archive of torch.export"
    for name, within in inner.items():
        if within.startswith("data/aotinductor/") or within.endswith((".so", ".dll", ".dylib")):
            return f"{within} is compiled code"
        if not _ENTRY.fullmatch(within):
            return f"{within} is no part of a network"
        if within.startswith("data/sample_inputs/"):
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        if within.endswith(".json"):
            content = json.loads(archive.read(name))
            if why := _odd(content, graph=within.startswith("models/")):
                return f"{within} {why}"
    return ""


def _odd(content: Any, *, graph: bool) -> str:
    """Returns the first unexpected value in the JSON of a graph or its weights; "" if none."""
    if graph and not (isinstance(content, dict) and content.get("verifiers")):
        return "says that torch need not verify it"
    for key, value in _pairs(content):
        if key == "use_pickle" and value:
            return "says use_pickle"
        if not _NAME.fullmatch(key):
            return f"has the key {key[:80]!r}"
        if isinstance(value, str) and not _BY_KEY.get(key, _NAME).fullmatch(value):
            return f"has the {key} {value[:80]!r}"
    return ""


def _pairs(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields all (key, value) pairs of objects in JSON, one per element of a list."""
    yield key, value
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _pairs(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _pairs(one, key)


PROGRAM = "model.pt2"
TENSORS = "tensors.json"

_READ_ME = """# {signature.model} of {signature.problem}

`t2t-exporter --format=torch` wrote this folder, of {signature.checkpoint}. `model.pt2` is the
network, a program of torch.export; torch alone runs it:

```python
import json
import torch

about = json.load(open("tensors.json"))
network = torch.export.load("model.pt2").module()
batch = {{
    name: torch.zeros(
        [2 if isinstance(size, str) else size for size in its["shape"]],
        dtype=getattr(torch, its["dtype"]),
    )
    for name, its in about["inputs"].items()
}}
print({{name: value.tolist() for name, value in network(batch).items()}})
```

feeds it two rows of padding. `tensors.json` names what goes in and what comes out: of each target t
`t.numbers`, the prediction, and, where there are some, `t.probability`, `t.scores` and `t.mask`,
where words are; numbers of labels count from 0. Texts become numbers by t2t_torch:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```
"""


class TorchExporter(RunExporter):
    """Exports the network as a torch.export program, in a folder that is loadable like a run."""

    form = TORCH
    packages = ("t2t_torch", "torch")
    exports_ensembles = True

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        loaded = self.loaded
        check_exportable(loaded)
        model = in_float32(loaded.model)
        self._predictor = LabelPredictor(model, loaded.problem, loaded.features, loaded.info)

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`."""
        predictor, settings = self._predictor, self.settings
        self._rows = rows_of(predictor, settings.data_folder, settings.verify_rows)
        example = example_of(predictor, self._rows)
        program = program_of(predictor.model, example)
        with quiet():
            torch.export.save(program, folder / PROGRAM)
        tensors = json.dumps(_tensors(predictor.features, example), ensure_ascii=False, indent=2)
        (folder / TENSORS).write_text(tensors + "\n", "utf-8")
        copy_explanations(settings.runs, self.loaded, folder)
        write_task(self.settings.run_dir, self.loaded, folder)
        return self.signature()

    def readme(self, signature: Signature) -> str:
        """See `Exporter.readme`."""
        return _READ_ME.format(signature=signature, folder=self.settings.folder.name)

    def verify(self, folder: Path) -> Verified:
        """See `Exporter.verify`."""
        return verify_rows(LabelComparison(self._predictor), load_package(folder), self._rows)


def check_exportable(loaded: Loaded) -> None:
    """Raises ExportError if a model generates texts: its search cannot be a program."""
    written = list(select_generated(loaded.features.targets))
    if written:
        raise ExportError(
            f"the model {loaded.info.task.model!r} writes {written[0]!r}, one token after another "
            "with a memory that grows: no program of torch.export holds that. Export the weights "
            "alone, --format=safetensors, or a graph with the search in it, --format=onnx."
        )


def load_package(folder: str | Path) -> LabelPredictor:
    """Loads a package written by `TorchExporter`, for the CPU, on which it was traced.

    Texts are encoded by the problem; the network is the program, so no model is built.

    Args:
      folder: folder of the package.

    Raises:
      ArtifactError: the folder is not a package, or is damaged.
    """
    folder = Path(folder)
    signature = Signature.read(folder)
    if signature.form != TORCH:
        raise ArtifactError(f"'{folder}' was exported as {signature.form}, not as {TORCH}.")
    signature.check_files(folder)
    run = RunDirectory(folder)
    task = run.task()
    problem, model_class = registered(run, task)
    features = problem.features(folder)
    check_program(folder / PROGRAM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(folder / PROGRAM).module()
    except Exception as error:  # torch's errors have no common base class
        version = signature.made_with.get("torch", "?")
        raise ArtifactError(
            f"torch {torch.__version__} cannot read {folder / PROGRAM}: {error}  It was made with "
            f"torch {version}; install that one."
        ) from error
    model: Any = _Packaged(program, run.hparams(model_class.HParams), features)
    return LabelPredictor(in_float32(model), problem, features, RunInfo(task, signature.step))


class _Packaged(nn.Module):
    """A program with the interface of a model that `LabelPredictor` uses.

    Args:
      program: module of the program.
      hparams: hyperparameters of the model.
      features: features of the model.
    """

    def __init__(self, program: nn.Module, hparams: HParams, features: Features) -> None:
        super().__init__()
        self.program = program
        self.hparams = hparams
        self._targets = tuple(features.targets)
        self.modalities = dict.fromkeys(self._targets, _LogitsModality())

    def train(self, mode: bool = True) -> _Packaged:
        """Does nothing: a program cannot be trained."""
        return self

    def logits(self, batch: dict[str, Tensor]) -> dict[str, BatchPrediction]:
        """Returns the predictions for each target."""
        outputs: Mapping[str, Tensor] = self.program(batch)
        return {
            name: BatchPrediction(
                outputs[f"{name}.numbers"],
                outputs.get(f"{name}.probability"),
                outputs.get(f"{name}.scores"),
            )
            for name in self._targets
        }


class _LogitsModality:
    """Replacement of a modality: the program already returns predictions."""

    def predict(self, logits: BatchPrediction) -> BatchPrediction:
        """Returns `logits` unchanged."""
        return logits


def _tensors(features: Features, example: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns a description of the program's inputs and outputs, for users with only torch."""
    axes = axes_of(features, example)
    names = ("rows", "places")
    inputs = {}
    for name, value in example.items():
        shape = [names[axis] if axis in axes[name] else n for axis, n in enumerate(value.shape)]
        feature = features.all[name]
        inputs[name] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": shape,
            "of": features.sources[name],
            "kind": type(feature).__name__,
        }
    targets = {
        name: {"kind": type(feature).__name__, "labels": list(feature.labels)}
        for name, feature in features.targets.items()
    }
    return {"inputs": inputs, "targets": targets}
