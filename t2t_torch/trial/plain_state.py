"""The settings of an optimizer and the state of a scheduler, as JSON can say them.

A trial's optimizer and scheduler are made anew by its own code at each start.  What of them has
moved since is written as plain numbers, lists and dicts, and put back; what is as it was made, be
it a function or a Counter, is left as it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import TrialError

_PARAMETERS = "params"


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Returns the settings of an optimizer's groups: learning rates, momenta and the like.

    Settings that JSON cannot say, as functions, are left out: they do not move.
    """
    return [
        {name: plain for name, value in group.items() if (plain := _plain(value)) is not _NOT}
        for group in _groups(optimizer)
    ]


def restore_settings(
    optimizer: torch.optim.Optimizer, settings: list[dict[str, Any]], what: str
) -> None:
    """Puts the settings of an optimizer's groups back.

    Raises:
      TrialError: the optimizer has another number of groups.
    """
    groups = optimizer.param_groups
    if len(groups) != len(settings):
        raise TrialError(
            f"{what}: the optimizer has {len(groups)} groups of parameters, and had "
            f"{len(settings)} when the checkpoint was written. Make it as it was made then."
        )
    for group, known in zip(groups, settings, strict=True):
        for name, value in known.items():
            if name not in group or _plain(group[name]) != value:
                group[name] = _like(group.get(name), value)


def state_of(scheduler: Any) -> dict[str, Any]:
    """Returns the state of a scheduler, without what JSON cannot say."""
    state = scheduler.state_dict()
    return {str(name): plain for name, v in state.items() if (plain := _plain(v)) is not _NOT}


def restore_state(scheduler: Any, known: Mapping[str, Any]) -> None:
    """Puts the state of a scheduler back that was made as it was made then."""
    state = dict(scheduler.state_dict())
    for name, value in known.items():
        if name not in state or _plain(state[name]) != value:
            state[name] = _like(state.get(name), value)
    scheduler.load_state_dict(state)


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in group.items() if k != _PARAMETERS} for group in optimizer.param_groups
    ]


class _Not:
    """What JSON cannot say."""


_NOT = _Not()


def _plain(value: Any) -> Any:
    """Returns a value as JSON would give it back; `_NOT` if it cannot."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"float": str(value)}
    if isinstance(value, Tensor):
        return {"tensor": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # numpy's numbers
        return _plain(value.item())
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return _NOT if _NOT in items else items
    if isinstance(value, Mapping):
        pairs = {str(key): _plain(item) for key, item in value.items()}
        return _NOT if _NOT in pairs.values() else pairs
    return _NOT


def _like(made: Any, plain: Any) -> Any:
    """Returns a value that JSON gave back as the kind that stands in its place now."""
    if isinstance(plain, dict) and set(plain) == {"float"}:
        return float(plain["float"])
    if isinstance(plain, dict) and set(plain) == {"tensor", "dtype"}:
        device = made.device if isinstance(made, Tensor) else None
        return torch.tensor(plain["tensor"], dtype=getattr(torch, plain["dtype"]), device=device)
    if isinstance(plain, list):
        known = list(made) if isinstance(made, list | tuple) else []
        items = [_like(known[i] if i < len(known) else None, v) for i, v in enumerate(plain)]
        return tuple(items) if isinstance(made, tuple) else items
    if isinstance(plain, dict) and isinstance(made, Mapping):
        keys = {str(key): key for key in made}
        return {keys.get(k, k): _like(made.get(keys.get(k, k)), v) for k, v in plain.items()}
    return plain
