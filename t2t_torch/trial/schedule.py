"""The optimizer of a trial and its scheduler: what of them moves, beside weights and slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.errors import TrialError
from t2t_torch.trial.plain_state import restore_settings, restore_state, settings_of, state_of

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World
    from t2t_torch.trial.lr_scheduler import LRScheduler


class Schedule:
    """Steps a trial's scheduler, and knows where it and the optimizer's settings stand.

    Args:
      optimizer: the trial's.
      scheduler: of it; None if there is none, or the trial's code steps one that it keeps to
        itself.
      what: the trial, for errors.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, scheduler: LRScheduler | None, what: str
    ) -> None:
        self._optimizer = optimizer
        self._scheduler = scheduler
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
        """Returns the optimizer's settings and the scheduler's state, as JSON can say them."""
        known: dict[str, Any] = {"settings": settings_of(self._optimizer)}
        if self._scheduler is not None:
            known["scheduler"] = state_of(self._scheduler.scheduler)
        return known

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned.

        Raises:
          TrialError: the optimizer has other groups of parameters.
        """
        restore_settings(self._optimizer, state["settings"], self._what)
        if self._scheduler is not None and "scheduler" in state:
            restore_state(self._scheduler.scheduler, state["scheduler"])

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
                f"{self._what}: the learning rate or another setting of the optimizer has become "
                "another one in other processes, so that their weights part. Step a scheduler in "
                "training by what all of them have alike, such as the number of the batch; each "
                "process has batches of its own, and so losses of its own."
            )
        return self.state()

    def _told(self, world: World) -> list[str]:
        """Returns the state of each process by rank; none if this one is alone."""
        if world.size == 1:
            return []
        channel = SideChannel(world.rank, world.size, world.decisions)
        return channel.exchange(json.dumps(self.state(), sort_keys=True))
