"""Our side of the training benchmarks: the trainer's own `TrainState`, worked as `Estimator.train`
works it, without checkpoints and signals.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from t2t_torch.train.estimator import TrainState
    from t2t_torch.train.task import Batch, Task


class OurTraining:
    """A training that goes over the same few batches again and again.

    Attributes:
      run: what the trainer makes, with the weights that the seed gives.
      batches: (number of the global batch, batch), on the device.

    Args:
      task: what is trained; its `activation_dtype` is chosen.
      count: batches.
      seed: of weights, batches and dropout.
      device: where.
    """

    def __init__(self, task: Task, count: int, seed: int, device: torch.device) -> None:
        from t2t_torch.distributed.network import prepare
        from t2t_torch.distributed.process_group import World
        from t2t_torch.run.checkpoint import TrainerState
        from t2t_torch.train.estimator import TrainState, train_step
        from t2t_torch.train.pace import Pace
        from t2t_torch.train.random_state import INITIALIZATION, seeded

        world = World(0, 1, device)
        self.state = TrainerState(seed=seed)
        with seeded(seed, INITIALIZATION, device):
            model = task.model().to(device).train()
        source = task.train_batches(seed=seed, start=0, rank=0, world_size=1)
        pace = Pace(Path(tempfile.gettempdir(), "no-run"), 6000, 0, self.state)
        self.run: TrainState = TrainState(
            task, model, source, self.state, world, pace=pace, train_steps=6000
        )
        prepare(self.run, world)
        self._step = functools.partial(train_step, self.run, self.state, world)
        self.batches: list[tuple[int, Batch]] = list(itertools.islice(self.run.batches, count))

    def step(self, numbered: tuple[int, Batch]) -> torch.Tensor:
        """Does a step; returns its mean loss, on the device."""
        totals, _ = self._step([numbered])
        return totals[0] / totals[1]
