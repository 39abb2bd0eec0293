"""What a training loop works with: model, optimizer, schedule, batches."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from t2t_torch.model import Loss
from t2t_torch.train.gradient import GradientFinisher
from t2t_torch.train.tally import Tally

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.hparam import HParams
    from t2t_torch.model import Output
    from t2t_torch.train.distributed import World
    from t2t_torch.train.task import Batch, Task, TrainSource


@dataclasses.dataclass(frozen=True)
class Learner:
    """What a training loop works with.

    Attributes:
      model: whose weights are saved.
      network: the model, or what sums its gradients over processes.
      optimizer: of the model's parameters.
      finish_gradients: turns summed gradients into the optimizer's.
      learning_rate: a function of the steps done.
      batches: endless (number of the global batch, batch on the device).
      accumulate: micro-batches of a step in this process.
      tally: what happened since the last report.
    """

    model: nn.Module
    network: nn.Module
    optimizer: torch.optim.Optimizer
    finish_gradients: GradientFinisher
    learning_rate: Callable[[float], float]
    batches: Iterator[tuple[int, Batch]]
    accumulate: int
    tally: Tally

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
        """
        hparams = task.hparams
        optimizer = task.optimizer(model.parameters())
        decays_itself = any(group.get("weight_decay") for group in optimizer.param_groups)
        numbers = itertools.count(state.batches_consumed + world.rank, world.size)
        return cls(
            model=model,
            network=world.wrap(model),
            optimizer=optimizer,
            finish_gradients=GradientFinisher(
                model.named_parameters(),
                clip_grad_norm=hparams.clip_grad_norm,
                weight_decay=0.0 if decays_itself else hparams.weight_decay,
            ),
            learning_rate=task.learning_rate(train_steps),
            batches=(
                (number, to_device(batch, world.device))
                for number, batch in zip(numbers, source, strict=False)
            ),
            accumulate=state.batches_per_step // world.size,
            tally=Tally(world.device, tokens=state.tokens),
        )

    def update(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Does the update that follows `step` updates, and clears the gradients.

        torch's fused optimizers do nothing if loss or norm are not finite; they find out on the
        device, so that no step waits.  `Tally` makes the run end at the next report.

        Args:
          step: updates done.
          loss: of the step, over all processes, [].
          norm: of its gradient, [].
        """
        rate = self.learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if all(group.get("fused") for group in self.optimizer.param_groups):
            found_inf = (~(loss + norm).isfinite()).float()
            self.optimizer.found_inf = found_inf  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad()


def total_loss(output: Output) -> Loss:
    """Returns the loss of a batch: of several targets the sum, each with the examples as weight.

    (`T2TModel.forward` gives each of several targets that weight.)  Their weights differ where an
    example lacks a target; the mean of them still adds up over batches.
    """
    losses = output.losses.values()
    sums = torch.stack([loss.sum for loss in losses])
    weights = torch.stack([loss.weight.float() for loss in losses])
    return Loss(sums.sum(), weights.mean())


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Returns the batch where the model computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def autocast(hparams: HParams, device: torch.device) -> torch.autocast:
    """Returns the context of `activation_dtype`: bfloat16 activations, or no change."""
    enabled = hparams.activation_dtype == "bfloat16"
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
