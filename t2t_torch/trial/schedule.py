"""The optimizer of a trial and its scheduler: what of them moves, beside weights and slots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from absl import logging
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.errors import TrialError
from t2t_torch.trial.lr_scheduler import LRScheduler
from t2t_torch.trial.plain_state import restore_settings, restore_state, settings_of, state_of

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World


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
        told = self._told(world)
        if told and told[world.rank] != told[0]:
            self.restore(json.loads(told[0]))

    def agreed_state(self, world: World) -> dict[str, Any]:
        """Returns `state`; all processes must call it.

        Raises:
          TrialError: processes have different ones.
        """
        told = self._told(world)
        if any(other != told[0] for other in told):
            raise TrialError(
                f"{self._what}: the learning rate, another setting of the optimizer or a scheduler "
                "has become another one in other processes, so that their weights part. Step a "
                "scheduler in training by what all of them have alike, such as the number of the "
                "batch; each process has batches of its own, and so losses of its own."
            )
        return self.state()

    def _told(self, world: World) -> list[str]:
        """Returns the state of each process by rank; none if this one is alone."""
        if world.size == 1:
            return []
        channel = SideChannel(world.rank, world.size, world.decisions)
        return channel.exchange(json.dumps(self.state(), sort_keys=True))


def _values(trial: Any) -> Iterator[tuple[str, Any]]:
    """Yields an instance's attributes, and the items of those that hold several, by name."""
    for name, value in getattr(trial, "__dict__", {}).items():
        yield name, value
        if isinstance(value, list | tuple):
            yield from ((f"{name}[{place}]", item) for place, item in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{name}[{key!r}]", item) for key, item in value.items())
