"""Weights and optimizer slots as safetensors: by name, a shared tensor once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from t2t_torch.errors import CheckpointError

_STATELESS = "parameters_without_state"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns what a model file holds: parameters and buffers, shared ones under one name."""
    kept = set(_first_names(model).values())
    return {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if name in kept
    }


def load_weights(model: nn.Module, file: Path) -> None:
    """Loads `model.safetensors` into a model.

    Raises:
      CheckpointError: names or shapes differ, or the file is no safetensors file.
    """
    try:
        tensors = safetensors.torch.load_file(file)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    first = _first_names(model)
    here = model.state_dict()
    faults = [f"the model has no {name}" for name in sorted(set(tensors) - set(first.values()))]
    for name in sorted(set(first.values())):
        if name not in tensors:
            faults.append(f"it has no {name}")
        elif tensors[name].shape != here[name].shape:
            shapes = [list(tensors[name].shape), list(here[name].shape)]
            faults.append(f"{name} is {shapes[0]}, the model's is {shapes[1]}")
    if faults:
        raise CheckpointError(
            f"{file} does not fit the model:\n  "
            + "\n  ".join(faults[:10])
            + "\nUse the hparams it was trained with (hparams.json beside it)."
        )
    model.load_state_dict({name: tensors[first[name]] for name in here})


def save_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, file: Path) -> None:
    """Writes the slots of an optimizer, and which parameters have none.

    Raises:
      TypeError: a slot is no tensor.
    """
    names = _optimizer_names(optimizer, model)
    tensors = _optimizer_tensors(optimizer, names)
    stateless = sorted(set(names) - {key.rsplit("/", 1)[0] for key in tensors})
    safetensors.torch.save_file(tensors, file, metadata={_STATELESS: json.dumps(stateless)})


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, file: Path) -> None:
    """Loads the slots that `save_optimizer` wrote; hyperparameters stay as they are.

    Raises:
      CheckpointError: they are of other parameters, or the file is damaged.
    """
    state: dict[str, dict[str, Tensor]] = {}
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            stateless = json.loads((opened.metadata() or {}).get(_STATELESS, "[]"))
            for key in opened.keys():  # noqa: SIM118 (it is no mapping)
                parameter, slot = key.rsplit("/", 1)
                state.setdefault(parameter, {})[slot] = opened.get_tensor(key)
    except (safetensors.SafetensorError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    names = _optimizer_names(optimizer, model)
    unknown = sorted(set(state) - set(names))
    if unknown:
        raise CheckpointError(f"{file}: the model has no parameter {unknown[0]!r}")
    missing = sorted(set(names) - set(state) - set(stateless))
    if state and missing:
        raise CheckpointError(
            f"{file} has no slots of {', '.join(missing[:10])}. It is of another model; go on with "
            "the hparams it was trained with (hparams.json beside it)."
        )
    groups = optimizer.state_dict()["param_groups"]
    by_index = {index: state[name] for index, name in enumerate(names) if name in state}
    optimizer.load_state_dict({"state": by_index, "param_groups": groups})


def _first_names(model: nn.Module) -> dict[str, str]:
    """Returns for every name of the state dict the first name of the same tensor."""
    seen: dict[tuple[object, ...], str] = {}
    names = {}
    for name, tensor in model.state_dict().items():
        # An empty tensor has no storage to share; its name is its identity.
        same = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
        names[name] = seen.setdefault(same, name)
    return names


def _optimizer_names(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """Returns the parameters' names in the optimizer's own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def _optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    state: Mapping[int, Mapping[str, object]] = optimizer.state_dict()["state"]
    tensors = {}
    for index, slots in state.items():
        for slot, value in slots.items():
            if value is None:  # e.g. momentum not yet begun
                continue
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"{type(optimizer).__name__} keeps {slot!r} as {type(value).__name__}; only "
                    "tensors can be stored. Keep it as a 0-dimensional tensor."
                )
            tensors[f"{names[index]}/{slot}"] = value.detach().cpu().contiguous()
    return tensors
