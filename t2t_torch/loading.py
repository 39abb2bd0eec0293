"""From a folder to what answers: a run's model, or an artifact, for which no torch is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.artifact.signature import FILE, MODEL
from t2t_torch.errors import UsageError

if TYPE_CHECKING:
    import torch

    from t2t_torch.artifact.session import Artifact
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.decode.label_predictor import LabelPredictor
    from t2t_torch.decode.predictor import Predictor


def load(
    path: str | Path | Sequence[str | Path],
    checkpoint: int | str | Path | None = None,
    *,
    problem: str | None = None,
    hparams: DecodeHParams | None = None,
    device: str | torch.device | None = None,
    threads: int = 0,
) -> Predictor | LabelPredictor | Artifact:
    """Loads what `t2t-trainer` has trained, or what `t2t-exporter` has made of it.

    Whatever it is, it is called with a list of inputs and returns a list of outputs.  An artifact
    needs onnxruntime and numpy alone; see `artifact.session.Artifact`.  Of a run directory, see
    `decode.loading.load`.

    Args:
      path: an artifact; or a run directory, or several whose models answer as one.
      checkpoint: of a run: a step, "best", or the path of a `ckpt-<step>` folder; the newest whole
        one by default.
      problem: of a run of several problems, the one that is asked.
      hparams: of a run: how to decode.
      device: where to compute; an artifact on the CPU.
      threads: of an artifact: for one batch; 0: as many as there are cores.

    Raises:
      ArtifactError: the artifact is damaged, altered or newer than this version, or onnxruntime is
        missing.
      CheckpointError, HParamsError: of a run, as `decode.loading.load` says.
      UsageError: what is given is of the other one, or this is no artifact and there is no torch.
    """
    if isinstance(path, str | Path) and is_artifact(path):
        given: dict[str, Any] = {"checkpoint": checkpoint, "problem": problem, "hparams": hparams}
        given["device"] = None if str(device) == "cpu" else device
        named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        if named:
            raise UsageError(
                f"'{path}' is an artifact: one model, which answers on the CPU. "
                f"{', '.join(named)} is for a run directory. Leave it out."
            )
        from t2t_torch.artifact.session import Artifact

        return Artifact(path, threads=threads)
    if threads:
        raise UsageError(
            f"threads={threads} is for an artifact, and {str(path)!r} is none: a run's model takes "
            "the threads that torch.set_num_threads says."
        )
    try:
        from t2t_torch.decode.loading import load as load_of_run
    except ImportError as error:
        raise UsageError(
            f"{str(path)!r} is no artifact: it has no {FILE}. And what a run directory needs is "
            f"not installed: {error}. Give an artifact, or  pip install t2t_torch"
        ) from error

    return load_of_run(path, checkpoint, problem=problem, hparams=hparams, device=device)


def is_artifact(path: str | Path) -> bool:
    """Whether a folder is an artifact, or was one: it has a signature or a graph."""
    return (Path(path) / FILE).exists() or (Path(path) / MODEL).exists()
