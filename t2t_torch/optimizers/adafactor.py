"""Adafactor, with tensor2tensor's formulas.

torch's version differs: its rate decays by itself, and it has no decay of type `adam`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2t_torch.optim.parameter_groups import PlainOptimizer
from t2t_torch.optim.settings import reads
from t2t_torch.registry import register_optimizer

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


_LEAST_SQUARE = 1e-30  # epsilon1 and epsilon2 of the paper's algorithm 4, and of tensor2tensor
_LEAST_SCALE = 1e-3


@register_optimizer
@reads(
    "optimizer_adafactor_beta1",
    "optimizer_adafactor_factored",
    "optimizer_adafactor_decay_type",
    "optimizer_adafactor_clipping_threshold",
    "optimizer_adafactor_multiply_by_parameter_scale",
    optimizer_adafactor_beta2=("optimizer_adafactor_decay_type", "adam"),
    optimizer_adafactor_memory_exponent=("optimizer_adafactor_decay_type", "pow"),
)
class Adafactor(PlainOptimizer):
    """Adam with a factored second moment of matrices, and update sizes relative to the weights.

    Shazeer and Stern 2018, arXiv:1804.04235; tensor2tensor 1.15.7, utils/adafactor.py.  Weights
    that tensor2tensor stores as several matrices (queries, keys and values, the shards of an
    embedding) and this library as one are treated as one matrix.

    Args:
      parameters: parameters or groups.
      hparams: reads those that begin with `optimizer_adafactor_`.
    """

    def __init__(self, parameters: Iterable[Any], hparams: HParams) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self._beta1 = hparams.optimizer_adafactor_beta1
        self._beta2 = hparams.optimizer_adafactor_beta2
        self._factored = hparams.optimizer_adafactor_factored
        self._decay_type = hparams.optimizer_adafactor_decay_type
        self._exponent = hparams.optimizer_adafactor_memory_exponent
        self._threshold = hparams.optimizer_adafactor_clipping_threshold
        self._scaled = hparams.optimizer_adafactor_multiply_by_parameter_scale

    def update(self, group: dict[str, Any], parameters: list[Any]) -> None:
        """See `PlainOptimizer.update`."""
        for parameter in parameters:
            slots = self.state[parameter]
            if not slots:
                self._begin(slots, parameter)
            slots["step"] += 1
            direction = self._direction(slots, parameter.grad)
            direction /= torch.clamp(_rms(direction) / self._threshold, min=1.0)
            direction *= group["lr"]
            if self._scaled:
                direction *= torch.clamp(_rms(parameter), min=_LEAST_SCALE)
            if self._beta1:
                direction = slots["first"].lerp_(direction, 1.0 - self._beta1)
            parameter.sub_(direction)

    def _begin(self, slots: dict[str, Tensor], parameter: Tensor) -> None:
        slots["step"] = torch.zeros(())  # on the CPU: reading it needs no synchronization
        if self._factored and parameter.ndim > 1:
            slots["rows"] = torch.zeros_like(parameter[..., 0])
            slots["columns"] = torch.zeros_like(parameter[..., 0, :])
        else:
            slots["second"] = torch.zeros_like(parameter)
        if self._beta1:
            slots["first"] = torch.zeros_like(parameter)

    def _direction(self, slots: dict[str, Tensor], gradient: Tensor) -> Tensor:
        """Returns the gradient divided by the root of its second moment."""
        new = 1.0 - self._decay(float(slots["step"]))
        square = gradient.square() + _LEAST_SQUARE
        if "second" in slots:
            return gradient * slots["second"].lerp_(square, new).rsqrt()
        rows = slots["rows"].lerp_(square.mean(-1), new)
        columns = slots["columns"].lerp_(square.mean(-2), new)
        by_row = (rows / rows.mean(-1, keepdim=True)).rsqrt()
        return gradient * by_row[..., None] * columns.rsqrt()[..., None, :]

    def _decay(self, step: float) -> float:
        """Returns the second moment's decay factor of update number `step`, from 1."""
        if self._decay_type == "adam":
            beta2: float = self._beta2
            return float(beta2 * (1.0 - beta2 ** (step - 1.0)) / (1.0 - beta2**step))
        return float(1.0 - step**-self._exponent)


def _rms(values: Tensor) -> Tensor:
    """Returns the root mean square, []."""
    return values.square().mean().sqrt()
