"""Convolutions over words and characters, with max pooling; and of pictures.

Kim 2014, "Convolutional Neural Networks for Sentence Classification", arXiv:1408.5882.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Image
from t2t_torch.hparam import HParams
from t2t_torch.layers.initialization import fill_truncated


class TextConvolution(nn.Module):
    """Convolutions of several widths, a ReLU, and max pooling over time.

    As in the paper's code, a text is padded on both sides by the filter width minus one: each
    window that contains a word counts, and a text may be shorter than a filter.  Windows of padding
    only are ignored.

    Args:
      input_size: E.
      kernels: filter widths, in positions.
      filters: number of filters of each width.
      padded: False: only windows that are full of words count, or the first of a shorter text.

    Attributes:
      size: width of the output.
    """

    def __init__(
        self, input_size: int, kernels: Sequence[int], filters: int, *, padded: bool = True
    ) -> None:
        super().__init__()
        self.padded = padded
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, filters, kernel, padding=kernel - 1) for kernel in kernels
        )
        self.size = len(self.convolutions) * filters

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the maximum of each filter; zeros for a text without words.

        Args:
          x: [B, S, E].
          mask: True where there is data, [B, S] bool, left-aligned.

        Returns:
          [B, size].
        """
        x = (x * mask[..., None].to(x.dtype)).transpose(1, 2)  # [B, E, S]
        found = []
        for convolution in self.convolutions:
            values = F.relu(convolution(x))  # [B, F, S + K - 1]
            more = values.size(-1) - mask.size(1)
            # For n words the first n + K - 1 windows contain one.
            there = F.pad(mask, (more, 0), value=True) & mask.any(1, keepdim=True)
            if (
                not self.padded
            ):  # windows K - 1 to n - 1 are full; K - 1 is the first of a short one
                full = F.pad(mask, (0, more))
                first = torch.arange(values.size(-1), device=mask.device)
                there = there & (first >= more) & (full | (first == more))
            # Zero is the minimum after a ReLU.
            found.append((values * there[:, None].to(values.dtype)).amax(-1))
        return torch.cat(found, 1)


class SeparableConvolution(nn.Module):
    """Convolution of each unit over time, then a linear map of the units.

    Args:
      input_size: E.
      output_size: F.
      kernel: K positions that are seen.
    """

    def __init__(self, input_size: int, output_size: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(input_size, input_size, kernel, groups=input_size, bias=False)
        self.pointwise = nn.Linear(input_size, output_size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T + K - 1, E] -> [B, T, F]."""
        found: Tensor = self.pointwise(self.depthwise(x.transpose(1, 2)).transpose(1, 2))
        return found


class WindowConvolution(nn.Module):
    """A convolution over a window around each word, with max pooling inside the window.

    The window is padded with zeros on both sides by the filter width minus one, as if it were a
    separate sentence.  Each word is multiplied once with each filter column; windows only sum these
    products.

    Vu 2016, "Sequential Convolutional Neural Networks for Slot Filling in Spoken Language
    Understanding", arXiv:1606.07783.

    Args:
      size: E of a word's vector.
      before: words of the window before the current one.
      after: words after it; below 0 the window ends before the word.
      kernels: filter widths, in words.
      filters: number of filters of each width.
      hidden_size: H, output width.
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
        """Returns the maximum sum in a window.  [B, S, kernel * filters] -> [B, S, filters]."""
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
    """Concatenated convolutions over the past, the future and the neighbourhood of each word.

    Args:
      size: E of a word's vector.
      hparams: context_size (words of past and future, both including the word itself), around_size
        (words of the neighbourhood on each side), kernel_sizes (in words), num_filters (of each
        width), hidden_size (H of each of the three).
    """

    def __init__(self, size: int, hparams: Any) -> None:
        super().__init__()
        context, around, kernels = hparams.context_size, hparams.around_size, hparams.kernel_sizes
        filters, hidden_size = hparams.num_filters, hparams.hidden_size
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


_CARRY = -2.0  # Srivastava et al. 2015, section 2.2: gates are initially almost closed


class Highway(nn.Module):
    """A highway layer: passes its input through where its gate is closed.

    Srivastava et al. 2015, "Highway Networks", arXiv:1505.00387.

    Args:
      size: F, input and output width.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        """[..., F] -> [..., F]."""
        # Added here, not in the gate's bias, which models initialize to 0 with all others.
        gate = torch.sigmoid(self.gate(x) + _CARRY)
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Character convolutions of a word with max pooling and highway layers.

    A filter is centred at each character of the word and sees zeros beyond its ends.  If the number
    of filters differs from the output width, a linear map follows.

    Kim et al. 2016, "Character-Aware Neural Language Models", arXiv:1508.06615: filters of several
    widths, max pooling, highway layers.  With one width and no highway it is the convolution of Ma
    and Hovy 2016, arXiv:1603.01354.

    Args:
      vocab_size: number of character or byte ids; 0 is padding.
      size: H, width of a word's vector.
      hparams: `character_*`.

    Raises:
      HParamsError: the hparams are inconsistent.
    """

    def __init__(self, vocab_size: int, size: int, hparams: HParams) -> None:
        super().__init__()
        kernels, counts = hparams.character_kernels, _filters(size, hparams)
        self._activation = hparams.character_activation
        self._kernels = kernels
        width = hparams.character_embedding_size
        self.table = nn.Embedding(vocab_size, width, padding_idx=0)
        # By name, not in a ModuleList, whose members are treated as layers of the body.
        self.filters = nn.ModuleDict(
            {
                f"width{kernel}": nn.Linear(kernel * width, count)
                for kernel, count in zip(kernels, counts, strict=True)
            }
        )
        numbers = range(1, hparams.character_highway_layers + 1)
        named: dict[str, nn.Module] = {f"layer{i}": Highway(sum(counts)) for i in numbers}
        self.highway = nn.Sequential(OrderedDict(named))
        self.projection = nn.Linear(sum(counts), size) if sum(counts) != size else nn.Identity()

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the vectors of words, zeros at padding.  [B, W, width] -> [B, W, H]."""
        vectors, absent = self.table(ids), (ids == 0)[..., None]
        greatest = []
        for kernel, filters in zip(self._kernels, self.filters.values(), strict=True):
            before = (kernel - 1) // 2
            padded = F.pad(vectors, (0, 0, before, kernel - 1 - before))
            windows = padded.unfold(2, kernel, 1).flatten(3)  # [B, W, width, C * kernel]
            greatest.append(filters(windows).masked_fill(absent, -torch.inf).amax(2))
        there = ~absent.all(2)  # [B, W, 1]
        # Monotonic activations commute with the maximum.
        found = torch.where(there, torch.cat(greatest, -1), 0.0)
        if self._activation != "none":
            found = torch.tanh(found) if self._activation == "tanh" else F.relu(found)
        return torch.where(there, self.projection(self.highway(found)), 0.0)


def _filters(size: int, hparams: HParams) -> tuple[int, ...]:
    """Returns the number of filters of each kernel."""
    kernels, counts = hparams.character_kernels, hparams.character_filters
    good = kernels and min(kernels) > 0 and len(set(kernels)) == len(kernels)
    if not good or (counts and min(counts) < 1):
        raise HParamsError(
            f"character_kernels={list(kernels)},character_filters={list(counts)}: expected numbers "
            "of at least 1, each kernel once, as in character_kernels=[3,4]."
        )
    if counts and len(counts) != len(kernels):
        raise HParamsError(
            f"character_filters={list(counts)} has {len(counts)} numbers and character_kernels="
            f"{list(kernels)} has {len(kernels)}. Give one for each, or no character_filters."
        )
    if counts:
        return counts
    if size < len(kernels):
        raise HParamsError(
            f"character_kernels={list(kernels)}: {len(kernels)} kinds of filters for a vector of "
            f"{size} numbers. Name fewer, or give character_filters."
        )
    even, rest = divmod(size, len(kernels))
    return tuple(even + (place < rest) for place in range(len(kernels)))


def only_image(model: str, features: Features) -> Image:
    """Returns the picture that a model reads; HParamsError if there are several inputs."""
    image, *others = features.inputs.values()
    if others or not isinstance(image, Image):
        raise HParamsError(
            f"model {model!r} reads one picture; this problem has the inputs "
            f"{', '.join(features.inputs)}."
        )
    return image


def pad_same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Pads a picture with zeros as TensorFlow's "SAME": more at the end if the sum is odd.

    Args:
      x: [B, channels, height, width].
      kernel: side of the window.
      stride: step of the window.
    """
    sides: list[int] = []
    for size in (x.size(3), x.size(2)):
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        sides += [total // 2, total - total // 2]
    return F.pad(x, sides) if any(sides) else x


def batch_norm(channels: int, *, decay: float, epsilon: float) -> nn.BatchNorm2d:
    """Returns a batch norm of TensorFlow's `decay`, the part of the old average that is kept.

    In training its result depends on the batch: on no other example in evaluation and decoding.
    """
    return nn.BatchNorm2d(channels, eps=epsilon, momentum=1.0 - decay)


def scale_fan_in(module: nn.Module) -> None:
    """Initializes every convolution in `module` with variance 1 / fan-in, truncated normal.

    TensorFlow's `variance_scaling_initializer()`.
    """
    with torch.no_grad():
        for child in module.modules():
            if isinstance(child, nn.Conv2d):
                fill_truncated(child.weight, child.weight[0].numel() ** -0.5)
