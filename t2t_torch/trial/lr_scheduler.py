"""A scheduler of the learning rate, and when it steps."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import LRScheduler as TorchScheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from t2t_torch.errors import TrialError


class LRScheduler:
    """What a trial's `create_lr_scheduler` returns.

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
