"""A layer that torch compiles, once for each shape that it is given before the first step."""

from __future__ import annotations

import shutil
from typing import Any

import torch
from torch import nn

from t2t_torch.errors import HParamsError

_BACKEND = "inductor"  # torch's own, and its default
_MANY = 10_000  # programs of one function; torch gives up after 8 by default


class CompiledLayer:
    """The forward pass of a layer, compiled for shapes that stay the same.

    All layers of a class share their programs.  `close` ends the warm-up: other shapes run as they
    would without it from then on, so that no step waits for a compiler.

    Args:
      layer: whose `forward` it stands for.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self._forward = layer.forward
        self._compiled = torch.compile(
            layer.forward, dynamic=False, fullgraph=True, backend=_BACKEND
        )
        self._known: set[tuple[object, ...]] = set()
        self._open = True

    def __call__(self, *inputs: Any) -> Any:
        """Runs the layer; evaluation, and unknown shapes after the warm-up, are not compiled."""
        if not (self._layer.training and torch.is_grad_enabled()):
            return self._forward(*inputs)
        signature = tuple(
            (each.shape, each.dtype) if isinstance(each, torch.Tensor) else each for each in inputs
        )
        if self._open:
            self._known.add(signature)
        elif signature not in self._known:
            return self._forward(*inputs)
        return self._compiled(*inputs)

    def close(self) -> None:
        """Compiles nothing more."""
        self._open = False


def check_compiler(device: torch.device) -> None:
    """Checks that torch can compile, and lets it compile as many shapes as there are.

    Raises:
      HParamsError: a compiler is missing.
    """
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise HParamsError(
            "compile=True needs a C++ compiler, and there is no g++ on the PATH. Install it "
            "(apt-get install g++), or leave compile=False."
        )
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise HParamsError(
                "compile=True on a GPU needs Triton: pip install triton. Or leave compile=False."
            )
    torch._dynamo.config.recompile_limit = _MANY
    torch._dynamo.config.accumulated_recompile_limit = _MANY
