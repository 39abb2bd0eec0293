"""A layer whose activations are not kept for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class CheckpointedLayer:
    """The forward pass of a layer, done again in the backward pass, with the same dropout.

    Attributes:
      inner: what is run: the layer's own pass, or its compiled one.

    Args:
      layer: whose `forward` it stands for.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self.inner = layer.forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the layer; nothing is recomputed in evaluation."""
        if self._layer.training and torch.is_grad_enabled():
            return checkpoint(self.inner, *inputs, use_reentrant=False, **named)
        return self.inner(*inputs, **named)
