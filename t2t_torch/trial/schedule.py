"""The optimizer of a trial and its scheduler: what of them moves, beside weights and slots."""

from __future__ import annotations

import copy
import enum
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from t2t_torch.errors import TrialError

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World


# A scheduler of the learning rate, and when it steps.


class LRScheduler:
    """Scheduler of the learning rate, as a trial's `create_lr_scheduler` returns it.

    Attributes:
      scheduler: of torch, or whatever has `step()`, `state_dict()` and `load_state_dict()`.
      step_every_batch: it steps once for each batch, when the optimizer has made the step that the
        batch is a part of.
      step_every_epoch: it steps at the end of each pass over the training data.  With neither, the
        trial's own code steps it.

    Raises:
      TrialError: both are asked for, or it cannot step by itself.
    """

    def __init__(
        self,
        scheduler: Any,
        step_every_batch: bool = False,
        step_every_epoch: bool = False,
    ) -> None:
        if step_every_batch and step_every_epoch:
            raise TrialError(
                "LRScheduler(..., step_every_batch=True, step_every_epoch=True): at most one of "
                "the two. With neither, call scheduler.step() in the trial."
            )
        needed = ("step", "state_dict", "load_state_dict")
        missing = [name for name in needed if not callable(getattr(scheduler, name, None))]
        if missing:
            raise TrialError(
                f"LRScheduler was given a {type(scheduler).__name__} without {', '.join(missing)}; "
                "a scheduler of torch.optim.lr_scheduler was expected."
            )
        if isinstance(scheduler, ReduceLROnPlateau) and (step_every_batch or step_every_epoch):
            raise TrialError(
                "ReduceLROnPlateau steps by a metric, which step_every_batch and step_every_epoch "
                "do not have. Leave both False and call scheduler.step(metric) in the trial."
            )
        self.scheduler: TorchScheduler | Any = scheduler
        self.step_every_batch = step_every_batch
        self.step_every_epoch = step_every_epoch


# The settings of an optimizer and the state of a scheduler, as JSON can say them.
#
# A trial's optimizer and scheduler are made anew by its own code at each start.  What of them has
# moved since is written as plain numbers, lists and dicts, and put back; what is as it was made, be
# it a function or a Counter, is left as it was made.  A scheduler within a scheduler is written by
# its own `state_dict` and put back by its own `load_state_dict`.


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


class Schedule:
    """Steps a trial's scheduler, and knows where it and the optimizer's settings stand.

    What the trial's own code steps is known where it is an attribute of the trial, or an item of a
    list, a tuple or a dict that is one.  `attribute_state.py` keeps what else the trial holds.

    Args:
      optimizer: the trial's.
      scheduler: of it; None if there is none.
      trial: the instance of the user's class.
      what: the trial, for errors.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scheduler: LRScheduler | None,
        trial: Any,
        what: str,
    ) -> None:
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._trial = trial
        self._what = what

    @property
    def steps_itself(self) -> bool:
        """Whether there is a scheduler that asks to be stepped."""
        known = self._scheduler
        return known is not None and (known.step_every_batch or known.step_every_epoch)

    def step(self, *, batches: int, epochs: int) -> None:
        """Steps the scheduler as it asks.

        Args:
          batches: of this process since the last step of the optimizer.
          epochs: that have ended since then.
        """
        if self._scheduler is None:
            return
        count = batches if self._scheduler.step_every_batch else 0
        count += epochs if self._scheduler.step_every_epoch else 0
        for _ in range(count):
            self._scheduler.scheduler.step()

    def state(self) -> dict[str, Any]:
        """Returns the optimizer's settings and the schedulers' states, as JSON can say them."""
        known: dict[str, Any] = {"settings": settings_of(self._optimizer)}
        if self._scheduler is not None:
            known["scheduler"] = state_of(self._scheduler.scheduler)
        attributes = {name: state_of(found) for name, found in self._attributes().items()}
        return {**known, "attributes": attributes} if attributes else known

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned.

        Raises:
          TrialError: the optimizer has other groups of parameters.
        """
        restore_settings(self._optimizer, state["settings"], self._what)
        if self._scheduler is not None and "scheduler" in state:
            restore_state(self._scheduler.scheduler, state["scheduler"])
        attributes = self._attributes()
        for name, known in state.get("attributes", {}).items():
            if name in attributes:
                restore_state(attributes[name], known)
                continue
            logging.warning(
                "%s: the checkpoint has the scheduler self.%s, which is not there now: it begins "
                "anew. Make it in optimizer or create_lr_scheduler.",
                self._what,
                name,
            )

    def schedulers(self) -> list[Any]:
        """Returns the schedulers that `state` knows."""
        own = [self._scheduler.scheduler] if self._scheduler is not None else []
        return [*own, *self._attributes().values()]

    def _attributes(self) -> dict[str, TorchScheduler]:
        """Returns the schedulers of the optimizer that stand on the trial, each once."""
        seen = {id(self._scheduler.scheduler)} if self._scheduler is not None else set()
        found = {}
        for name, value in _values(self._trial):
            scheduler = value.scheduler if isinstance(value, LRScheduler) else value
            own = isinstance(scheduler, TorchScheduler) and scheduler.optimizer is self._optimizer
            if own and id(scheduler) not in seen:
                seen.add(id(scheduler))
                found[name] = scheduler
        return found

    def follow_leader(self, world: World) -> None:
        """Takes the leader's state over; all processes must call it."""
        if world.size > 1:
            texts = world.gather(json.dumps(self.state(), sort_keys=True))  # NaN is not itself
            if texts[world.rank] != texts[0]:
                self.restore(json.loads(texts[0]))

    def agreed_state(self, world: World) -> dict[str, Any]:
        """Returns `state`; all processes must call it.

        Raises:
          TrialError: processes have different ones.
        """
        state = self.state()
        texts = world.gather(json.dumps(state, sort_keys=True))
        if any(other != texts[0] for other in texts):
            raise TrialError(
                f"{self._what}: the learning rate, another setting of the optimizer or a scheduler "
                "has become another one in other processes, so that their weights part. Step a "
                "scheduler in training by what all of them have alike, such as the number of the "
                "batch; each process has batches of its own, and so losses of its own."
            )
        return state


def _values(trial: Any) -> Iterator[tuple[str, Any]]:
    """Yields an instance's attributes, and the items of those that hold several, by name."""
    for name, value in getattr(trial, "__dict__", {}).items():
        yield name, value
        if isinstance(value, list | tuple):
            yield from ((f"{name}[{place}]", item) for place, item in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{name}[{key!r}]", item) for key, item in value.items())
