"""Stable sorting as ONNX's TopK, which takes the lower place of equals first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset20

_op: Any = opset20


def _sorted(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:
    """Writes `torch.sort(x, stable=True)` in ONNX."""
    size = _op.Reshape(_op.Gather(_op.Shape(x), _op.Constant(value_int=dim)), [1])
    found: tuple[Any, Any] = _op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)
    return found


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.aten.sort.stable: _sorted}
"""For `torch.onnx.export(custom_translation_table=...)`."""
