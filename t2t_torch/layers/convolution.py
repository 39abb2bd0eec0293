"""One vector of a text by convolutions of several widths and the greatest value of each filter.

Kim 2014, "Convolutional Neural Networks for Sentence Classification", arXiv:1408.5882.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TextConvolution(nn.Module):
    """Filters over windows of words, a ReLU, and the maximum over time.

    A text is filled up by a filter's width less one on both sides, as in the paper's program: each
    window that holds a word counts, and a text may be shorter than a filter.  Windows of padding
    alone do not count.

    Args:
      input_size: E.
      kernels: widths of filters, in positions.
      filters: of each width.

    Attributes:
      size: of the output.
    """

    def __init__(self, input_size: int, kernels: Sequence[int], filters: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, filters, kernel, padding=kernel - 1) for kernel in kernels
        )
        self.size = len(self.convolutions) * filters

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the greatest value of each filter; zeros of a text without words.

        Args:
          x: [B, S, E].
          mask: where there is data, [B, S] bool, from the left on.

        Returns:
          [B, size].
        """
        x = (x * mask[..., None].to(x.dtype)).transpose(1, 2)  # [B, E, S]
        found = []
        for convolution in self.convolutions:
            values = F.relu(convolution(x))  # [B, F, S + K - 1]
            more = values.size(-1) - mask.size(1)
            # Of n words the first n + K - 1 windows hold one.
            there = F.pad(mask, (more, 0), value=True) & mask.any(1, keepdim=True)
            # After a ReLU zero is the least.
            found.append((values * there[:, None].to(values.dtype)).amax(-1))
        return torch.cat(found, 1)
