"""Weights and optimizer slots as safetensors: by name, a shared tensor once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t2t_torch.checkpoint.stored_slot import slot_of, stored_slot
from t2t_torch.checkpoint.stored_tensors import StoredTensors
from t2t_torch.errors import CheckpointError
from t2t_torch.layers.carried_memory import is_memory

_STATELESS = "parameters_without_state"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns parameters and buffers, themselves; shared ones under the first of their names."""
    kept = set(first_names(model).values())
    return {name: tensor for name, tensor in model.state_dict().items() if name in kept}


def read_tensors(path: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Reads a safetensors file, or a folder of parts.

    Args:
      path: the file or the folder.
      like: what those of the same name are divided as; without it they are whole.

    Raises:
      CheckpointError: it is none, or it is damaged.
    """
    return StoredTensors(path).read(like)


def load_weights(model: nn.Module, file: Path, average: Path | None = None) -> None:
    """Loads weights into a model.

    What was remembered of streams is left out if the model reads none.

    Args:
      model: on whatever device; divided, each process reads its part.
      file: parameters and buffers; or a folder of their parts.
      average: the same of what is to stand in for some of them.

    Raises:
      CheckpointError: names or shapes differ, or a file is no safetensors file.
    """
    first = first_names(model)
    here = model.state_dict()
    tensors = read_tensors(file, here)
    if average is not None:
        tensors |= read_tensors(average, here)
    tensors = {
        name: tensor for name, tensor in tensors.items() if name in here or not is_memory(name)
    }
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

    A slot that is a number of Python stands as a tensor that says so: '<parameter>/<slot>#int'.

    Raises:
      CheckpointError: the optimizer keeps something that is neither a tensor nor a number.
    """
    names = _optimizer_names(optimizer, model)
    tensors = _optimizer_tensors(optimizer, names)
    stateless = sorted(set(names) - {_owner(key) for key in tensors})
    return tensors, tuple(stateless)


def optimizer_metadata(stateless: Sequence[str]) -> dict[str, str]:
    """Returns what the header of `optimizer.safetensors` says besides."""
    return {_STATELESS: json.dumps(list(stateless))}


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, file: Path) -> None:
    """Loads slots that were saved, of a divided parameter this process's parts of them.

    Hyperparameters stay as they are.

    Raises:
      CheckpointError: they are of other parameters, or the file is damaged.
    """
    stored = StoredTensors(file)
    parameters = dict(model.named_parameters())
    slots = {key: parameters[_owner(key)] for key in stored.kinds if _owner(key) in parameters}
    state: dict[str, dict[str, Tensor | int | float]] = {}
    for key, tensor in stored.read(slots).items():
        slot, value = slot_of(key.rpartition("/")[2], tensor)
        state.setdefault(_owner(key), {})[slot] = value
    try:
        stateless = json.loads(stored.header.get(_STATELESS, "[]"))
    except ValueError as error:
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
    _keep_types(optimizer, by_index)


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


def _owner(key: str) -> str:
    """Returns the parameter that a slot belongs to."""
    return key.rpartition("/")[0]


def _optimizer_names(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[str]:
    """Returns the parameters' names in the optimizer's own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]


def _optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    whole = optimizer.state_dict()
    state: Mapping[object, object] = whole["state"]
    kind = type(optimizer).__name__
    besides = sorted(map(str, set(whole) - {"state", "param_groups"}))
    besides += [str(key) for key in state if not isinstance(key, int)]
    if besides:
        raise CheckpointError(
            f"{kind} keeps {', '.join(besides)} beside the slots of its parameters; only those "
            "can be stored. Keep it in the state of a parameter."
        )
    tensors = {}
    for index, slots in state.items():
        assert isinstance(index, int) and isinstance(slots, Mapping)
        for slot, value in slots.items():
            if value is None:  # e.g. momentum not yet begun
                continue
            try:
                ending, tensor = stored_slot(value)
            except TypeError as error:
                raise CheckpointError(
                    f"{kind} keeps {slot!r} as {type(value).__name__}, of {names[index]} "
                    f"({error}); only dense tensors and numbers can be stored. Keep it as one, "
                    "or train with an optimizer that does."
                ) from None
            tensors[f"{names[index]}/{slot}{ending}"] = tensor
    return tensors


def _keep_types(
    optimizer: torch.optim.Optimizer, known: Mapping[int, Mapping[str, Tensor | int | float]]
) -> None:
    """Gives slots their own types back, where torch has rounded them to their parameter's."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, slots in known.items():
        loaded = optimizer.state[parameters[index]]
        for slot, value in slots.items():
            there = loaded.get(slot)
            if not isinstance(value, Tensor) or not isinstance(there, Tensor):
                continue
            if there.dtype != value.dtype and not isinstance(value, DTensor):
                loaded[slot] = value.to(there.device)
