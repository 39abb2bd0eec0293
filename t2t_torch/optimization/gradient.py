"""From the summed gradients of a step to the one that the optimizer sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t2t_torch.optimization.noise import check_noise, noise_like

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


class GradientFinisher:
    """Divides by the step's weight, decays, measures, clips.

    Losses are summed, not averaged, over tokens, micro-batches and processes, so that the division
    by the step's total weight happens once, here: every token counts the same wherever it was
    computed.

    Args:
      parameters: the model's, with their names.
      clip_grad_norm: the largest global norm; 0 does not clip.
      weight_decay: rate of ½·rate·‖w‖², added to the loss, as tensor2tensor does; clipping and the
        norm see its gradient.  Vectors named `...bias` are left out, also tensor2tensor's rule.
      grad_noise_scale: deviation of the noise that is added before the norm is taken.
      zeroed: parameters that get a gradient of zero if the step did not use them, each with the
        steps that must be done before it is trained.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        *,
        clip_grad_norm: float,
        weight_decay: float,
        grad_noise_scale: float = 0.0,
        zeroed: Iterable[tuple[nn.Parameter, int]] = (),
    ) -> None:
        named = list(parameters)
        self._parameters = [parameter for _, parameter in named]
        self._clip = clip_grad_norm
        self._weight_decay = weight_decay
        self._noise = grad_noise_scale
        self._zeroed = list(zeroed)
        self._decayed = [p for name, p in named if not (p.ndim == 1 and name.endswith("bias"))]

    @classmethod
    def of(
        cls, hparams: HParams, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> GradientFinisher:
        """Returns what finishes the gradients of a model as hparams say.

        Weights decay in the loss unless the optimizer makes them decay by itself.

        Raises:
          HParamsError: as `check_noise`.
        """
        check_noise(hparams)
        decays_itself = any(group.get("weight_decay") for group in optimizer.param_groups)
        return cls(
            model.named_parameters(),
            clip_grad_norm=hparams.clip_grad_norm,
            weight_decay=0.0 if decays_itself else hparams.weight_decay,
            grad_noise_scale=hparams.grad_noise_scale,
            zeroed=_with_unfreeze_steps(optimizer) if hparams.optimizer_zero_grads else (),
        )

    @torch.no_grad()
    def __call__(
        self, weight: Tensor, processes: int = 1, *, seed: int = 0, step: int = 0
    ) -> Tensor:
        """Finishes the gradients in place.

        Args:
          weight: [], of the loss, over all micro-batches and processes.
          processes: whose gradients DistributedDataParallel has averaged, where the sum is meant.
          seed: of the run: noise is drawn from it
          step: and from the steps done.

        Returns:
          the global norm before clipping, [] float32.
        """
        # A step of padding alone moves nothing; weights of rows may add up to less than one.
        scale = processes / torch.where(weight > 0, weight, 1.0).float()
        for parameter, unfreeze_step in self._zeroed:
            if parameter.grad is None and unfreeze_step <= step:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if not gradients:  # memory ran out for all of them, or all is frozen still
            return torch.zeros([], device=weight.device)
        adds = self._noise > 0 or self._weight_decay > 0
        if adds:
            # What is added is relative to the mean, so that is made first: one more pass.
            torch._foreach_mul_(gradients, scale)
            scale = torch.ones_like(scale)
            self._add_noise(gradients, seed, step)
            self._decay()
        norm = _global_norm(gradients) * scale
        if self._clip:
            # clip_grad_norm_'s epsilon is left out: a norm of zero gives inf, and the minimum 1.
            scale = scale * torch.clamp(self._clip / norm, max=1.0)
        if self._clip or not adds:
            torch._foreach_mul_(gradients, scale)
        return norm

    def _add_noise(self, gradients: list[Tensor], seed: int, step: int) -> None:
        if self._noise:
            noises = noise_like(gradients, seed=seed, step=step, purpose="gradients")
            for gradient, noise in zip(gradients, noises, strict=True):
                gradient.add_(noise, alpha=self._noise)

    def _decay(self) -> None:
        pairs = [(p.grad, p.detach()) for p in self._decayed if p.grad is not None]
        if pairs and self._weight_decay:
            gradients, parameters = map(list, zip(*pairs, strict=True))
            torch._foreach_add_(gradients, parameters, alpha=self._weight_decay)


def _with_unfreeze_steps(optimizer: torch.optim.Optimizer) -> Iterator[tuple[nn.Parameter, int]]:
    for group in optimizer.param_groups:
        yield from ((parameter, group.get("unfreeze_step", 0)) for parameter in group["params"])


def _global_norm(gradients: list[Tensor]) -> Tensor:
    # Put together, a sparse one is another tensor: what the optimizer sees stays as it is.
    gradients = [g.coalesce().values() if g.is_sparse else g for g in gradients]
    norms: tuple[Tensor, ...] = torch._foreach_norm(gradients)
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total.full_tensor() if isinstance(total, DTensor) else total
