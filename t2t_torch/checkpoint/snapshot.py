"""What a checkpoint will hold, copied away from a run that goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from t2t_torch.checkpoint.sharded import Share
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
      task: tensors that belong to `state.task`, by name; whole, of the first process.
      averaged_steps: of the checkpoints that `weights` are the mean of; empty for a run's own.
      share: of what processes hold parts of, which parts the tensors here are; None: all is whole.
    """

    state: TrainerState
    weights: Mapping[str, Tensor]
    slots: Mapping[str, Tensor] | None
    stateless: tuple[str, ...] = ()
    average: Mapping[str, Tensor] | None = None
    task: Mapping[str, Tensor] | None = None
    averaged_steps: tuple[int, ...] = ()
    share: Share | None = None

    @classmethod
    def take(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainerState,
        average: Average | None = None,
        task: Mapping[str, Tensor] | None = None,
    ) -> Snapshot:
        """Copies a run's state; takes as long as copying takes.

        Where each process holds a part of the weights, each copies its own parts, of the optimizer
        and the average, too.  Nothing is exchanged and nothing is put together.

        Args:
          model: of the run.
          optimizer: of the run.
          state: where the run stands.
          average: of the weights.
          task: tensors that belong to `state.task`.

        Raises:
          CheckpointError: the optimizer keeps something that is neither a tensor nor a number.
        """
        weights = model_tensors(model)  # first: it divides again what a pass has put together
        slots, stateless = optimizer_tensors(optimizer, model)
        tensors: dict[str, Mapping[str, Tensor]] = {"model": weights, "optimizer": slots}
        if average is not None:
            tensors["average"] = average.tensors()
        share, parts = Share.of(tensors)
        own = {kind: _own(named) for kind, named in parts.items()}
        return cls(
            state=state.model_copy(deep=True),
            weights=own["model"],
            slots=own["optimizer"],
            stateless=stateless,
            average=own.get("average"),
            task=_own(task or {}),
            share=share,
        )


def _own(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies tensors to the CPU, contiguous; from a GPU all at once."""
    copies, devices = {}, set()
    for name, tensor in tensors.items():
        on_gpu = tensor.device.type == "cuda"
        # Pinned memory, which torch keeps for the next time: no detour, no wait for each tensor.
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
        copies[name] = copy.copy_(tensor.detach(), non_blocking=on_gpu)
        if on_gpu:
            devices.add(tensor.device)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return copies
