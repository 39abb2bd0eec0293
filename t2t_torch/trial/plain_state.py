"""The settings of an optimizer and the state of a scheduler, as JSON can say them.

A trial's optimizer and scheduler are made anew by its own code at each start.  What of them has
moved since is written as plain numbers, lists and dicts, and put back; what is as it was made, be
it a function or a Counter, is left as it was made.  A scheduler within a scheduler is written by
its own `state_dict` and put back by its own `load_state_dict`.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn

from t2t_torch.errors import TrialError

_PARAMETERS = "params"

_WARNED: set[tuple[str, str]] = set()


def settings_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Returns the settings of an optimizer's groups: learning rates, momenta and the like.

    Settings that JSON cannot say, as functions, are left out: they do not move.
    """
    return [_said(group, type(optimizer).__name__) for group in _groups(optimizer)]


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
            group[name] = from_plain(group.get(name), value)


def state_of(scheduler: Any) -> dict[str, Any]:
    """Returns the state of a scheduler, without what JSON cannot say."""
    return _said(scheduler.state_dict(), type(scheduler).__name__)


def restore_state(scheduler: Any, known: Mapping[str, Any]) -> None:
    """Puts the state of a scheduler back that was made as it was made then."""
    state = dict(scheduler.state_dict())
    for name, value in known.items():
        state[name] = from_plain(state.get(name), value)
    scheduler.load_state_dict(state)


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in group.items() if k != _PARAMETERS} for group in optimizer.param_groups
    ]


def _said(values: Mapping[Any, Any], owner: str) -> dict[str, Any]:
    """Returns what JSON can say of some values; of what it cannot, and may move, it warns."""
    said = {}
    for name, value in values.items():
        plain = to_plain(value)
        if plain is not NOT_PLAIN:
            said[str(name)] = plain
        elif not callable(value) and not isinstance(value, torch.optim.Optimizer):
            _warn(owner, str(name), value)
    return said


def _warn(owner: str, name: str, value: Any) -> None:
    if (owner, name) not in _WARNED:
        _WARNED.add((owner, name))
        logging.warning(
            "%s keeps %s as %s, which no checkpoint holds: a run that goes on has it as it was "
            "made. Keep numbers, lists, dicts or tensors, or give it state_dict and "
            "load_state_dict.",
            owner,
            name,
            type(value).__name__,
        )


class _Not:
    """A value that JSON cannot hold."""


NOT_PLAIN = _Not()


def to_plain(value: Any) -> Any:
    """Returns a value as JSON would give it back; `NOT_PLAIN` if it cannot."""
    if isinstance(value, enum.Enum):  # an IntEnum would come back as a number
        return NOT_PLAIN
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        value = float(value)  # numpy's is one, too
        return value if value == value and abs(value) != float("inf") else {"float": str(value)}
    if isinstance(value, Tensor):
        return {
            "tensor": to_plain(value.tolist()),
            "dtype": str(value.dtype).removeprefix("torch."),
        }
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, np.ndarray):
        plain = to_plain(value.tolist())
        return NOT_PLAIN if plain is NOT_PLAIN else {"array": plain, "dtype": value.dtype.str}
    if isinstance(value, list | tuple):
        items = [to_plain(item) for item in value]
        return NOT_PLAIN if any(item is NOT_PLAIN for item in items) else items
    if isinstance(value, Mapping):
        pairs = [[to_plain(key), to_plain(item)] for key, item in value.items()]
        if any(part is NOT_PLAIN for pair in pairs for part in pair):
            return NOT_PLAIN
        return dict(pairs) if all(isinstance(key, str) for key in value) else {"pairs": pairs}
    if _keeps_its_own(value):
        return {"state": state_of(value)}
    return NOT_PLAIN


def _keeps_its_own(value: Any) -> bool:
    """Whether a value is an object, as a scheduler within another, that tells its state itself."""
    if isinstance(value, type | nn.Module | torch.optim.Optimizer):  # they are saved elsewhere
        return False
    return all(callable(getattr(value, n, None)) for n in ("state_dict", "load_state_dict"))


def from_plain(made: Any, plain: Any) -> Any:
    """Returns a value that JSON gave back as the kind that stands in its place now.

    What has not moved since it was made stays the very object that was made.
    """
    if isinstance(plain, dict) and set(plain) == {"state"} and _keeps_its_own(made):
        restore_state(made, plain["state"])
        return made
    if made is not None and to_plain(made) == plain:
        return made
    if isinstance(plain, list):
        known = list(made) if isinstance(made, list | tuple) else []
        items = [from_plain(known[i] if i < len(known) else None, v) for i, v in enumerate(plain)]
        return _tuple_like(made, items) if isinstance(made, tuple) else items
    if not isinstance(plain, dict):
        return plain
    if set(plain) == {"float"}:
        return float(plain["float"])
    if set(plain) == {"tensor", "dtype"}:
        device = made.device if isinstance(made, Tensor) else None
        numbers = from_plain(None, plain["tensor"])
        return torch.tensor(numbers, dtype=getattr(torch, plain["dtype"]), device=device)
    if set(plain) == {"array", "dtype"}:
        return np.array(from_plain(None, plain["array"]), dtype=plain["dtype"])
    pairs = plain["pairs"] if set(plain) == {"pairs"} else plain.items()
    before = made if isinstance(made, Mapping) else {}
    found = {key: from_plain(before.get(key), value) for key, value in pairs}
    if type(before) is dict:
        return found
    kept = copy.copy(before)  # a Counter stays one
    kept.clear()  # type: ignore[attr-defined]
    kept.update(found)  # type: ignore[attr-defined]
    return kept


def _tuple_like(made: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    return type(made)(*items) if hasattr(made, "_fields") else tuple(items)
