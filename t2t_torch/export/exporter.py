"""Export of a model: one procedure for all formats, the ONNX graph and the weights.

Every format subclasses `Exporter`, which loads the model, writes it to a temporary folder, verifies
the folder against the model, and publishes it only then.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import onnx
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from t2t_torch import __version__ as own_version
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded, load_run
from t2t_torch.errors import ExportError, UsageError
from t2t_torch.export import decode_graph, has_graph
from t2t_torch.export.answers import span_targets
from t2t_torch.export.folder import (
    check,
    check_problem,
    copy_explanations,
    joined,
    load_members,
    remove_leftovers,
    run_of,
    staged_folder,
    write_examples,
    write_signature,
    write_task,
)
from t2t_torch.export.graph import OPSETS
from t2t_torch.export.model_card import model_card
from t2t_torch.export.quantization import check_faster, check_quality
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.targets import (
    CtcExportTarget,
    LabelExportTarget,
    TextExportTarget,
    check_writes,
)
from t2t_torch.export.verification import Verified
from t2t_torch.features.feature import select_generated
from t2t_torch.files import check_regular
from t2t_torch.model import T2TModel
from t2t_torch.run.checkpoint import MODEL as CHECKPOINT_MODEL
from t2t_torch.run.tensors import model_tensors
from t2t_torch.runtime.session import Artifact
from t2t_torch.runtime.signature import CTRANSLATE2, EXAMPLES, MODEL, ONNX, SAFETENSORS, Signature

_LARGEST = 1_900_000_000  # maximum bytes of weights: an ONNX file has at most 2 GiB


class VerificationReport(Protocol):
    """Result of the verification of an export."""

    def lines(self, signature: Signature) -> list[str]:
        """Returns the lines that the command prints."""

    def examples(self) -> list[dict[str, Any]]:
        """Returns the inputs and predictions that are stored with the artifact, if any."""
        return []


@dataclasses.dataclass(frozen=True)
class Exported:
    """Result of an export.

    Attributes:
      folder: the artifact.
      signature: its signature.
      verified: the comparison with the model.
      seconds: duration of the export.
    """

    folder: Path
    signature: Signature
    verified: VerificationReport
    seconds: float

    def __str__(self) -> str:
        """Returns the output of the command."""
        signature = self.signature
        name = f"{signature.model} of {signature.problem}, {signature.checkpoint}"
        engine = ", for CTranslate2" if signature.form == CTRANSLATE2 else ""
        size = sum(written.bytes for written in signature.files.values()) / 2**20
        file, written = max(signature.files.items(), key=lambda one: one[1].bytes)
        largest = f"of these {file} {written.bytes / 2**20:.1f}"
        lines = [f"{self.folder}: {name}{engine}"]
        lines += [f"  member    {member}" for member in signature.members]
        lines.append(f"  size      {size:.1f} MiB, {largest}")
        lines += self.verified.lines(signature)
        if signature.needs_extensions:
            lines.append("  needs     onnxruntime and onnxruntime-extensions")
        return "\n".join([*lines, f"  took      {self.seconds:.0f} seconds"])


class ModelOrigin(NamedTuple):
    """Origin of the exported model, as its signature has it.

    Attributes:
      problem: full name of the problem or trial.
      model: name of the model.
      step: step of the checkpoint.
      checkpoint: how the checkpoint was chosen, such as "step 500".
      members: the models of an ensemble; see `Signature.members`.
      column_names, column_forms: see `Problem`.
    """

    problem: str
    model: str
    step: int
    checkpoint: str
    members: tuple[str, ...] = ()
    column_names: Mapping[str, str] = {}
    column_forms: Mapping[str, Mapping[str, Any]] = {}


class Exporter(ABC):
    """One format of export.  Subclasses define its parts; `export` runs them in order.

    Args:
      settings: the settings of the export.
      scratch: a temporary folder.

    Attributes:
      form: name of the format.
      packages: packages whose versions are recorded.
      quantizations: what `--quantize` may be, besides "".
      exports_ensembles: True if several runs can be exported as one model.
      searches: True if `--decode_hparams` is read.
      reads_data: True if the artifact is verified on the data of the run.
      needs_data: True if it cannot be verified on synthetic inputs.
      origin: the model that is exported.
    """

    form: ClassVar[str] = ONNX
    packages: ClassVar[tuple[str, ...]] = ("t2t_torch", "torch", "onnx", "onnxruntime")
    quantizations: ClassVar[tuple[str, ...]] = ()
    exports_ensembles: ClassVar[bool] = False
    searches: ClassVar[bool] = False
    reads_data: ClassVar[bool] = True
    needs_data: ClassVar[bool] = False
    origin: ModelOrigin

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        self.settings = settings

    @classmethod
    def check(cls, settings: ExportSettings) -> None:
        """Checks settings before anything is loaded.

        Raises:
          UsageError: the format does not read a given setting, or needs a missing one; a setting
            has an invalid value; or the folder cannot be written.
        """
        form, given = f"--format={settings.format}", settings.given
        is_read = {
            "decode_hparams": cls.searches,
            "data_dir": cls.reads_data,
            "verify_rows": cls.reads_data,
        }
        if unread := [f"--{name}" for name, read in is_read.items() if name in given and not read]:
            raise UsageError(f"{', '.join(unread)}: {form} does not read this. Leave it out.")
        if settings.quantize not in ("", *cls.quantizations):
            known = f"has {', '.join(cls.quantizations)}" if cls.quantizations else "has none"
            raise UsageError(f"--quantize={settings.quantize}: {form} {known}; or leave it out.")
        if settings.runs[1:] and not cls.exports_ensembles:
            raise UsageError(
                f"--output_dir={settings.output_dir}: {form} holds one model. Export each run; "
                "t2t_torch.load([one, other]) answers with several as one."
            )
        if settings.data_dir is None and (settings.quantize or cls.needs_data):
            quantized = f" --quantize={settings.quantize}" if settings.quantize else ""
            raise UsageError(
                f"{form}{quantized} is judged on the dev split: give --data_dir, or generate the "
                "data again with t2t-datagen."
            )
        check(settings)

    @abstractmethod
    def write(self, folder: Path) -> Signature:
        """Writes the model and its metadata to an empty folder; returns its signature.

        Raises:
          DataError: there is no dev split.
          ExportError: the model cannot be exported in this format.
        """

    def readme(self, signature: Signature) -> str:
        """Returns the heading of the model card and how the model is called; "": as ONNX."""
        return ""

    @abstractmethod
    def verify(self, folder: Path) -> VerificationReport:
        """Compares the outputs of the written files with those of the model.

        Raises:
          ExportError: the outputs differ.
        """

    def quantize(self, folder: Path) -> None:
        """Replaces the weights in a folder with quantized ones."""
        raise NotImplementedError

    def compare(self, plain: Path, quantized: Path, verified: Any) -> VerificationReport:
        """Compares quality and speed of a quantized artifact with those of the plain one.

        Args:
          plain: the artifact before quantization.
          quantized: the quantized artifact.
          verified: the report of `verify`.

        Raises:
          ExportError: the quantized artifact loses too much quality, or is not faster.
        """
        raise NotImplementedError

    def signature(self, **parts: Any) -> Signature:
        """Returns the signature without the files; `parts` are fields specific to the format."""
        names = list(self.packages)
        if parts.get("needs_extensions"):
            names.append("onnxruntime_extensions")
        return Signature(
            **self.origin._asdict(),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            made_with={
                name: own_version if name == "t2t_torch" else importlib.metadata.version(name)
                for name in names
            },
            form=self.form,
            **parts,
        )

    @classmethod
    def export(cls, settings: ExportSettings) -> Exported:
        """Writes an artifact, verified against the model; writes nothing on failure.

        Args:
          settings: the settings.

        Raises:
          CheckpointError: there is no such run or checkpoint, or it is damaged.
          DataError: there is no dev split.
          ExportError: the model cannot be exported, or the artifact differs from it.
          TrialError: the code or the data of a trial are missing or broken.
          UsageError: a setting is invalid.
        """
        start = time.perf_counter()
        remove_leftovers(settings.folder)
        cls.check(settings)
        with staged_folder(settings.folder, overwrite=settings.overwrite) as scratch:
            folder = scratch / "whole"
            exporter = cls(settings, scratch)
            check_problem(settings, exporter.origin.problem)
            signature = exporter.write(folder)
            use, run = exporter.readme(signature), run_of(settings.run_dir)
            loaded = getattr(exporter, "loaded", None)
            card = model_card(signature, run, use, loaded)
            (folder / "README.md").write_text(card, "utf-8")
            signature = write_signature(signature, folder)
            verified = exporter.verify(folder)
            if settings.quantize:
                plain = Path(shutil.copytree(folder, scratch / "plain"))
                exporter.quantize(folder)
                signature = dataclasses.replace(signature, quantized=settings.quantize)
                signature = write_signature(signature, folder)
                verified = exporter.compare(plain, folder, verified)
            if examples := verified.examples():
                write_examples(examples, folder / EXAMPLES)
                signature = write_signature(signature, folder)
        return Exported(settings.folder, signature, verified, time.perf_counter() - start)


def check_size(model: nn.Module, otherwise: str) -> None:
    """Raises ExportError if the weights of a model do not fit into an ONNX file.

    Args:
      model: model in any floating-point type; narrower types are stored as float32.
      otherwise: end of the message: what to do instead.
    """
    weights = {id(one): one for one in model.parameters()}.values()
    size = sum(one.numel() * max(4, one.element_size()) for one in weights)
    if size > _LARGEST:
        raise ExportError(
            f"the model has weights of {size:,} bytes, and a file of ONNX holds 2 GiB at most. "
            f"{otherwise}"
        )


class RunExporter(Exporter):
    """Exports the model of a run, or the mean of the models of several.

    Attributes:
      loaded: the model.
    """

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        averaged = scratch / "run"
        averaged.mkdir()
        members = load_members(settings, averaged)
        self.loaded, chosen = joined(members)
        names = dict.fromkeys(member.loaded.info.task.model for member in members)
        self.origin = ModelOrigin(
            self.loaded.problem.full_name,
            " and ".join(names),
            self.loaded.info.step,
            chosen,
            tuple(map(str, members)) if len(members) > 1 else (),
            dict(self.loaded.problem.column_names),
            dict(self.loaded.problem.column_forms),
        )


class OnnxExporter(RunExporter):
    """Exports one ONNX graph from the fields of an input to predictions."""

    quantizations = ("int8",)
    exports_ensembles = True
    searches = True

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        model = self.loaded.model
        if isinstance(model, T2TModel) and (part := model.for_graph()) is not model:
            self.loaded = self.loaded._replace(model=part)
            checkpoint = f"{self.origin.checkpoint}, its output without the decoder"
            self.origin = self.origin._replace(checkpoint=checkpoint)
        self._target = target_of(self.loaded, settings.decoding)

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`."""
        target, settings = self._target, self.settings
        self._rows = target.rows(settings.data_folder, settings.verify_rows)
        self._network = target.network(self._rows)
        graph = target.graph(self._network)
        onnx.save(graph.model(), folder / MODEL)
        copy_explanations(settings.runs, self.loaded, folder)
        parts = {**target.signature_parts(), "needs_extensions": graph.needs_extensions}
        return self.signature(opset=OPSETS[""], **parts)

    def verify(self, folder: Path) -> Verified:
        """See `Exporter.verify`."""
        return self._target.verify(Artifact(folder), self._rows)

    def quantize(self, folder: Path) -> None:
        """See `Exporter.quantize`."""
        network = self._target.quantized(self._network)
        onnx.save(self._target.graph(network).model(), folder / MODEL)

    def compare(self, plain: Path, quantized: Path, verified: Verified) -> Verified:
        """See `Exporter.compare`."""
        rows, places = verified.rows, list(verified.answers)
        data_dir = self.settings.data_folder
        assert data_dir is not None  # as `folder.check` requires
        before, after = (Artifact(folder, threads=1) for folder in (plain, quantized))
        answers = dict(zip(places, after.predict([rows[p].sample for p in places]), strict=True))
        known = [place for place in places if rows[place].number >= 0]
        first, second = (
            self._target.metrics(
                data_dir, {rows[place].number: predictions[place] for place in known}
            )
            for predictions in (verified.answers, answers)
        )
        check_quality(first, second)
        times = check_faster(before, after, [rows[place].sample for place in known])
        metrics = {name: (first[name], second[name]) for name in first}
        return verified._replace(answers=answers, metrics=metrics, times=times)


def target_of(loaded: Loaded, hparams: DecodeHParams) -> LabelExportTarget | TextExportTarget:
    """Returns the export target: a model that predicts labels, or one that generates texts.

    Args:
      loaded: the model.
      hparams: how texts are decoded.

    Raises:
      ExportError: the model cannot be exported; contains the reason.
      HParamsError: `hparams` has options that a graph does not support.
    """
    check_exportable(loaded)
    if not loaded.model.searches:
        return CtcExportTarget(loaded, hparams)
    if select_generated(loaded.features.targets):
        return TextExportTarget(loaded, hparams)
    hparams.check_read((), "a graph that gives labels or numbers searches for nothing and")
    return LabelExportTarget(loaded)


def check_exportable(loaded: Loaded) -> None:
    """Raises ExportError with the reason if a model cannot be exported."""
    targets = loaded.features.targets
    if loaded.problem.corruption:
        raise ExportError(
            f"a model of {loaded.problem.full_name!r} restores corrupted texts, which serves to "
            "begin other models:  t2t-trainer --problem=OTHER --warm_start_from=RUN. Export those."
        )
    if select_generated(targets):
        if loaded.model.searches:
            check_writes(loaded)
    else:
        spans = span_targets(loaded.features)
        for name, feature in targets.items():
            if name not in spans and not has_graph(decode_graph, feature):
                kind = type(feature).__name__
                raise ExportError(
                    f"the target {name!r} of {loaded.problem.full_name!r} is a {kind}, for which a "
                    "graph has no answer. This model answers with  t2t-decoder"
                )
    check_size(
        loaded.model, "Train a smaller one; the vocabulary's vectors are often the largest part."
    )


_READ_ME = """# {signature.model} of {signature.problem}

`t2t-exporter --format=safetensors` wrote this folder, of {signature.checkpoint}: {tensors} tensors
with {numbers:,} numbers. t2t_torch loads it as it loads a run{code}:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```

and any program has the weights:

```python
from safetensors.torch import load_file

weights = load_file("model.safetensors")
```

{settings}
"""


class WeightsReport(VerificationReport):
    """Report of an export of weights; they are compared bit by bit."""

    def lines(self, signature: Signature) -> list[str]:
        """See `VerificationReport.lines`."""
        return ["  verified  what is loaded from there: the same weights to the bit"]


class WeightsExporter(RunExporter):
    """Exports the weights as safetensors, in a folder that is loadable like a run.

    Attributes:
      file: name of the file of weights.
      code_note: mention of the code in the README.
      settings_note: sentence about the settings in the README.
      model: the model.
    """

    file: ClassVar[str] = CHECKPOINT_MODEL
    code_note: ClassVar[str] = ""
    settings_note: ClassVar[str] = (
        "`hparams.json` says what they are the weights of, `task.json` which model and problem."
    )
    form = SAFETENSORS
    packages = ("t2t_torch", "torch")
    reads_data = False

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        self.model: nn.Module = self.loaded.model

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`; reads no data."""
        self._tensors = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in model_tensors(self.model).items()
        }
        save_file(self._tensors, folder / CHECKPOINT_MODEL, metadata={"format": "pt"})
        self.copy_settings(folder)
        return self.signature()

    def copy_settings(self, folder: Path) -> None:
        """Copies what is needed to load the weights: hyperparameters, vocabularies, code."""
        copy_explanations(self.settings.runs, self.loaded, folder)
        write_task(self.settings.run_dir, self.loaded, folder)

    def load(self, folder: Path) -> nn.Module:
        """Returns the model that is loaded from the folder."""
        return load_run(folder).model  # type: ignore[no-any-return]

    def readme(self, signature: Signature) -> str:
        """See `Exporter.readme`."""
        return _READ_ME.format(
            signature=signature,
            folder=self.settings.folder.name,
            tensors=len(self._tensors),
            numbers=sum(tensor.numel() for tensor in self._tensors.values()),
            code=self.code_note,
            settings=self.settings_note,
        )

    def verify(self, folder: Path) -> WeightsReport:
        """See `Exporter.verify`."""
        check_same(self._tensors, load_file(check_regular(folder / self.file)), "the file")
        read = self.load(folder).state_dict()
        check_same(self.model.state_dict(), read, "a model that is loaded from it")
        return WeightsReport()


def check_same(written: Mapping[str, Tensor], read: Mapping[str, Tensor], where: str) -> None:
    """Raises ExportError if tensors differ in a bit."""
    differ = [
        name
        for name in sorted({*written, *read})
        if name not in written or name not in read or not _is_same(written[name], read[name])
    ]
    if differ:
        raise ExportError(
            f"{where} has other weights than the run: {', '.join(differ[:5])}. Nothing was "
            "written. This is a fault of the export: please report it with the run."
        )


def _is_same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [tensor.cpu().contiguous().flatten().view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*bits)
