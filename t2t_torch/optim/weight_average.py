"""A running average of the weights, which is evaluated and decoded in their place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from t2t_torch.checkpoint.tensors import divided_as
from t2t_torch.errors import CheckpointError, HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


class WeightAverage:
    """An exponential moving average (EMA), or the plain mean (SWA), of a model's parameters.

    After step s (from 1) the EMA keeps min(ema_decay, (1 + s) / (10 + s)) of itself, as
    TensorFlow's does when it knows the step: early weights are soon forgotten.  The mean is of the
    weights after steps swa_start_step, swa_start_step + swa_every ...; Izmailov et al. 2018,
    arXiv:1803.05407.  With `swa_patience` it begins when evaluations stop improving: Merity et al.
    2017, arXiv:1708.02182, algorithm 1.  What an update does depends on the step, the weights and
    the average alone, so that a resumed run has the same one.

    Parameters are averaged in float32; buffers are not averaged.

    Args:
      model: whose weights; the EMA begins with them as they are.
      ema_decay: of the EMA; 0 for the mean.
      swa_start_step: the step after which the mean begins.
      swa_every: steps between the weights that the mean is of.
      waits: whether the mean begins when `update` is told so, not at `swa_start_step`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        ema_decay: float,
        swa_start_step: int,
        swa_every: int,
        waits: bool = False,
    ) -> None:
        self._waits = waits
        self._decay = ema_decay
        self._start = swa_start_step
        self._every = swa_every
        self._parameters = dict(model.named_parameters())
        self._average: dict[str, Tensor] = _copies(model) if ema_decay else {}

    @classmethod
    def of(cls, hparams: HParams, model: nn.Module) -> WeightAverage | None:
        """Returns the average that hparams ask for, of a model that stands at its first step.

        Raises:
          HParamsError: they ask for both.
        """
        names = ("ema_decay", "swa_start_step", "swa_patience")
        asked = [name for name in names if getattr(hparams, name)]
        if not asked:
            return None
        if len(asked) > 1:
            told = " and ".join(f"{name}={getattr(hparams, name)}" for name in asked)
            raise HParamsError(f"{told} are two averages of the weights; set one of them to 0.")
        return cls(
            model,
            ema_decay=hparams.ema_decay,
            swa_start_step=hparams.swa_start_step,
            swa_every=hparams.swa_every,
            waits=hparams.swa_patience > 0,
        )

    @torch.no_grad()
    def update(self, model: nn.Module, step: int, begun: int = -1) -> None:
        """Adds the weights as they are after `step` steps.

        Args:
          model: whose weights.
          step: steps done.
          begun: the steps after which a mean that waits for it has begun; -1: it has not.
        """
        if self._waits:
            if begun < 0:
                return
            self._start = begun + 1
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
        """Returns how much the weights after `step` steps count in the average of all so far."""
        if self._decay:
            return 1.0 - min(self._decay, (1.0 + step) / (10.0 + step))
        rest = step - self._start
        return 1.0 / (rest // self._every + 1) if rest >= 0 and rest % self._every == 0 else 0.0

    def tensors(self) -> dict[str, Tensor]:
        """Returns the average by the parameters' names, float32; empty before the mean begins.

        These are the average's own tensors; a parameter that a model has under several names is
        here under its first.
        """
        return dict(self._average)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `tensors` has returned in another process.

        Raises:
          CheckpointError: names or shapes are not those of this average.
        """
        shapes = {name: tensor.shape for name, tensor in self._average.items()}
        odd = sorted(tensors.keys() ^ self._parameters.keys()) if tensors else []
        odd += [name for name in shapes if name in tensors and tensors[name].shape != shapes[name]]
        if odd or (self._decay and not tensors):
            raise CheckpointError(
                "the average of the weights is of another model: it differs in "
                f"{', '.join(odd[:10]) or 'all'}. Go on with the hparams it was made with "
                "(hparams.json beside it)."
            )
        self._average = {
            name: divided_as(tensors[name].detach().to(p.device, torch.float32, copy=True), p)
            for name, p in self._parameters.items()
            if tensors
        }

    @contextlib.contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Gives the model the average inside, and its own weights back after, to the bit.

        Before the mean begins the model keeps its own.
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
