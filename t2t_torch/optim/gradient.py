"""Clipping and noise before an optimizer update, and weight averages after it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.run.tensors import divided_as

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


_PER_RATE = 0.001  # tensor2tensor 1.15.7, utils/optimize.py, weight_noise


def check_noise(hparams: HParams) -> None:
    """Checks that noise is not combined with sharded weights.

    Raises:
      HParamsError: noise is enabled with `shard_weights`.
    """
    if hparams.shard_weights:
        names = ("grad_noise_scale", "weight_noise")
        hparams.refuse(names, " does not go with shard_weights=True. Set one of them to 0.")


def noise_like(
    tensors: Iterable[Tensor], *, seed: int, step: int, purpose: str
) -> Iterator[Tensor]:
    """Yields noise of deviation about 1 (0.88: it is cut off at 2) in the shape of each tensor.

    As tensor2tensor adds noise to gradients and weights: a normal cut off at two deviations.  It is
    a function of (seed, step), not of a stream: the same in every process, and after a resume.

    Args:
      tensors: tensors on one device, always in the same order.
      seed: seed of the run.
      step: number of steps done.
      purpose: index of the purpose; each has different noise.
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

    The body is everything outside the modalities.  Frozen weights are unchanged.

    Args:
      model: model that is trained.
      weight_noise: scale of the noise.
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
        """Returns the noise that hparams enable; None without noise.

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
          groups: parameter groups of the optimizer, with the learning rate of this update.
          seed: seed of the run.
          step: number of steps done before this update.
          skipped: [], 1 if the update was skipped; then no noise is added.
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
    """Finishes gradients: normalization, weight decay, noise, global norm, clipping.

    Losses are summed, not averaged, over tokens, micro-batches and processes.  The sum is divided
    once by the total weight of the step, so every token has the same weight.

    Args:
      parameters: named parameters of the model.
      clip_grad_norm: maximum global norm; 0 disables clipping.
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
        """Returns the finisher configured by hparams.

        Weight decay is part of the loss unless the optimizer implements it.

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
            zeroed=[
                (parameter, group.get("unfreeze_step", 0))
                for group in optimizer.param_groups
                for parameter in group["params"]
                if hparams.optimizer_zero_grads
            ],
        )

    @torch.no_grad()
    def __call__(
        self, weight: Tensor, processes: int = 1, *, seed: int = 0, step: int = 0
    ) -> Tensor:
        """Finishes the gradients in place.

        Args:
          weight: total weight of the loss over all micro-batches and processes, [].
          processes: number of processes whose gradients DistributedDataParallel has averaged
            instead of summed.
          seed: seed of the run, for the noise.
          step: number of steps done, for the noise.

        Returns:
          The global norm before clipping, [] float32.
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
            # Noise and decay are relative to the mean, which needs one more pass.
            torch._foreach_mul_(gradients, scale)
            scale = torch.ones_like(scale)
            if self._noise:
                noises = noise_like(gradients, seed=seed, step=step, purpose="gradients")
                for gradient, noise in zip(gradients, noises, strict=True):
                    gradient.add_(noise, alpha=self._noise)
            pairs = [(p.grad, p.detach()) for p in self._decayed if p.grad is not None]
            if pairs and self._weight_decay:
                decayed, parameters = map(list, zip(*pairs, strict=True))
                torch._foreach_add_(decayed, parameters, alpha=self._weight_decay)
        norm = _global_norm(gradients) * scale
        if self._clip:
            # clip_grad_norm_'s epsilon is left out: a norm of zero gives inf, and the minimum 1.
            scale = scale * torch.clamp(self._clip / norm, max=1.0)
        if self._clip or not adds:
            torch._foreach_mul_(gradients, scale)
        return norm


def _global_norm(gradients: list[Tensor]) -> Tensor:
    # Put together, a sparse one is another tensor: what the optimizer sees stays as it is.
    gradients = [g.coalesce().values() if g.is_sparse else g for g in gradients]
    total: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return total.full_tensor() if isinstance(total, DTensor) else total


class WeightAverage:
    """An exponential moving average (EMA), or the plain mean (SWA), of a model's parameters.

    After step s (from 1) the decay of the EMA is min(ema_decay, (1 + s) / (10 + s)), as in
    TensorFlow with a step: early weights are soon forgotten.  The mean is of the
    weights after steps swa_start_step, swa_start_step + swa_every ...; Izmailov et al. 2018,
    arXiv:1803.05407.  With `swa_patience` it begins when evaluations stop improving: Merity et al.
    2017, arXiv:1708.02182, algorithm 1.  What an update does depends on the step, the weights and
    the average alone, so that a resumed run has the same one.

    Parameters are averaged in float32; buffers are not averaged.

    Args:
      hparams: `ema_decay`; else `swa_every`, and `swa_start_step` or `swa_patience`, with which the
        mean starts at the step given to `update`.
      model: model that is trained; the EMA starts from its current weights.
    """

    def __init__(self, hparams: HParams, model: nn.Module) -> None:
        self._waits = hparams.swa_patience > 0
        self._decay = hparams.ema_decay
        self._start, self._every = hparams.swa_start_step, hparams.swa_every
        self._parameters = dict(model.named_parameters())
        self._average: dict[str, Tensor] = _copies(model) if self._decay else {}

    @classmethod
    def of(cls, hparams: HParams, model: nn.Module) -> WeightAverage | None:
        """Returns the average that hparams enable, for a model before its first step.

        Raises:
          HParamsError: both averages are enabled.
        """
        names = ("ema_decay", "swa_start_step", "swa_patience")
        names_set = [name for name in names if getattr(hparams, name)]
        if not names_set:
            return None
        if len(names_set) > 1:
            settings = " and ".join(f"{name}={getattr(hparams, name)}" for name in names_set)
            raise HParamsError(f"{settings} are two averages of the weights; set one of them to 0.")
        return cls(hparams, model)

    @torch.no_grad()
    def update(self, model: nn.Module, step: int, start: int = -1) -> None:
        """Adds the weights after `step` steps.

        Args:
          model: model that is trained.
          step: number of steps done.
          start: step after which a waiting mean has started; -1: not yet.
        """
        if self._waits:
            if start < 0:
                return
            self._start = start + 1
        share = self._share(step)
        if not share:
            return
        if not self._average:
            self._average = _copies(model)
            return
        weights = [parameter.detach().float() for parameter in model.parameters()]
        # lerp adds share * (weights - average): a weight that stands still stays what it is.
        torch._foreach_lerp_(list(self._average.values()), weights, share)

    def _share(self, step: int) -> float:
        """Returns the weight of the parameters after `step` steps in the updated average."""
        if self._decay:
            return 1.0 - min(self._decay, (1.0 + step) / (10.0 + step))
        rest = step - self._start
        return 1.0 / (rest // self._every + 1) if rest >= 0 and rest % self._every == 0 else 0.0

    def tensors(self) -> dict[str, Tensor]:
        """Returns the average by parameter name, float32; empty before the mean starts.

        The tensors are not copies.  A parameter with several names has only its first name.
        """
        return dict(self._average)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Loads the output of `tensors`.

        Raises:
          CheckpointError: names or shapes do not match this average.
        """
        shapes = {name: tensor.shape for name, tensor in self._average.items()}
        odd = sorted(tensors.keys() ^ self._parameters.keys()) if tensors else []
        odd += [name for name in shapes if name in tensors and tensors[name].shape != shapes[name]]
        if odd or (self._decay and not tensors):
            raise CheckpointError(
                "the average of the weights is of another model: it differs in "
                f"{', '.join(odd[:10]) or 'all'}. Resume with the hparams it was made with "
                "(hparams.json beside it)."
            )
        self._average = {
            name: divided_as(tensors[name].detach().to(p.device, torch.float32, copy=True), p)
            for name, p in self._parameters.items()
            if tensors
        }

    @contextlib.contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Context manager that replaces the weights by the average, and restores them exactly.

        Before the mean starts, the weights are unchanged.
        """
        if not self._average:
            yield
            return
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        _give(model, self._average)
        try:
            yield
        finally:
            _give(model, own)


def _copies(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.detach().to(torch.float32, copy=True)
        for name, parameter in model.named_parameters()
    }


@torch.no_grad()
def _give(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
