"""Which type of number this machine computes a model's layers fastest with, by measurement.

What a processor says that it can do is not what it gains: bfloat16 without the instructions for it
is slower than float32, and with them two to ten times as fast.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.layers.attention import AttentionWeights

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World
    from t2t_torch.hparam import HParams

# Twice what two measurements on a busy machine differ by: a run begun twice chooses the same.
_MUCH_FASTER = 1.3
_POSITIONS = 32  # of a row
_MOST_TOKENS = 1024  # enough for a product to reach its speed
_TURNS = 8


@dataclasses.dataclass(frozen=True)
class Probe:
    """What was measured, and what is chosen.

    Attributes:
      choice: float32 or bfloat16.
      milliseconds: of a layer's products and attention with their backward passes, by type.
      gflops: floating-point operations of that in 1e9 a second, by type.
    """

    choice: str
    milliseconds: dict[str, float]
    gflops: dict[str, float]

    def __str__(self) -> str:
        """Says what was measured."""
        told = ", ".join(
            f"{name} {self.milliseconds[name]:.2f} ms ({self.gflops[name]:,.0f} GFLOP/s)"
            for name in self.milliseconds
        )
        return f"activation_dtype=auto: a layer takes {told}: {self.choice}"

    @classmethod
    def of(cls, hparams: HParams, device: torch.device) -> Probe:
        """Measures products and attention of a layer's shapes, forward and backward.

        Args:
          hparams: hidden_size, batch_size, and where there are such filter_size and num_heads.
          device: where the network will compute.
        """
        layer = _Layer(hparams, device)
        names = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        works = {name: functools.partial(layer.run, dtype) for name, dtype in names.items()}
        for work in works.values():
            _measured(work, device)  # the first time makes room and plans
        times = dict.fromkeys(names, math.inf)
        for _ in range(_TURNS):  # the least of several turns: others may be disturbed
            for name, work in works.items():
                times[name] = min(times[name], _measured(work, device))
        faster = times["bfloat16"] * _MUCH_FASTER < times["float32"]
        return cls(
            "bfloat16" if faster else "float32",
            {name: 1e3 * seconds for name, seconds in times.items()},
            {name: layer.operations / seconds / 1e9 for name, seconds in times.items()},
        )


def resolve(
    hparams: HParams,
    world: World,
    before: HParams | None = None,
    say: Callable[[str], None] | None = None,
) -> HParams:
    """Returns hparams whose `activation_dtype` is not auto; all processes choose as the leader.

    Args:
      hparams: asked for.
      world: the processes that train together.
      before: of the run that is gone on with: its choice holds, whatever is faster by now.
      say: is told what was measured; None prints it to stderr.
    """
    if hparams.activation_dtype != "auto":
        return hparams
    if before is not None and before.activation_dtype != "auto":
        return hparams.parse(f"activation_dtype={before.activation_dtype}", source="this run")
    chosen = 0
    if world.leads:
        probe = Probe.of(hparams, world.device)
        (say or functools.partial(print, file=sys.stderr))(str(probe))
        chosen = int(probe.choice == "bfloat16")
    name = "bfloat16" if world.from_leader(chosen) else "float32"
    return hparams.parse(f"activation_dtype={name}", source="probe of the machine")


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
        generator = torch.Generator().manual_seed(0)  # the run's own numbers stay as they are
        sizes = {"x": (tokens, width), "up": (inner, width), "down": (width, inner)}
        self._tensors = {
            name: (0.1 * torch.randn(size, generator=generator)).to(device).requires_grad_()
            for name, size in sizes.items()
        }
        self._attention = AttentionWeights(0.0).to(device)
        products = 2 * 2 * tokens * width * inner
        attention = 2 * 2 * tokens * _POSITIONS * width
        self.operations = 3 * (products + attention)  # the backward pass makes two of each

    @torch.enable_grad()
    def run(self, dtype: torch.dtype) -> None:
        """Does it once, with its backward pass."""
        x, up, down = (self._tensors[name] for name in ("x", "up", "down"))
        enabled = dtype is not torch.float32
        with torch.autocast(self._device.type, dtype=dtype, enabled=enabled):
            y = F.linear(F.linear(x, up).relu(), down)
            y = self._attention(*[self._split(y)] * 3)
        gradients = torch.autograd.grad(y.float().sum(), [x, up, down])
        del gradients

    def _split(self, y: Tensor) -> Tensor:
        """[rows * positions, width] -> [rows, heads, positions, width / heads]."""
        return y.view(self._rows, _POSITIONS, self._heads, -1).transpose(1, 2)


def _measured(work: Callable[[], None], device: torch.device) -> float:
    """Returns seconds of `work`."""
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
