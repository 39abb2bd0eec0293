"""Load a run or an artifact from its folder; importing this module imports no torch or numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.errors import UsageError, in_python
from t2t_torch.files import read_json
from t2t_torch.trust import trusting

if TYPE_CHECKING:
    import torch

    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.runtime.session import Artifact, TensorArtifact
    from t2t_torch.trial.predictor import TrialPredictor


_TASK = "task.json"  # as `RunDirectory` writes it


@in_python(["trust_code"])
def load(
    path: str | Path | Sequence[str | Path],
    checkpoint: int | str | Path | None = None,
    *,
    problem: str | None = None,
    hparams: DecodeHParams | None = None,
    device: str | torch.device | None = None,
    threads: int = 0,
    trust_code: bool = False,
) -> Predictor | LabelPredictor | TrialPredictor | Artifact | TensorArtifact:
    """Loads a run of `t2t-trainer` or an artifact of `t2t-exporter`.

    The result is called with a list of inputs and returns a list of outputs.  An ONNX artifact
    needs onnxruntime and numpy alone (`runtime.session.Artifact`); a program of torch.export needs
    torch and the problem (`export.torch_package.load_package`).  Exported weights are loaded like a
    run (`decode.loading.load`).  Inputs and outputs of a trial are nested as those of its model.

    Args:
      path: an artifact, a run directory, or several runs as an ensemble.
      checkpoint: checkpoint of a run: a step, "best", "latest", or a `ckpt-<step>` folder; by
        default the best of the evaluated ones, or the newest.
      problem: name of the problem, for a run of several.
      hparams: decoding hyperparameters of a run.
      device: device of a run; artifacts run on the CPU.
      threads: threads of an artifact for one batch; 0: one per core.
      trust_code: True to allow Python code that comes with a run; see `trust.trusting`.

    Raises:
      ArtifactError: the artifact is damaged, altered or too new, or onnxruntime is missing.
      CheckpointError, HParamsError: see `decode.loading.load`.
      UsageError: an argument does not apply, torch is missing, or `trust_code` is needed.
    """
    from t2t_torch.runtime.signature import CTRANSLATE2, ONNX, TORCH

    form = form_of(path) if isinstance(path, str | Path) else None
    if form in (ONNX, TORCH):
        given = {"checkpoint": checkpoint, "problem": problem, "hparams": hparams}
        _check_none_is_given(path, {**given, "device": None if str(device) == "cpu" else device})
    if form == CTRANSLATE2:
        raise UsageError(
            f"'{path}' was exported with --format={form}: CTranslate2 reads it, as its README.md "
            "shows. Give the run, or export it with --format=onnx."
        )
    if form == ONNX:
        from t2t_torch.runtime.session import open_artifact

        return open_artifact(path, threads=threads)  # type: ignore[arg-type]
    if isinstance(path, str | Path) and not Path(path).exists():
        raise UsageError(f"'{path}' is not there: expected an artifact or a run directory.")
    if threads:
        raise UsageError(
            f"threads={threads} is for an artifact, and {str(path)!r} is none with a graph: its "
            "model takes the threads that torch.set_num_threads says."
        )
    with trusting(trust_code):
        if form == TORCH:
            from t2t_torch.export.torch_package import load_package

            return load_package(path)  # type: ignore[arg-type]
        return _load_of_run(path, checkpoint, problem=problem, hparams=hparams, device=device)


def _load_of_run(
    path: str | Path | Sequence[str | Path],
    checkpoint: int | str | Path | None,
    *,
    problem: str | None,
    hparams: DecodeHParams | None,
    device: str | torch.device | None,
) -> Predictor | LabelPredictor | TrialPredictor:
    """Loads the model of a run, or an ensemble of several; see `load`."""
    try:
        from t2t_torch.decode.loading import load as load_of_problem
    except ImportError as error:
        from t2t_torch.runtime.signature import FILE

        raise UsageError(
            f"{str(path)!r} is no artifact: it has no {FILE}. And what a run directory needs is "
            f"not installed: {error}. Give an artifact, or, in the folder of t2t_torch's source, "
            "pip install ."
        ) from error
    if isinstance(path, str | Path) and trial_of(path):
        from t2t_torch.trial.predictor import load_trial

        _check_is_of_problem(path, {"problem": problem, "hparams": hparams})
        return load_trial(path, checkpoint, device=device)
    return load_of_problem(path, checkpoint, problem=problem, hparams=hparams, device=device)


def trial_of(path: str | Path) -> str:
    """Returns the name of the trial of a run or of exported weights; empty if there is none."""
    return _recorded(path, "trial")


def decode_defaults(path: str | Path | None) -> str:
    """Returns the decoding settings of a run, such as those of the library it comes from."""
    return _recorded(path, "decode_hparams") if path else ""


def _recorded(path: str | Path, field: str) -> str:
    """Returns a field of the task of a run; empty if there is none."""
    try:
        record = read_json(Path(path).expanduser() / _TASK)
        return str(record.get(field, ""))
    except (OSError, ValueError, AttributeError):
        return ""  # the reader of the file reports the error


def _check_is_of_problem(path: object, given: dict[str, Any]) -> None:
    """Raises UsageError if an argument that applies only to runs of problems is given."""
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if named:
        raise UsageError(
            f"'{path}' is a run of a trial, and {', '.join(named)} is for one of a problem. Leave "
            "it out."
        )


def _check_none_is_given(path: object, given: dict[str, Any]) -> None:
    """Raises UsageError if an argument that applies only to run directories is given."""
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if named:
        raise UsageError(
            f"'{path}' is an artifact: one model, which answers on the CPU. "
            f"{', '.join(named)} is for a run directory. Leave it out."
        )


def form_of(path: str | Path) -> str | None:
    """Returns the `--format` of an exported folder; None for a run directory."""
    from t2t_torch.runtime.signature import CTRANSLATE2, FILE, MODEL, ONNX, SAFETENSORS, TORCH

    file = Path(path) / FILE
    if not file.exists():
        return ONNX if (Path(path) / MODEL).exists() else None
    try:
        form = str(read_json(file).get("form", ONNX))
        # The reader of the file reports the error.
        return form if form in (ONNX, TORCH, SAFETENSORS, CTRANSLATE2) else ONNX
    except (OSError, ValueError, AttributeError):
        return ONNX
