"""Weights and optimizer slots as safetensors: by name, a shared tensor once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t2t_torch.checkpoint.sharded import divided_as
from t2t_torch.errors import CheckpointError

_STATELESS = "parameters_without_state"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns parameters and buffers, themselves; shared ones under the first of their names."""
    kept = set(first_names(model).values())
    return {name: tensor for name, tensor in model.state_dict().items() if name in kept}


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Reads a safetensors file.

    Raises:
      CheckpointError: it is none, or it is damaged.
    """
    try:
        return safetensors.torch.load_file(file)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error


def load_weights(model: nn.Module, file: Path, average: Path | None = None) -> None:
    """Loads `model.safetensors` into a model.

    Args:
      model: on whatever device.
      file: parameters and buffers.
      average: a file of what is to stand in for some of them.

    Raises:
      CheckpointError: names or shapes differ, or a file is no safetensors file.
    """
    tensors = read_tensors(file)
    if average is not None:
        tensors |= read_tensors(average)
    first = first_names(model)
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


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Returns the slots of an optimizer by '<parameter>/<slot>', and which parameters have none.

    Raises:
      TypeError: a slot is no tensor.
    """
    names = _optimizer_names(optimizer, model)
    tensors = _optimizer_tensors(optimizer, names)
    stateless = sorted(set(names) - {key.rsplit("/", 1)[0] for key in tensors})
    return tensors, tuple(stateless)


def optimizer_metadata(stateless: Sequence[str]) -> dict[str, str]:
    """Returns what the header of `optimizer.safetensors` says besides."""
    return {_STATELESS: json.dumps(list(stateless))}


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, file: Path) -> None:
    """Loads slots that were saved; hyperparameters stay as they are.

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
    parameters = dict(model.named_parameters())
    by_index = {
        index: {slot: divided_as(value, parameters[name]) for slot, value in state[name].items()}
        for index, name in enumerate(names)
        if name in state
    }
    optimizer.load_state_dict({"state": by_index, "param_groups": groups})


def first_names(model: nn.Module) -> dict[str, str]:
    """Returns for every name of the state dict the first name of the same tensor."""
    seen: dict[tuple[object, ...], str] = {}
    names = {}
    tensors = model.state_dict()
    parameters = {name: id(p) for name, p in model.named_parameters(remove_duplicate=False)}
    for name, tensor in tensors.items():
        # An empty tensor has no storage to share; its name is its identity.
        same: tuple[object, ...] = (name,)
        if isinstance(tensor, DTensor):  # in this process its part may be empty
            same = (parameters[name],)
        elif tensor.numel():
            same = (tensor.data_ptr(), tensor.shape, tensor.stride())
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
            tensors[f"{names[index]}/{slot}"] = value
    return tensors
