"""Adapters on disk: the trained weights of a run, and a reference to those it started from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from t2t_torch.errors import CheckpointError
from t2t_torch.run.tensors import (
    StoredTensors,
    aliases_of,
    check_fit,
    first_names,
    without_adapters,
)
from t2t_torch.run.warm_start import warm_start

ADAPTER = "adapter.safetensors"
BASE = "base"
"""Name, in the folder of an adapter, of a link to the base where it is now."""


def write_adapter(
    folder: Path,
    trained: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    *,
    base: Path,
    patterns: Sequence[str] = (),
) -> None:
    """Writes the trained weights of a run, with the checksum of the frozen ones.

    Args:
      folder: an existing folder.
      trained: tensors to write, by name, with adapters.
      frozen: all other tensors of the model, which are those of the base.
      base: what the run was started from: a run, a checkpoint, a safetensors file, or the folder of
        a pretrained model.
      patterns: see `warm_start`.
    """
    header = {
        "base": str(base.absolute()),
        "base_patterns": json.dumps(list(patterns)),
        "base_sha256": sha256_of_tensors(frozen),
    }
    tensors = {name: tensor.contiguous() for name, tensor in trained.items()}
    save_file(tensors, folder / ADAPTER, metadata={"format": "pt", **header})


def sha256_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Returns the SHA-256 of names, types, shapes and values of tensors, in hexadecimal digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {list(values.shape)}\n".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_adapter(model: nn.Module, folder: Path) -> None:
    """Loads the base of an adapter into a model without adapters, and merges the adapter.

    The base is where the run found it, or at `base` in the folder of the adapter.

    Args:
      model: model of the run's hyperparameters, on the CPU.
      folder: folder with an adapter and `hparams.json`.

    Raises:
      CheckpointError: the base is missing or another one, or the adapter is of another model.
    """
    file = folder / ADAPTER
    stored = StoredTensors(file)
    header, tensors = stored.header, stored.read()
    is_linked = os.path.lexists(folder / BASE)
    base = (folder / BASE).resolve() if is_linked else Path(header["base"])
    remedy = f"Link the weights it was trained from:  ln -sfn RUN {folder / BASE}"
    if not base.exists():
        raise CheckpointError(f"{file} adapts the weights of {base}, which is missing. {remedy}")
    if (base / "config.json").exists() and not (base / "task.json").exists():
        pretrained: Any = model  # the folder of a pretrained model, not a run
        pretrained.load_pretrained(str(base))
    else:
        warm_start(model, base, patterns=json.loads(header["base_patterns"]))
    first, here = first_names(model), model.state_dict()
    frozen = {name: here[name] for name in aliases_of(model) if name not in tensors}
    if sha256_of_tensors(frozen) != header["base_sha256"]:
        raise CheckpointError(
            f"{file} adapts other weights than those of {base}: their SHA-256 is another. Were "
            f"they trained further? {remedy}  (or RUN/ckpt-<step>)"
        )
    whole = without_adapters({**frozen, **tensors}, file)
    own = {name: here[name] for name in sorted(set(first.values()))}
    check_fit(whole, own, f"{file} does not fit the model:", "Export the run again.")
    model.load_state_dict({name: whole[first[name]] for name in here})
