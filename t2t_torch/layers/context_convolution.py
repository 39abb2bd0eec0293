"""Convolutions over the words before, after and around each word.

Vu 2016, "Sequential Convolutional Neural Networks for Slot Filling in Spoken Language
Understanding", arXiv:1606.07783.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WindowConvolution(nn.Module):
    """A convolution over a window round each word, and the greatest of each filter in it.

    The window is filled up with zeros by a filter's width less one on both sides, as if it were a
    sentence by itself.  Each word is multiplied once with each column of a filter; windows only add
    these products up.

    Args:
      size: E of a word's vector.
      before: words of the window before its own.
      after: words behind it; below 0 the window ends before the word.
      kernels: widths of filters, in words.
      filters: of each width.
      hidden_size: H of what the filters are mapped to.
    """

    def __init__(
        self,
        size: int,
        before: int,
        after: int,
        kernels: Sequence[int],
        filters: int,
        hidden_size: int,
    ) -> None:
        super().__init__()
        self.before = before
        self.after = after
        self.kernels = tuple(kernels)
        self.columns = nn.ModuleList(
            nn.Linear(size, kernel * filters, bias=False) for kernel in kernels
        )
        self.bias = nn.Parameter(torch.zeros(len(self.kernels), filters))
        self.output = nn.Linear(len(self.kernels) * filters, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, E], zeros at padding -> [B, S, H]."""
        found = [
            F.relu(self._greatest(columns(x), kernel) + bias)
            for columns, kernel, bias in zip(self.columns, self.kernels, self.bias, strict=True)
        ]
        hidden: Tensor = self.output(torch.cat(found, -1))
        return hidden

    def _greatest(self, products: Tensor, kernel: int) -> Tensor:
        """Returns the greatest sum of a window.  [B, S, kernel * filters] -> [B, S, filters]."""
        length, width = products.size(1), self.before + self.after + 1
        products = F.pad(products, (0, 0, self.before, max(self.after, 0)))
        columns = products.chunk(kernel, -1)
        sums = []
        for first in range(1 - kernel, width):
            inside = range(max(first, 0), min(first + kernel, width))
            parts = [columns[place - first][:, place : place + length] for place in inside]
            sums.append(sum(parts[1:], parts[0]))
        return torch.stack(sums).amax(0)


class ContextConvolution(nn.Module):
    """Convolutions over the past, the future and the surroundings of each word, side by side.

    Args:
      size: E of a word's vector.
      context: words of the past and of the future, the word itself in both.
      around: words on each side that surround it.
      kernels: widths of filters, in words.
      filters: of each width.
      hidden_size: H of each of the three.
    """

    def __init__(
        self,
        size: int,
        context: int,
        around: int,
        kernels: Sequence[int],
        filters: int,
        hidden_size: int,
    ) -> None:
        super().__init__()
        reach = {"past": (context - 1, 0), "future": (0, context - 1), "around": (around, around)}
        self.sides = nn.ModuleDict(
            {
                name: WindowConvolution(size, before, after, kernels, filters, hidden_size)
                for name, (before, after) in reach.items()
            }
        )
        self.size = 3 * hidden_size

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, E], zeros at padding -> [B, S, 3 H]."""
        return torch.cat([side(x) for side in self.sides.values()], -1)
