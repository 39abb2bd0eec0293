"""From the summed gradients of a step to the one that the optimizer sees."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


# Noise on gradients and weights, as tensor2tensor adds it: a normal cut off at two deviations.
#
# It is a function of (seed, step), not of a stream: the same in every process, and after a resume.


_PER_RATE = 0.001  # tensor2tensor 1.15.7, utils/optimize.py, weight_noise


def check_noise(hparams: HParams) -> None:
    """Refuses noise where each process holds other parts of the weights.

    Raises:
      HParamsError: it is asked for with `shard_weights`.
    """
    for name in ("grad_noise_scale", "weight_noise"):
        if getattr(hparams, name) and hparams.shard_weights:
            raise HParamsError(
                f"{name}={getattr(hparams, name)} does not go with shard_weights=True. Set one of "
                "them to 0."
            )


def noise_like(
    tensors: Iterable[Tensor], *, seed: int, step: int, purpose: str
) -> Iterator[Tensor]:
    """Yields noise of deviation about 1 (0.88: it is cut off at 2) in the shape of each tensor.

    Args:
      tensors: on one device, always in the same order.
      seed: of the run.
      step: steps done.
      purpose: noise for another purpose is another.
    """
    generator: torch.Generator | None = None
    for tensor in tensors:
        if generator is None:
            digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
            generator = torch.Generator(tensor.device)
            # The sign bit is left out: torch takes seeds below 2^63 on every device.
            generator.manual_seed(int.from_bytes(digest, "little") >> 1)
        yield nn.init.trunc_normal_(torch.empty_like(tensor), generator=generator)


class WeightNoise:
    """Moves the weights of the body after each step, by `weight_noise` x learning rate / 1000.

    The body is what is outside the modalities.  What is frozen is left alone.

    Args:
      model: whose weights.
      weight_noise: how much.
    """

    def __init__(self, model: nn.Module, weight_noise: float) -> None:
        self._scale = weight_noise * _PER_RATE
        self._body = {
            id(parameter)
            for name, parameter in model.named_parameters()
            if not name.startswith("modalities.")
        }

    @classmethod
    def of(cls, hparams: HParams, model: nn.Module) -> WeightNoise | None:
        """Returns the noise that hparams ask for.

        Raises:
          HParamsError: as `check_noise`.
        """
        check_noise(hparams)
        return cls(model, hparams.weight_noise) if hparams.weight_noise else None

    @torch.no_grad()
    def __call__(
        self, groups: Iterable[dict[str, Any]], *, seed: int, step: int, skipped: Tensor
    ) -> None:
        """Adds the noise of the update that follows `step` steps.

        Args:
          groups: of the optimizer, with the rate of this update.
          seed: of the run.
          step: steps done before this update.
          skipped: [], 1 if the update moved nothing; then the noise does not either.
        """
        moved = [
            (parameter, float(group["lr"]))
            for group in groups
            if group.get("unfreeze_step", 0) <= step
            for parameter in group["params"]
            if id(parameter) in self._body
        ]
        noises = noise_like((p for p, _ in moved), seed=seed, step=step, purpose="weights")
        for (parameter, rate), noise in zip(moved, noises, strict=True):
            parameter.add_(noise * ((1.0 - skipped) * (self._scale * rate)))


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
