"""A run as an object; runs and artifacts loaded from their folders; runs exported.

Importing this module imports no torch or numpy.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch import errors, files, trust
from t2t_torch.export.settings import ExportSettings
from t2t_torch.remote import is_url, resolve
from t2t_torch.reporter import Reporter, output, phase
from t2t_torch.settings import require
from t2t_torch.workflows.context import called
from t2t_torch.workflows.run_kind import RunKind, RunPaths, TrainedModel, check_read, kind_of

if TYPE_CHECKING:
    import torch

    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.problem import Problem
    from t2t_torch.run.checkpoint import Checkpoint
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.runtime.session import Artifact, TensorArtifact
    from t2t_torch.workflows.predict import PredictSettings


class Run:
    """A run of `t2t-trainer`: what it trains, its history, its checkpoints.

        run = t2t.Run("run")
        pandas.DataFrame(run.history("dev"))
        run.predictor("best")(["A dog runs."])
        run.evaluate(eval_use_test_set=True)
        run.predict_file("new.csv")
        run.export("artifact", quantize="int8")

    Nothing is read before it is asked for; a run in an object store is copied first.

    Attributes:
      path: the run directory.

    Args:
      path: the run directory.
      trust_code: True to allow Python code that comes with the run; see `trust.trusting`.
    """

    def __init__(self, path: str | Path, *, trust_code: bool = False) -> None:
        self.path = resolve(path)
        self._trust_code = trust_code

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def directory(self) -> RunDirectory:
        """The files of the run."""
        from t2t_torch.run.directory import RunDirectory

        return RunDirectory(self.path)

    @property
    def record(self) -> TaskRecord:
        """The content of `task.json`: the names of the problem, the model and the set.

        Raises:
          CheckpointError: the directory is no run, or the file is damaged.
        """
        return self.directory.task()

    @functools.cached_property
    def kind(self) -> RunKind:
        """The kind of the run; see `run_kinds/`."""
        self.record  # noqa: B018  reports damage
        with trust.trusting(self._trust_code):
            return kind_of(self.path)

    @property
    def hparams(self) -> Any:
        """The `HParams` of the run; of a trial, its hyperparameters by name."""
        with trust.trusting(self._trust_code):
            return self.kind.hparams(self.directory)

    @property
    def problem(self) -> Problem | None:
        """The problem, also from the run's copy of its code; None for a trial."""
        with trust.trusting(self._trust_code):
            return self.kind.problem(self.directory)

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints, oldest first, with their `step` and `path`."""
        from t2t_torch.run.checkpoint_directory import CheckpointDirectory

        self.record  # noqa: B018  reports a folder that is no run
        return CheckpointDirectory(self.path).list()

    def history(self, split: str = "") -> dict[str, list[Any]]:
        """Returns the reports of the run as columns of equal length, for a data frame.

        Args:
          split: "train", statistics of training; "dev" or "test", evaluations; "": all.

        Returns:
          "step", "split" and "time" (seconds since 1970), and each reported number by name; None
          where a report does not have it.
        """
        from t2t_torch.run.metrics_file import MetricsFile

        self.record  # noqa: B018  reports a folder that is no run
        reports = [one for one in MetricsFile(self.path).read() if split in ("", one["split"])]
        names = dict.fromkeys(name for report in reports for name in report)
        return {name: [report.get(name) for report in reports] for name in names}

    def predictor(
        self,
        checkpoint: int | str | Path | None = None,
        *,
        problem: str | None = None,
        hparams: DecodeHParams | None = None,
        device: str | torch.device | None = None,
    ) -> Predictor | LabelPredictor | TrainedModel:
        """Returns the trained model, ready to call; see `load`."""
        return load(
            self.path,
            checkpoint,
            problem=problem,
            hparams=hparams,
            device=device,
            trust_code=self._trust_code,
        )

    def evaluate(self, **settings: Any) -> dict[str, float]:
        """Evaluates the run, as `t2t-eval`.

        Args:
          **settings: any flag of `t2t-eval`, for example `eval_use_test_set=True`.

        Returns:
          Metrics by name; NaN for an undefined one.

        Raises:
          T2TError: as `t2t-eval`.
        """
        from t2t_torch.workflows.evaluate import metrics_of

        return metrics_of({**self._given, **settings})

    def predict_file(self, file: str | Path | None = None, **settings: Any) -> Path:
        """Writes a file with predictions in columns of their own, as `t2t-predict`.

        Args:
          file: a file of any format that can be declared; None with `unlabelled=FILE`.
          **settings: any flag of `t2t-predict`, for example `output="predicted.jsonl"`.

        Returns:
          The written file: by default FILE_predicted.csv beside the file.

        Raises:
          T2TError: as `t2t-predict`; the written file is then unchanged.
        """
        from t2t_torch.workflows.predict import PredictSettings

        given: dict[str, Any] = {"trust_code": self._trust_code or None}
        given["paths"] = [str(self.path), *([] if file is None else [str(file)])]
        with called(PredictSettings, "t2t-predict", {**given, **settings}) as read:
            return predict_file(read)

    def export(self, export_dir: str | Path, **settings: Any) -> Artifact | TensorArtifact | Path:
        """Exports the run and verifies the result, as `t2t-exporter`.

        Args:
          export_dir: new directory of the artifact.
          **settings: any flag of `t2t-exporter`, for example `overwrite=True`.

        Returns:
          The loaded artifact; its path for formats that are not run here.

        Raises:
          T2TError: as `t2t-exporter`; `export_dir` is then unchanged.
        """
        return exported({**self._given, "export_dir": export_dir, **settings})

    @property
    def _given(self) -> dict[str, Any]:
        return {"output_dir": self.path, "trust_code": self._trust_code or None}


@errors.in_python(["trust_code"])
def load(
    path: RunPaths,
    checkpoint: int | str | Path | None = None,
    *,
    problem: str | None = None,
    hparams: DecodeHParams | None = None,
    device: str | torch.device | None = None,
    threads: int = 0,
    trust_code: bool = False,
) -> Predictor | LabelPredictor | TrainedModel | Artifact | TensorArtifact:
    """Loads a run of `t2t-trainer` or an artifact of `t2t-exporter`.

    The result is called with a list of inputs and returns a list of outputs.  An ONNX artifact
    needs onnxruntime and numpy alone (`runtime.session.Artifact`); a program of torch.export needs
    torch and the problem (`export.torch_package.load_package`).  Exported weights are loaded like a
    run (`decode.loading.load`).  Inputs and outputs of a trial are nested as those of its model.

    Args:
      path: an artifact, a run directory, or several runs as an ensemble.
      checkpoint: checkpoint of a run: a step, "best", "latest", or a `ckpt-<step>` folder; by
        default the best of the evaluated ones, or the newest.
      problem, hparams: of a run, name of its problem if there are several; decoding settings.
      device: device of a run; artifacts run on the CPU.
      threads: threads of an artifact for one batch; 0: one per core.
      trust_code: True to allow Python code that comes with a run; see `trust.trusting`.

    Raises:
      ArtifactError: the artifact is damaged, altered or too new, or onnxruntime is missing.
      CheckpointError, HParamsError: see `decode.loading.load`.
      UsageError: an argument does not apply, torch is missing, or `trust_code` is needed.
    """
    from t2t_torch.runtime.signature import ADAPTER, ONNX, SAFETENSORS, TORCH

    path = resolve(path) if isinstance(path, str | Path) else [resolve(one) for one in path]
    form = form_of(path) if isinstance(path, Path) else None
    if form in (ONNX, TORCH):
        given = {"checkpoint": checkpoint, "problem": problem, "hparams": hparams}
        _check_none_is_given(path, {**given, "device": None if str(device) == "cpu" else device})
    if form not in (None, ONNX, TORCH, SAFETENSORS, ADAPTER):
        raise errors.UsageError(
            f"'{path}' was exported with --format={form}, for another program, as its README.md "
            "says. Give the run, or export it with --format=onnx."
        )
    if form == ONNX:
        from t2t_torch.runtime.session import open_artifact

        return open_artifact(path, threads=threads)  # type: ignore[arg-type]
    if isinstance(path, str | Path) and not Path(path).exists():
        raise errors.UsageError(f"'{path}' is not there: expected an artifact or a run directory.")
    if threads:
        raise errors.UsageError(
            f"threads={threads} is for an artifact, and {str(path)!r} is none with a graph: its "
            "model takes the threads that torch.set_num_threads says."
        )
    with trust.trusting(trust_code):
        if form == TORCH:
            from t2t_torch.export.torch_package import load_package

            return load_package(path)  # type: ignore[arg-type]
        return _load_of_run(path, checkpoint, problem=problem, hparams=hparams, device=device)


def _load_of_run(path: RunPaths, checkpoint: Any, **given: Any) -> TrainedModel:
    """Loads the model of a run, or an ensemble of several; see `load`."""
    if isinstance(checkpoint, str) and is_url(checkpoint):
        checkpoint = resolve(checkpoint)
    try:
        importlib.import_module("t2t_torch.decode.loading")
    except ImportError as error:
        from t2t_torch.runtime.signature import FILE

        raise errors.UsageError(
            f"{str(path)!r} is no artifact: it has no {FILE}. And what a run directory needs is "
            f"not installed: {error}. Give an artifact, or, in the folder of t2t_torch's source, "
            "pip install ."
        ) from error
    return kind_of(path).predictor(path, checkpoint, **given)


def _check_none_is_given(path: object, given: dict[str, Any]) -> None:
    """Raises UsageError if an argument that applies only to run directories is given."""
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if named:
        raise errors.UsageError(
            f"'{path}' is an artifact: one model, which answers on the CPU. "
            f"{', '.join(named)} is for a run directory. Leave it out."
        )


def export(settings: ExportSettings, *, reporter: Reporter | None = None) -> Path:
    """Exports a run, several as an ensemble, or a trial, and verifies the artifact.

    Args:
      settings: what is exported, and in which format.
      reporter: where a summary is reported; None: to the current one.

    Returns:
      The folder of the artifact.

    Raises:
      T2TError: a setting does not fit, or the model cannot be exported; nothing is written.
    """
    from t2t_torch.decode.hparam import parse_decode_hparams, with_defaults
    from t2t_torch.run.directory import RunDirectory

    with trust.running(settings, reporter), phase("exporting and verifying"):
        require(settings, "output_dir", "export_dir")
        if settings.checkpoint and settings.checkpoint_path:
            raise errors.UsageError("--checkpoint and --checkpoint_path: give one of them.")
        kind = kind_of(settings.runs)
        check_read(kind, "export", settings, settings.runs)
        exporter, settings = kind.exporter(settings)
        defaults = RunDirectory(settings.run_dir).decode_hparams if exporter.searches else ""
        decoding = with_defaults(settings.decode_hparams, defaults)
        parse_decode_hparams(decoding, to_write=False)  # checks it before minutes of work
        settings = settings.replace(decode_hparams=decoding)
        from t2t_torch.train.random_state import restored_generators

        with restored_generators():
            output(str(exporter.export(settings)))
        return settings.folder


def exported(values: Mapping[str, Any]) -> Artifact | TensorArtifact | Path:
    """Exports a run with the values of a call; see `Run.export`."""
    from t2t_torch.runtime.signature import ONNX, TORCH

    with called(ExportSettings, "t2t-exporter", values) as settings:
        folder = export(settings)
    if form_of(folder) not in (ONNX, TORCH):
        return folder
    return load(folder)  # type: ignore[return-value]  # an artifact, not a run


@trust.workflow
def predict_file(settings: PredictSettings) -> Path:
    """Writes a file with the predictions of a run or an artifact; returns the written file.

    Raises:
      T2TError: see `Run.predict_file`.
    """
    from t2t_torch.workflows.predict import source_and_target, write_predicted

    source, target = source_and_target(settings)
    model = load(
        Path(settings.paths[0]).expanduser(),
        settings.checkpoint_path,
        problem=settings.problem,
        trust_code=settings.trust_code,
    )
    write_predicted(model, source, target, settings)
    return target


def form_of(path: str | Path) -> str | None:
    """Returns the `--format` of an exported folder; None for a run directory."""
    from t2t_torch.runtime.signature import FILE, MODEL, ONNX

    file = Path(path) / FILE
    if not file.exists():
        return ONNX if (Path(path) / MODEL).exists() else None
    try:
        return str(files.read_json(file).get("form", ONNX))
    except (OSError, ValueError, AttributeError):
        return ONNX  # its reader reports the error
