"""Noise on gradients and weights, as tensor2tensor adds it: a normal cut off at two deviations.

It is a function of (seed, step), not of a stream: the same in every process, and after a resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

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
