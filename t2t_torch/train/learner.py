"""What a training loop works with: model, optimizer, schedule, batches."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.checkpoint.snapshot import Snapshot
from t2t_torch.checkpoint.weights import optimizer_tensors
from t2t_torch.compute.network import (
    accumulating,
    average_gradients,
    exchanges_gradients,
    is_sharded,
    share_buffers,
)
from t2t_torch.compute.precision import Precision, check_trainable
from t2t_torch.optimization.gradient import GradientFinisher
from t2t_torch.optimization.noise import WeightNoise
from t2t_torch.optimization.weight_average import WeightAverage
from t2t_torch.train.backward import Backward
from t2t_torch.train.tally import Tally

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.compute.distributed import World
    from t2t_torch.train.batch import Batch
    from t2t_torch.train.task import Task, TrainSource


@dataclasses.dataclass
class Learner:
    """What a training loop works with.

    Attributes:
      task: what is trained.
      model: whose weights are saved.
      network: the model, compiled, or what sums its gradients over processes.
      optimizer: of the model's parameters.
      finish_gradients: turns summed gradients into the optimizer's.
      weight_noise: moves the weights besides, if it is asked for.
      learning_rate: a function of the steps done; None where the optimizer has its own.
      source: where the batches come from.
      batches: endless (number of the global batch, batch on the device).
      accumulate: micro-batches of a step in this process.
      precision: the type of number that the network computes with.
      average: the running mean of the weights, if there is one.
      tally: what happened since the last report.
      device: where the model computes.
      processes: that train together.
      recent: (steps done before, batches) of the last two steps, as numbers that a GPU has found
        are known a step late.
    """

    task: Task
    model: nn.Module
    network: nn.Module
    optimizer: torch.optim.Optimizer
    finish_gradients: GradientFinisher
    weight_noise: WeightNoise | None
    learning_rate: Callable[[float], float] | None
    source: TrainSource
    batches: Iterator[tuple[int, Batch]]
    accumulate: int
    precision: Precision
    average: WeightAverage | None
    tally: Tally
    device: torch.device
    processes: int
    recent: collections.deque[tuple[int, list[tuple[int, Batch]]]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=2)
    )
    _has_updated: bool = False

    @classmethod
    def create(
        cls,
        task: Task,
        model: nn.Module,
        source: TrainSource,
        state: TrainerState,
        world: World,
        *,
        train_steps: int,
    ) -> Learner:
        """Makes what the loop of one process needs.

        Args:
          task: what is trained.
          model: on its device, with the weights that training goes on from.
          source: batches from `state.batches_consumed` on.
          state: where the run stands.
          world: the processes that train together.
          train_steps: steps at which the run ends.

        Raises:
          HParamsError: the model cannot be trained as hparams ask for.
        """
        hparams = task.hparams
        check_trainable(model, hparams, world.device)
        precision = Precision.of(hparams, world.device)
        if state.loss_scale:
            precision.load(state.loss_scale, state.loss_scale_steps)
        task.make_ready(model)
        wrapped = task.network(model, world)  # before the optimizer: it may replace parameters
        optimizer = task.optimizer(model)
        numbers = itertools.count(state.batches_consumed + world.rank, world.size)
        return cls(
            task=task,
            model=model,
            network=wrapped,
            optimizer=optimizer,
            finish_gradients=GradientFinisher.of(hparams, model, optimizer),
            weight_noise=WeightNoise.of(hparams, model),
            learning_rate=task.learning_rate(train_steps),
            source=source,
            batches=(
                (number, task.to_device(batch, world.device))
                for number, batch in zip(numbers, source, strict=False)
            ),
            accumulate=state.batches_per_step // world.size,
            precision=precision,
            average=WeightAverage.of(hparams, model),
            tally=Tally(world.device, state),
            device=world.device,
            processes=world.size,
        )

    def load(self, checkpoint: Checkpoint, state: TrainerState, world: World) -> None:
        """Takes the optimizer, the average and what the task remembers from a checkpoint.

        Raises:
          CheckpointError: it is of another model or optimizer.
        """
        self.task.restore(self.optimizer, state.task, checkpoint.task_tensors(), world)
        checkpoint.load_optimizer(self.optimizer, self.model)
        if self.average is not None:
            checkpoint.load_average(self.average, self.model)

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a part of the weights: then passes exchange them, too."""
        return is_sharded(self.network)

    def accumulating(self, *, more: bool) -> AbstractContextManager[None]:
        """Returns a context without exchange of gradients if more passes of the step follow."""
        return accumulating(self.network, more=more)

    def snapshot(self, state: TrainerState) -> Snapshot:
        """Copies the run's state; where it is divided, what this process holds of it."""
        kept = self.task.tensors_of_state()
        return Snapshot.take(self.model, self.optimizer, state, self.average, kept)

    def next_batches(self) -> list[tuple[int, Batch]]:
        """Returns this process's micro-batches of the next step, with their global numbers."""
        return list(itertools.islice(self.batches, self.accumulate))

    def gradients(self, batches: list[tuple[int, Batch]], state: TrainerState) -> Tensor:
        """Computes the gradients of a step's micro-batches; returns their totals, [4]."""
        self.recent.append((state.step, batches))
        at_step = getattr(self.model, "at_step", None)
        if at_step is not None:
            at_step(state.step)
        share_buffers(self.model, self.processes)
        totals = Backward(self, state.seed)(batches)
        if self.processes > 1 and not exchanges_gradients(self.network):
            average_gradients(self.model, self.processes)
        return totals

    def finish(self, totals: Tensor, state: TrainerState) -> Tensor:
        """Turns the summed gradients into those of the mean loss, clipped; returns their norm, [].

        Args:
          totals: of the step, over all processes, [4].
          state: where the run stands; gradients of what is frozen till later are dropped.
        """
        for group in self.optimizer.param_groups:
            if group.get("unfreeze_step", 0) > state.step:
                for parameter in group["params"]:
                    parameter.grad = None
        weight = self.task.divisor(totals, self.processes)
        if self.precision.scale is not None:
            weight = weight * self.precision.scale
        norm = self.finish_gradients(weight, self.processes, seed=state.seed, step=state.step)
        self.task.clip_gradients(self.model)
        return norm

    def update(self, state: TrainerState, loss: Tensor, norm: Tensor) -> None:
        """Does the update that follows `state.step` steps, and clears the gradients.

        Nothing moves if loss or norm are not finite.  torch's fused optimizers find that out on the
        device, so that no step waits.

        Args:
          state: where the run stands.
          loss: of the step, over all processes, [].
          norm: of its gradient, [].
        """
        if self.learning_rate is not None:
            rate = self.learning_rate(state.step) * state.plateau_factor
            for group in self.optimizer.param_groups:
                group["lr"] = rate * group.get("lr_scale", 1.0)
                group["updates"] = state.step
        found_inf = (~(loss + norm).isfinite()).float()
        optimizer: Any = self.optimizer
        if getattr(optimizer, "_step_supports_amp_scaling", False):  # as torch's GradScaler asks
            optimizer.found_inf = found_inf
            optimizer.step()
            del optimizer.found_inf
        elif not found_inf:
            optimizer.step()
        optimizer.zero_grad()
        if not self._has_updated:  # what could not be saved is told now, not after an hour
            optimizer_tensors(optimizer, self.model)
            self._has_updated = True
        if self.weight_noise is not None:
            groups = optimizer.param_groups
            self.weight_noise(groups, seed=state.seed, step=state.step, skipped=found_inf)
        self.precision.update(found_inf)
        self.task.after_update(optimizer, state, found_inf)
        after_step = getattr(self.model, "after_step", None)
        if after_step is not None:
            after_step()
        if self.average is not None:
            self.average.update(self.model, state.step + 1, state.mean_begun)
