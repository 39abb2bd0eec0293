"""Numeric precision of the network, and loss scaling for float16."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch import reporter
from t2t_torch.errors import HParamsError
from t2t_torch.layers.attention import AttentionWeights

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams


Model = TypeVar("Model", bound=nn.Module)

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# tensor2tensor 1.15.7, utils/optimize.py: ExponentialUpdateLossScaleManager.
_GOOD_STEPS = 2000  # steps until the scale grows
_GROWTH = 2.0
_DECAY = 0.5
_LEAST_SCALE = 1.0


def autocast(name: str, device: torch.device) -> torch.autocast:
    """Returns the autocast context for a precision.

    Args:
      name: float32, bfloat16 or float16; an unresolved auto means float32.
      device: the network's device.
    """
    dtype = _TYPES.get(name, torch.float32)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32)


def in_float32(model: Model) -> Model:
    """Switches a model to float32 and evaluation mode, whatever it was trained with; returns it.

    Args:
      model: a `T2TModel`, or an ensemble.
    """
    changed: Any = model.float().eval()
    changed.hparams = changed.hparams.replace(activation_dtype="float32")
    return model


def check_trainable(model: nn.Module, hparams: HParams, device: torch.device) -> None:
    """Checks that the device has kernels to train the model's LSTMs in the chosen precision.

    Args:
      model: the model; frozen LSTMs are ignored, as inference has a kernel.
      hparams: activation_dtype.
      device: the training device.

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
    """Numeric precision of the network's computation.

    Weights, their gradients and the optimizer stay float32.  float16 has a narrow range: the loss
    is multiplied by a scale before the backward pass, and the gradients are divided by it after.
    The scale is stored on the device, so no step waits for it.

    Attributes:
      name: float32, bfloat16 or float16.
      scale: factor of a summed loss, [] float32; None without scaling.

    Args:
      name: float32, bfloat16 or float16.
      device: the network's device.
      loss_scale: initial scale of the mean loss; 0 disables scaling.
      batch_size: tokens per batch: losses are sums over about this many.
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
        """Returns the precision set by hparams; also applies `float32_matmul_precision` in torch.

        Raises:
          HParamsError: `activation_dtype` is still auto.
        """
        name = hparams.activation_dtype
        if name == "auto":
            raise HParamsError(
                "activation_dtype=auto: choose first, with t2t_torch.distributed.precision.resolve("
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
        """Updates the scale after a step.

        Args:
          found_inf: 1 if the step's loss or gradient was not finite, equal in all processes; [].
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
        """Returns the scale of the mean loss (0 if none) and the good steps since its change."""
        if self.scale is None:
            return 0.0, 0
        return float(self.scale) * self._batch_size, int(self._steps)

    def load(self, scale: float, steps: int) -> None:
        """Restores the result of `state`, if both use scaling."""
        if scale and self.scale is not None:
            self._set(scale, steps)

    def _set(self, scale: float, steps: int) -> None:
        per_token = scale / self._batch_size
        self.scale = torch.full([], per_token, dtype=torch.float32, device=self._device)
        self._steps = torch.full([], steps, dtype=torch.int64, device=self._device)


# Twice the variation of measurements on a busy machine, so that repeated runs choose the same.
_MUCH_FASTER = 1.3
_CERTAIN = 3.0  # further turns cannot change the choice: emulated types take up to a second each
_POSITIONS = 32  # per row
_MOST_TOKENS = 1024  # enough for a matrix product to reach its speed
_TURNS = 8


@dataclasses.dataclass(frozen=True)
class Probe:
    """Measured speeds and the chosen precision.

    Processor flags do not predict the gain: bfloat16 without its instructions is slower than
    float32, and with them two to ten times as fast.

    Attributes:
      choice: the faster type: float32, or the other if it is much faster.
      milliseconds: time of a layer, forward and backward, by type.
      gflops: the same in 1e9 floating-point operations per second, by type.
    """

    choice: str
    milliseconds: dict[str, float]
    gflops: dict[str, float]

    def __str__(self) -> str:
        """Returns a description of the measurement."""
        return f"activation_dtype=auto: {self._measurement}: {self.choice}"

    @property
    def _measurement(self) -> str:
        described = ", ".join(
            f"{name} {self.milliseconds[name]:.2f} ms ({self.gflops[name]:,.0f} GFLOP/s)"
            for name in self.milliseconds
        )
        return f"a layer takes {described}"

    @property
    def warning(self) -> str:
        """A warning with the factor if float32 is faster by more than measurements vary, or ""."""
        single, other = (self.milliseconds[name] for name in self.milliseconds)
        if other < single * _MUCH_FASTER:
            return ""
        name = list(self.milliseconds)[1]
        return (
            f"warning: activation_dtype={name} is {other / single:,.1f} times slower than float32 "
            f"on this machine: {self._measurement}. Set activation_dtype=float32."
        )

    @classmethod
    def of(cls, hparams: HParams, device: torch.device, other: str = "bfloat16") -> Probe:
        """Measures a layer's products and attention, or its convolution, forward and backward.

        Args:
          hparams: batch_size; hidden_size, and filter_size and num_heads if present; or
            filter_sizes of convolutions.
          device: the network's device.
          other: the type that is compared with float32.
        """
        layer = (_ConvolutionLayer if hasattr(hparams, "filter_sizes") else _Layer)(hparams, device)
        names = {name: _TYPES[name] for name in ("float32", other)}
        works = {name: functools.partial(layer.run, dtype) for name, dtype in names.items()}
        for work in works.values():
            _measured(work, device)  # the first run allocates and plans
        times = dict.fromkeys(names, math.inf)
        for _ in range(_TURNS):  # the minimum of several, as other programs may interfere
            for name, work in works.items():
                times[name] = min(times[name], _measured(work, device))
            if max(times.values()) > _CERTAIN * min(times.values()):
                break
        faster = times[other] * _MUCH_FASTER < times["float32"]
        return cls(
            other if faster else "float32",
            {name: 1e3 * seconds for name, seconds in times.items()},
            {name: layer.operations / seconds / 1e9 for name, seconds in times.items()},
        )


def resolve(hparams: HParams, world: World, before: HParams | None = None) -> HParams:
    """Returns hparams with `activation_dtype` resolved; all processes use the main one's choice.

    On a CPU without instructions for bfloat16 `auto` is float32.  Warns of a type that is not
    `auto` and slower than float32, also of the one of a resumed run.

    Args:
      hparams: the requested hparams.
      world: the group of training processes.
      before: hparams of the resumed run, whose choice is kept.
    """
    if hparams.activation_dtype == "auto" and before is not None:
        hparams = hparams.parse(f"activation_dtype={before.activation_dtype}", source="this run")
    if hparams.activation_dtype != "auto":
        if world.leads:
            warn_if_slow(hparams, world.device)
        return hparams
    chosen = 0
    if world.leads and world.device.type == "cpu" and not multiplies_bfloat16():
        reporter.message("activation_dtype=auto: no instructions for bfloat16: float32")
    elif world.leads:
        probe = Probe.of(hparams, world.device)
        reporter.message(str(probe))
        chosen = int(probe.choice == "bfloat16")
    name = "bfloat16" if world.from_leader(chosen) else "float32"
    return hparams.parse(f"activation_dtype={name}", source="probe of the machine")


_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")


def multiplies_bfloat16() -> bool:
    """Returns whether the processor has instructions for products of bfloat16.

    True if it is unknown, as with a torch that does not report the capabilities of the processor.
    """
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return not capabilities or any(capabilities.get(name) for name in _INSTRUCTIONS)


def warn_if_slow(hparams: HParams, device: torch.device, name: str = "as_trained") -> None:
    """Warns if the type of the activations is slower than float32 on this machine.

    Args:
      hparams: of the model; see `Probe.of`.
      device: the network's device.
      name: the type; "as_trained": `activation_dtype` of hparams.
    """
    name = hparams.activation_dtype if name == "as_trained" else name
    warning = "" if name in ("auto", "float32") else Probe.of(hparams, device, name).warning
    if warning:
        reporter.message(warning)


class _Layer:
    """The work of a layer: two products, and attention between them."""

    def __init__(self, hparams: HParams, device: torch.device) -> None:
        width = hparams.hidden_size
        inner = int(getattr(hparams, "filter_size", 4 * width))
        self._heads = math.gcd(width, int(getattr(hparams, "num_heads", 1)))
        self._device = device
        tokens = max(_POSITIONS, min(hparams.batch_size, _MOST_TOKENS))
        self._rows = tokens // _POSITIONS
        tokens = self._rows * _POSITIONS
        generator = torch.Generator().manual_seed(0)  # leaves the run's random state unchanged
        sizes = {"x": (tokens, width), "up": (inner, width), "down": (width, inner)}
        self._tensors = {
            name: (0.1 * torch.randn(size, generator=generator)).to(device).requires_grad_()
            for name, size in sizes.items()
        }
        self._attention = AttentionWeights(0.0).to(device)
        products = 2 * 2 * tokens * width * inner
        attention = 2 * 2 * tokens * _POSITIONS * width
        self.operations = 3 * (products + attention)  # the backward pass has two for each

    @torch.enable_grad()
    def run(self, dtype: torch.dtype) -> None:
        """Runs forward and backward once."""
        x, up, down = (self._tensors[name] for name in ("x", "up", "down"))
        enabled = dtype is not torch.float32
        with torch.autocast(self._device.type, dtype=dtype, enabled=enabled):
            y = F.linear(F.linear(x, up).relu(), down)
            y = y.view(self._rows, _POSITIONS, self._heads, -1).transpose(1, 2)
            y = self._attention(y, y, y)
        gradients = torch.autograd.grad(y.float().sum(), [x, up, down])
        del gradients


_SIDE = 16  # of the pictures of the probe
_MOST_PICTURES = 32


class _ConvolutionLayer:
    """The work of a layer of a residual network: a convolution of 3 x 3, batch norm and ReLU."""

    def __init__(self, hparams: Any, device: torch.device) -> None:
        self._device = device
        channels, count = hparams.filter_sizes[-1] // 2, min(hparams.batch_size, _MOST_PICTURES)
        generator = torch.Generator().manual_seed(0)  # leaves the run's random state unchanged
        sizes = {"x": (count, channels, _SIDE, _SIDE), "filters": (channels, channels, 3, 3)}
        self._x, self._filters = (
            (0.1 * torch.randn(size, generator=generator)).to(device) for size in sizes.values()
        )
        self._x = self._x.contiguous(memory_format=torch.channels_last).requires_grad_()
        self._filters.requires_grad_()
        self._norm = torch.nn.BatchNorm2d(channels).to(device)
        self.operations = 3 * 2 * 9 * count * _SIDE**2 * channels**2

    @torch.enable_grad()
    def run(self, dtype: torch.dtype) -> None:
        """Runs forward and backward once."""
        enabled = dtype is not torch.float32
        with torch.autocast(self._device.type, dtype=dtype, enabled=enabled):
            y = self._norm(F.conv2d(self._x, self._filters, padding=1)).relu()
        gradients = torch.autograd.grad(y.float().sum(), [self._x, self._filters])
        del gradients


def _measured(work: Callable[[], None], device: torch.device) -> float:
    """Returns the duration of `work` in seconds."""
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
