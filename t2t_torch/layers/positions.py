"""Where a token stands."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MAX_TIMESCALE = 1.0e4  # tensor2tensor, `get_timing_signal_1d`


def sinusoids(positions: Tensor, hidden_size: int) -> Tensor:
    """Returns tensor2tensor's timing signal: sines, then cosines, not interleaved.

    Wavelengths grow from 2 pi to 2 pi * 10,000 in a geometric row.  Vaswani et al. 2017, section
    3.5, with the two halves side by side.

    Args:
      positions: [...] integers, from 0.
      hidden_size: width of the signal.

    Returns:
      [..., hidden_size] float32; an odd last channel is 0.
    """
    scales = hidden_size // 2
    increment = math.log(_MAX_TIMESCALE) / max(scales - 1, 1)
    steps = torch.arange(scales, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(steps * -increment)  # [..., scales]
    signal = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return torch.nn.functional.pad(signal, (0, hidden_size % 2))
