"""From a run of a trial to an artifact: one graph, compared with the model row by row, or nothing.

The trial's code, its data and its validation loader are needed here, and none of it afterwards.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch

import t2t_torch
from t2t_torch.artifact.signature import EXAMPLES, MODEL, ONNX, SAFETENSORS, Signature
from t2t_torch.artifact.tensor_session import TensorArtifact
from t2t_torch.compute.distributed import World
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.errors import ExportError, UsageError
from t2t_torch.export.folder import write_signature
from t2t_torch.export.graph import OPSETS
from t2t_torch.export.request import Request, remove_leftovers, staged_folder
from t2t_torch.trial.captured import validation_inputs
from t2t_torch.trial.export_network import graph_of, taken_by
from t2t_torch.trial.export_verification import Verified, verify
from t2t_torch.trial.opened_run import OpenedRun
from t2t_torch.trial.predictor import arguments_of, forward
from t2t_torch.trial.run_record import NAME

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
                f"  inputs    {_told(signature.fields)}",
                f"  outputs   {_told(signature.targets)}",
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


def _told(parts: Sequence[Any]) -> str:
    return ", ".join(f"{one.name} {one.dtype} {['batch', *one.shape]}" for one in parts).replace(
        "'", ""
    )
