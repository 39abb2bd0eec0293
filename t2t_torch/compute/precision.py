"""The type of number that the network computes with, and the scale of the loss in float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

Model = TypeVar("Model", bound=nn.Module)

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# tensor2tensor 1.15.7, utils/optimize.py: ExponentialUpdateLossScaleManager.
_GOOD_STEPS = 2000  # after so many the scale grows
_GROWTH = 2.0
_DECAY = 0.5
_LEAST_SCALE = 1.0


def autocast(name: str, device: torch.device) -> torch.autocast:
    """Returns the context in which a network computes in a type of number.

    Args:
      name: float32, bfloat16 or float16; auto, of which nobody has chosen, is float32.
      device: where the network computes.
    """
    dtype = _TYPES.get(name, torch.float32)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32)


def in_float32(model: Model) -> Model:
    """Makes a model compute in float32, whatever it was trained with, and not train; returns it.

    Args:
      model: a `T2TModel`, or several as one.
    """
    changed: Any = model.float().eval()
    changed.hparams = changed.hparams.replace(activation_dtype="float32")
    return model


def check_trainable(model: nn.Module, hparams: HParams, device: torch.device) -> None:
    """Refuses to train LSTMs in a type of number in which the device has no kernel for it.

    Args:
      model: whose LSTMs are trained; a frozen one is only read from, which has a kernel.
      hparams: activation_dtype.
      device: where the model is trained.

    Raises:
      HParamsError: oneDNN, which computes LSTMs on a CPU, does not train them in float16.
    """
    trained = any(
        isinstance(part, nn.LSTM) and any(weight.requires_grad for weight in part.parameters())
        for part in model.modules()
    )
    if device.type != "cpu" or hparams.activation_dtype != "float16" or not trained:
        return
    try:
        with torch.enable_grad(), autocast(hparams.activation_dtype, device):
            nn.LSTM(1, 1, batch_first=True)(torch.zeros(1, 1, 1))
    except RuntimeError:
        raise HParamsError(
            "activation_dtype=float16: torch has no kernel that trains an LSTM in float16 on this "
            "CPU. Set activation_dtype=bfloat16 or float32, or train on a GPU."
        ) from None


class Precision:
    """The type of number that the network computes with.

    Weights, their gradients and the optimizer stay float32.  float16 has a narrow range: there the
    loss is multiplied by a scale before the backward pass, and the gradients divided by it after.
    The scale lives on the device, so that no step waits for it.

    Attributes:
      name: float32, bfloat16 or float16.
      scale: what a summed loss is multiplied by, [] float32; None if it is not scaled.

    Args:
      name: float32, bfloat16 or float16.
      device: where the network computes.
      loss_scale: of the mean loss at first; 0 scales nothing.
      batch_size: tokens of a batch: losses are sums over about so many.
    """

    def __init__(
        self, name: str, device: torch.device, *, loss_scale: float = 0.0, batch_size: int = 1
    ) -> None:
        self.name = name
        self._device = device
        self._batch_size = batch_size
        self.scale: Tensor | None = None
        self._steps = torch.zeros([], dtype=torch.int64, device=device)
        if loss_scale:
            self._set(loss_scale, 0)

    @classmethod
    def of(cls, hparams: HParams, device: torch.device) -> Precision:
        """Returns the precision that hparams ask for; sets `float32_matmul_precision`, torch's own.

        Raises:
          HParamsError: `activation_dtype` is auto: nobody has chosen yet.
        """
        name = hparams.activation_dtype
        if name == "auto":
            raise HParamsError(
                "activation_dtype=auto: choose first, with t2t_torch.compute.probe.resolve("
                "hparams, world), and keep what it returns with the run, as t2t-trainer does."
            )
        torch.set_float32_matmul_precision(hparams.float32_matmul_precision)
        scaled = name == "float16" and hparams.mixed_precision_optimizer_loss_scaler != "none"
        first = hparams.mixed_precision_optimizer_init_loss_scale if scaled else 0.0
        return cls(name, device, loss_scale=first, batch_size=hparams.batch_size)

    def autocast(self) -> torch.autocast:
        """Returns the context of a forward pass."""
        return autocast(self.name, self._device)

    def update(self, found_inf: Tensor) -> None:
        """Moves the scale after a step.

        Args:
          found_inf: 1 if the step's loss or gradient was not finite, the same in all processes; [].
        """
        if self.scale is None:
            return
        bad = found_inf > 0
        steps = torch.where(bad, 0, self._steps + 1)
        grows = steps >= _GOOD_STEPS
        factor = torch.where(grows, _GROWTH, 1.0)
        factor = torch.where(bad, _DECAY, factor)
        least = _LEAST_SCALE / self._batch_size
        self.scale = (self.scale * factor).clamp(min=least)
        self._steps = torch.where(grows, 0, steps)

    def state(self) -> tuple[float, int]:
        """Returns the scale of the mean loss (0 if there is none), and the good steps since it
        changed.
        """
        if self.scale is None:
            return 0.0, 0
        return float(self.scale) * self._batch_size, int(self._steps)

    def load(self, scale: float, steps: int) -> None:
        """Goes on from what `state` returned, if this scales and that did, too."""
        if scale and self.scale is not None:
            self._set(scale, steps)

    def _set(self, scale: float, steps: int) -> None:
        per_token = scale / self._batch_size
        self.scale = torch.full([], per_token, dtype=torch.float32, device=self._device)
        self._steps = torch.full([], steps, dtype=torch.int64, device=self._device)
