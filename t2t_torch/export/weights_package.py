"""A folder with a model's weights as safetensors, which is loaded as a run is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from t2t_torch.artifact.signature import SAFETENSORS
from t2t_torch.checkpoint.checkpoint import MODEL
from t2t_torch.checkpoint.weights import model_tensors
from t2t_torch.decode.loading import Loaded, load_run
from t2t_torch.errors import ExportError
from t2t_torch.export.folder import Exported, copy_explanations, write_signature, write_task
from t2t_torch.export.request import Request, joined, remove_leftovers, staged_folder
from t2t_torch.export.signature import about

_READ_ME = """# {model} of {problem}

`t2t-exporter --format=safetensors` wrote this folder, of {checkpoint}: {tensors} tensors with
{numbers:,} numbers. t2t_torch loads it as it loads a run:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```

and any program has the weights:

```python
from safetensors.torch import load_file

weights = load_file("model.safetensors")
```

`hparams.json` says what they are the weights of, `task.json` which model and problem.
"""


def export(request: Request) -> Exported:
    """Writes the weights of a run, if what is loaded from there is the same to the bit.

    Args:
      request: what, and where to; no data is read.

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      ExportError: what was written is not what is read.
      UsageError: the request cannot be met.
    """
    start = time.perf_counter()
    remove_leftovers(request.export_dir)
    request.check()
    with staged_folder(request.export_dir, overwrite=request.overwrite) as scratch:
        whole, averaged = scratch / "whole", scratch / "run"
        averaged.mkdir()
        loaded, chosen = joined(request.load_members(averaged))
        tensors = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in model_tensors(loaded.model).items()
        }
        save_file(tensors, whole / MODEL, metadata={"format": "pt"})
        copy_explanations(request.runs, loaded, whole)
        write_task(loaded, whole)
        signature = about(loaded, chosen, form=SAFETENSORS)
        read_me = _READ_ME.format(
            model=signature.model,
            problem=signature.problem,
            checkpoint=chosen,
            folder=request.export_dir.name,
            tensors=len(tensors),
            numbers=sum(tensor.numel() for tensor in tensors.values()),
        )
        (whole / "README.md").write_text(read_me, "utf-8")
        signature = write_signature(signature, whole)
        _check_same(tensors, load_file(whole / MODEL), "the file")
        _check_same(loaded.model.state_dict(), _reloaded(whole), "a model that is loaded from it")
    took = time.perf_counter() - start
    return Exported(request.export_dir, signature, None, {}, None, took)


def _reloaded(folder: Path) -> Mapping[str, Tensor]:
    loaded: Loaded = load_run(folder)
    found: Mapping[str, Tensor] = loaded.model.state_dict()
    return found


def _check_same(written: Mapping[str, Tensor], read: Mapping[str, Tensor], where: str) -> None:
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
