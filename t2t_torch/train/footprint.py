"""The memory that training takes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from t2t_torch.compute.precision import Precision
from t2t_torch.train.task import total_loss

if TYPE_CHECKING:
    from t2t_torch.train.batch import Batch
    from t2t_torch.train.task import Task

_MOST_WORK = 4e10  # multiplications of a forward pass that a dry run may take: some seconds


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes that training takes, on the CPU.

    Attributes:
      weights: of parameters and buffers.
      gradients: of the parameters.
      optimizer: its state, after a step.
      activations: what a forward pass of the batch keeps for the backward pass.
      rows: of the batch.
      measured_rows: rows of it that the pass was done with; more were taken as so many times more.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    rows: int
    measured_rows: int

    @property
    def total(self) -> int:
        """All together."""
        return self.weights + self.gradients + self.optimizer + self.activations

    @classmethod
    def measure(cls, task: Task, model: nn.Module, batch: Batch) -> Footprint:
        """Does a forward pass and an optimizer step, and counts.  The model is changed by it.

        Args:
          task: makes the optimizer.
          model: on the CPU.
          batch: the largest there is.
        """
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        rows = len(next(iter(batch.values())))
        work = sum(p.numel() for p in parameters) * max(values.numel() for values in batch.values())
        measured_rows = max(1, min(rows, int(rows * _MOST_WORK / max(work, 1))))
        part = {name: values[:measured_rows] for name, values in batch.items()}
        with Precision.of(task.hparams, torch.device("cpu")).autocast():
            kept = _kept_by_forward(model.train(), part)
        optimizer = task.optimizer(model)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        state = [
            value
            for slots in optimizer.state.values()
            for value in slots.values()
            if isinstance(value, Tensor)
        ]
        return cls(
            weights=sum(map(_bytes, [*model.parameters(), *model.buffers()])),
            gradients=sum(map(_bytes, parameters)),
            optimizer=sum(map(_bytes, state)),
            activations=kept * rows // measured_rows,
            rows=rows,
            measured_rows=measured_rows,
        )


def _kept_by_forward(model: nn.Module, batch: Batch) -> int:
    """Returns the bytes of what is kept for the backward pass, the parameters left out."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}  # tensors are held, so that no address comes twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes(), tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = total_loss(model(batch))
    assert loss.sum.requires_grad
    return sum(size for size, _ in kept.values())


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
