"""A model whose weights are drawn anew."""

from __future__ import annotations

from torch import nn


def reset_parameters(model: nn.Module) -> None:
    """Draws the weights of every layer anew that can do it, the model itself included."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
