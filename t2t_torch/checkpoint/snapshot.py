"""What a checkpoint will hold, copied away from a run that goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from t2t_torch.checkpoint.sharded import whole
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.checkpoint.weights import model_tensors, optimizer_tensors


class Average(Protocol):
    """A running mean of the weights, as `train.weight_average.WeightAverage` is one."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Returns the means by the parameters' names, of a shared one by its first."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back what `tensors` returned."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A state of a run in memory of its own, on the CPU.

    Attributes:
      state: where the run stands.
      weights: parameters and buffers; a shared one stands once.
      slots: of the optimizer, '<parameter>/<slot>'; None of an average of checkpoints.
      stateless: parameters for which the optimizer has no slots.
      average: the running mean of the parameters, if the run keeps one.
      averaged_steps: of the checkpoints that `weights` are the mean of; empty for a run's own.
    """

    state: TrainerState
    weights: Mapping[str, Tensor]
    slots: Mapping[str, Tensor] | None
    stateless: tuple[str, ...] = ()
    average: Mapping[str, Tensor] | None = None
    averaged_steps: tuple[int, ...] = ()

    @classmethod
    def take(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainerState,
        average: Average | None = None,
        *,
        keep: bool = True,
    ) -> Snapshot:
        """Copies a run's state; takes as long as copying takes.

        Where each process holds a part of the weights, all processes must take it.

        Args:
          model: of the run.
          optimizer: of the run.
          state: where the run stands.
          average: of the weights.
          keep: whether this process needs the copies.

        Raises:
          TypeError: the optimizer keeps something that is no tensor.
        """
        weights = model_tensors(model)  # first: it divides again what a pass has put together
        slots, stateless = optimizer_tensors(optimizer, model)
        return cls(
            state=state.model_copy(deep=True),
            weights=_own(weights, keep=keep),
            slots=_own(slots, keep=keep),
            stateless=stateless,
            average=_own(average.tensors(), keep=keep) if average is not None else None,
        )


def _own(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Copies tensors to the CPU, whole and contiguous; from a GPU all at once."""
    copies, devices = {}, set()
    for name, part in tensors.items():
        tensor = whole(part.detach())
        if not keep:
            continue
        on_gpu = tensor.device.type == "cuda"
        # Pinned memory, which torch keeps for the next time: no detour, no wait for each tensor.
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
        copies[name] = copy.copy_(tensor, non_blocking=on_gpu)
        if on_gpu:
            devices.add(tensor.device)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return copies
