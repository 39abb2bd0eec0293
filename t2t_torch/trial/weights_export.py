"""The weights of a trial's run as safetensors, in a folder that is loaded as the run is."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file

import t2t_torch
from t2t_torch.artifact.signature import FILE, SAFETENSORS, Signature, Written
from t2t_torch.checkpoint.checkpoint import MODEL
from t2t_torch.checkpoint.weights import model_tensors
from t2t_torch.errors import ExportError
from t2t_torch.export.request import Request, remove_leftovers, staged_folder
from t2t_torch.trial.code_copy import FOLDER
from t2t_torch.trial.predictor import load_trial
from t2t_torch.trial.run_record import NAME

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


def export(request: Request) -> WeightsExported:
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
        save_file(tensors, whole / MODEL, metadata={"format": "pt"})
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
