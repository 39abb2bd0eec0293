"""From the summed gradients of a step to the one that the optimizer sees."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class GradientFinisher:
    """Divides by the step's weight, decays, measures, clips; reads each gradient twice in all.

    Losses are summed, not averaged, over tokens, micro-batches and processes, so that the division
    by the step's total weight happens once, here: every token counts the same wherever it was
    computed.

    Args:
      parameters: the model's, with their names.
      clip_grad_norm: the largest global norm; 0 does not clip.
      weight_decay: rate of ½·rate·‖w‖², added to the loss, as tensor2tensor does; clipping and the
        norm see its gradient.  Vectors named `...bias` are left out, also tensor2tensor's rule.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        clip_grad_norm: float,
        weight_decay: float,
    ) -> None:
        named = list(parameters)
        self._parameters = [parameter for _, parameter in named]
        self._clip = clip_grad_norm
        self._weight_decay = weight_decay
        self._decayed = [p for name, p in named if not (p.ndim == 1 and name.endswith("bias"))]

    @torch.no_grad()
    def __call__(self, weight: Tensor, processes: int = 1) -> Tensor:
        """Finishes the gradients in place.

        Args:
          weight: [], of the loss, over all micro-batches and processes.
          processes: whose gradients DistributedDataParallel has averaged, where the sum is meant.

        Returns:
          the global norm before clipping, [] float32.
        """
        # A step of padding alone moves nothing; weights of rows may add up to less than one.
        scale = processes / torch.where(weight > 0, weight, 1.0).float()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if self._weight_decay:
            # The penalty's gradient is divided with the others: so it is multiplied before.
            self._decay(self._weight_decay / scale)
        norm = _global_norm(gradients) * scale
        if self._clip:
            # clip_grad_norm_'s epsilon is left out: a norm of zero gives inf, and the minimum 1.
            scale = scale * torch.clamp(self._clip / norm, max=1.0)
        torch._foreach_mul_(gradients, scale)
        return norm

    def _decay(self, rate: Tensor) -> None:
        pairs = [(p.grad, p.detach()) for p in self._decayed if p.grad is not None]
        if not pairs:
            return
        gradients, parameters = map(list, zip(*pairs, strict=True))
        torch._foreach_add_(gradients, torch._foreach_mul(parameters, rate))


def _global_norm(gradients: list[Tensor]) -> Tensor:
    norms: tuple[Tensor, ...] = torch._foreach_norm(gradients)
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total
