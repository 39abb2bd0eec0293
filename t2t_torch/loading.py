"""From a folder to what answers: a run's model, or an artifact, for which no torch is loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.artifact.signature import FILE, MODEL, ONNX, TORCH
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
    `decode.loading.load`; what was exported as weights is loaded as one.  A program of torch.export
    takes torch, and the problem, which encodes texts; see `export.torch_package.load_package`.

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
    form = form_of(path) if isinstance(path, str | Path) else None
    if form in (ONNX, TORCH):
        given: dict[str, Any] = {"checkpoint": checkpoint, "problem": problem, "hparams": hparams}
        given["device"] = None if str(device) == "cpu" else device
        _check_none_is_given(path, given)
    if form == ONNX:
        from t2t_torch.artifact.session import Artifact

        return Artifact(path, threads=threads)  # type: ignore[arg-type]
    if threads:
        raise UsageError(
            f"threads={threads} is for an artifact, and {str(path)!r} is none with a graph: its "
            "model takes the threads that torch.set_num_threads says."
        )
    if form == TORCH:
        from t2t_torch.export.torch_package import load_package

        return load_package(path)  # type: ignore[arg-type]
    try:
        from t2t_torch.decode.loading import load as load_of_run
    except ImportError as error:
        raise UsageError(
            f"{str(path)!r} is no artifact: it has no {FILE}. And what a run directory needs is "
            f"not installed: {error}. Give an artifact, or  pip install t2t_torch"
        ) from error

    return load_of_run(path, checkpoint, problem=problem, hparams=hparams, device=device)


def _check_none_is_given(path: object, given: dict[str, Any]) -> None:
    """Raises UsageError if something is not None that is for a run directory."""
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if named:
        raise UsageError(
            f"'{path}' is an artifact: one model, which answers on the CPU. "
            f"{', '.join(named)} is for a run directory. Leave it out."
        )


def is_artifact(path: str | Path) -> bool:
    """Whether a folder is an artifact with a graph, or was one: it has a signature or a graph."""
    return form_of(path) == ONNX


def form_of(path: str | Path) -> str | None:
    """Returns as what a folder was exported, "onnx", "torch" or "safetensors"; None of a run."""
    file = Path(path) / FILE
    if not file.exists():
        return ONNX if (Path(path) / MODEL).exists() else None
    try:
        return str(json.loads(file.read_bytes()).get("form", ONNX))
    except (OSError, ValueError, AttributeError):
        return ONNX  # whoever reads it says what is wrong
