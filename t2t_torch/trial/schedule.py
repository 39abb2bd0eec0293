"""State of a trial's optimizer settings and learning rate scheduler, in JSON form.

A trial's code creates its optimizer and scheduler on each start.  State that has changed since is
stored as plain numbers, lists and dicts, and restored; unchanged values, such as functions or a
Counter, are kept as created.  A nested scheduler is stored by its own `state_dict` and restored
by its own `load_state_dict`.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from t2t_torch.errors import TrialError
from t2t_torch.trial.nested import warn_once

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World


class LRScheduler:
    """Learning rate scheduler returned by a trial's `create_lr_scheduler`.

    Attributes:
      scheduler: torch scheduler, or an object with `step()`, `state_dict()` and
        `load_state_dict()`.
      step_every_batch: step once per batch, after the optimizer step that includes the batch.
      step_every_epoch: step at the end of each pass over the training data.  With neither, the
        trial's own code steps it.

    Raises:
      TrialError: both are set, or the scheduler cannot be stepped automatically.
    """

    def __init__(
        self, scheduler: Any, step_every_batch: bool = False, step_every_epoch: bool = False
    ) -> None:
        if step_every_batch and step_every_epoch:
            raise TrialError(
                "LRScheduler(..., step_every_batch=True, step_every_epoch=True): at most one of "
                "the two. With neither, call scheduler.step() in the trial."
            )
        if isinstance(scheduler, ReduceLROnPlateau) and (step_every_batch or step_every_epoch):
            raise TrialError(
                "ReduceLROnPlateau steps by a metric, which step_every_batch and step_every_epoch "
                "do not have. Leave both False and call scheduler.step(metric) in the trial."
            )
        self.scheduler: TorchScheduler | Any = scheduler
        self.step_every_batch = step_every_batch
        self.step_every_epoch = step_every_epoch


def state_of(scheduler: Any) -> dict[str, Any]:
    """Returns the state of a scheduler, without values that have no JSON form."""
    return _stored(scheduler.state_dict(), type(scheduler).__name__)


def restore_state(scheduler: Any, stored: Mapping[str, Any]) -> None:
    """Restores the state of a scheduler that was created in the same way."""
    state = dict(scheduler.state_dict())
    scheduler.load_state_dict(state | _restored(state, stored))


def _restored(values: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: from_plain(values.get(name), value) for name, value in stored.items()}


def _stored(values: Mapping[Any, Any], owner: str) -> dict[str, Any]:
    """Returns the values with a JSON form; warns about mutable values without one."""
    stored = {}
    for name, value in values.items():
        plain = to_plain(value)
        if plain is not NOT_PLAIN:
            stored[str(name)] = plain
        elif not (callable(value) or isinstance(value, torch.optim.Optimizer)):
            warn_once(
                f"{owner} keeps {name} as {type(value).__name__}, which no checkpoint holds: a "
                "resumed run has it as it was made. Keep numbers, lists, dicts or tensors, or give "
                "it state_dict and load_state_dict."
            )
    return stored


NOT_PLAIN = object()
"""Result of `to_plain` for a value without a JSON form."""


def to_plain(value: Any) -> Any:
    """Returns a value as after a round trip through JSON; `NOT_PLAIN` if it has no JSON form."""
    if isinstance(value, enum.Enum):  # an IntEnum would be restored as a number
        return NOT_PLAIN
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        value = float(value)  # includes numpy's float64
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
    return {"state": state_of(value)} if _keeps_its_own(value) else NOT_PLAIN


def _keeps_its_own(value: Any) -> bool:
    """Returns True if an object has its own state methods, such as a nested scheduler."""
    if isinstance(value, type | nn.Module | torch.optim.Optimizer):  # saved elsewhere
        return False
    return all(callable(getattr(value, n, None)) for n in ("state_dict", "load_state_dict"))


def from_plain(made: Any, plain: Any) -> Any:
    """Converts a JSON value back to the type of the current value.

    A value that has not changed since its creation remains the same object.
    """
    if isinstance(plain, dict) and set(plain) == {"state"} and _keeps_its_own(made):
        restore_state(made, plain["state"])
        return made
    if made is not None and to_plain(made) == plain:
        return made
    if isinstance(plain, list):
        before = list(made) if isinstance(made, list | tuple) else []
        items = [from_plain(before[i] if i < len(before) else None, v) for i, v in enumerate(plain)]
        if not isinstance(made, tuple):
            return items
        return type(made)(*items) if hasattr(made, "_fields") else tuple(items)
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
    mapping: Any = made if isinstance(made, Mapping) else {}
    result = copy.copy(mapping)  # keeps the type, such as Counter
    result.clear()
    result.update({key: from_plain(mapping.get(key), value) for key, value in pairs})
    return result


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Steps a trial's scheduler and stores its state and the optimizer's settings.

    Schedulers stepped by the trial's own code are included if they are attributes of the trial, or
    items of a list, tuple or dict attribute.  `attribute_state.py` stores the trial's other state.

    Attributes:
      optimizer: optimizer of the trial.
      scheduler: scheduler of the optimizer; None if there is none.
      trial: instance of the trial class.
      what: name of the trial, for error messages.
    """

    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler | None
    trial: Any
    what: str

    @property
    def steps_itself(self) -> bool:
        """True if there is a scheduler with a stepping interval."""
        own = self.scheduler
        return own is not None and (own.step_every_batch or own.step_every_epoch)

    def step(self, *, batches: int, epochs: int) -> None:
        """Steps the scheduler by its interval.

        Args:
          batches: batches of this process since the last optimizer step.
          epochs: epochs that ended since then.
        """
        if self.scheduler is None:
            return
        count = batches if self.scheduler.step_every_batch else 0
        count += epochs if self.scheduler.step_every_epoch else 0
        for _ in range(count):
            self.scheduler.scheduler.step()

    def state(self) -> dict[str, Any]:
        """Returns the optimizer's settings and the schedulers' states in JSON form."""
        kind, groups = type(self.optimizer).__name__, self.optimizer.param_groups
        own = [{k: v for k, v in group.items() if k != "params"} for group in groups]
        state: dict[str, Any] = {"settings": [_stored(settings, kind) for settings in own]}
        if self.scheduler is not None:
            state["scheduler"] = state_of(self.scheduler.scheduler)
        attributes = {name: state_of(one) for name, one in self._attributes().items()}
        return {**state, "attributes": attributes} if attributes else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the result of `state`.

        Raises:
          TrialError: the parameter groups of the optimizer differ.
        """
        groups, settings = self.optimizer.param_groups, state["settings"]
        if len(groups) != len(settings):
            raise TrialError(
                f"{self.what}: the optimizer has {len(groups)} groups of parameters, and had "
                f"{len(settings)} when the checkpoint was written. Make it as it was made then."
            )
        for group, stored in zip(groups, settings, strict=True):
            group |= _restored(group, stored)
        if self.scheduler is not None and "scheduler" in state:
            restore_state(self.scheduler.scheduler, state["scheduler"])
        attributes = self._attributes()
        for name, stored in state.get("attributes", {}).items():
            if name in attributes:
                restore_state(attributes[name], stored)
            else:
                logging.warning("%s: there is no scheduler self.%s any more.", self.what, name)

    def schedulers(self) -> list[Any]:
        """Returns the schedulers covered by `state`."""
        own = [self.scheduler.scheduler] if self.scheduler is not None else []
        return [*own, *self._attributes().values()]

    def _attributes(self) -> dict[str, TorchScheduler]:
        """Returns the optimizer's schedulers among the trial's attributes, each once."""
        values: dict[str, Any] = {}  # also the items of containers
        for name, value in getattr(self.trial, "__dict__", {}).items():
            values[name] = value
            if isinstance(value, list | tuple | dict):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                values |= {f"{name}[{key!r}]": item for key, item in items}
        seen = {id(self.scheduler.scheduler)} if self.scheduler is not None else set()
        schedulers = {}
        for name, value in values.items():
            scheduler = value.scheduler if isinstance(value, LRScheduler) else value
            own = isinstance(scheduler, TorchScheduler) and scheduler.optimizer is self.optimizer
            if own and id(scheduler) not in seen:
                seen.add(id(scheduler))
                schedulers[name] = scheduler
        return schedulers

    def follow_leader(self, world: World) -> None:
        """Copies the leader's state to all processes; a collective call."""
        if world.size > 1:
            texts = world.gather(json.dumps(self.state(), sort_keys=True))  # text, as NaN != NaN
            if texts[world.rank] != texts[0]:
                self.restore(json.loads(texts[0]))

    def agreed_state(self, world: World) -> dict[str, Any]:
        """Returns `state`; a collective call.

        Raises:
          TrialError: the states differ between processes.
        """
        state = self.state()
        texts = world.gather(json.dumps(state, sort_keys=True))
        if any(other != texts[0] for other in texts):
            raise TrialError(
                f"{self.what}: the learning rate, another setting of the optimizer or a scheduler "
                "has become another one in other processes, so that their weights part. Step a "
                "scheduler in training by what all of them have alike, such as the number of the "
                "batch; each process has batches of its own, and so losses of its own."
            )
        return state
