"""The vector of a word from its characters or bytes.

Kim et al. 2016, "Character-Aware Neural Language Models", arXiv:1508.06615: filters of several
widths, the greatest value of each, highway layers.  With one width and no highway it is the
convolution of Ma and Hovy 2016, arXiv:1603.01354.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams

_CARRY = -2.0  # Srivastava et al. 2015, section 2.2: gates begin nearly closed


class Highway(nn.Module):
    """A layer that carries its input where its gate is closed, as it nearly is at first.

    Srivastava et al. 2015, "Highway Networks", arXiv:1505.00387.

    Args:
      size: F, of input and output.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        """[..., F] -> [..., F]."""
        # Added here, not in the gate's bias, which models set to 0 with all others.
        gate = torch.sigmoid(self.gate(x) + _CARRY)
        return gate * F.relu(self.transform(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Filters over a word's characters, the greatest value of each, highway layers.

    A filter is centred at each character of the word and sees zeros beyond its ends.  Where the
    filters are not as many as the result is wide, a linear map follows.

    Args:
      vocab_size: ids of characters or bytes; 0 is none.
      size: H, of a word's vector.
      hparams: `character_*`.

    Raises:
      HParamsError: the hparams do not fit together.
    """

    def __init__(self, vocab_size: int, size: int, hparams: HParams) -> None:
        super().__init__()
        kernels, counts = hparams.character_kernels, _filters(size, hparams)
        self._activation = hparams.character_activation
        self._kernels = kernels
        width = hparams.character_embedding_size
        self.table = nn.Embedding(vocab_size, width, padding_idx=0)
        # By name, not in a ModuleList: what stands there is a layer of the body.
        self.filters = nn.ModuleDict(
            {
                f"width{kernel}": nn.Linear(kernel * width, count)
                for kernel, count in zip(kernels, counts, strict=True)
            }
        )
        layers = range(1, hparams.character_highway_layers + 1)
        named = OrderedDict((f"layer{number}", Highway(sum(counts))) for number in layers)
        self.highway = nn.Sequential(named)
        self.projection = nn.Linear(sum(counts), size) if sum(counts) != size else nn.Identity()

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the vectors of words, zeros where there is none.  [B, W, width] -> [B, W, H]."""
        vectors, absent = self.table(ids), (ids == 0)[..., None]
        greatest = []
        for kernel, filters in zip(self._kernels, self.filters.values(), strict=True):
            before = (kernel - 1) // 2
            padded = F.pad(vectors, (0, 0, before, kernel - 1 - before))
            windows = padded.unfold(2, kernel, 1).flatten(3)  # [B, W, width, C * kernel]
            greatest.append(filters(windows).masked_fill(absent, -torch.inf).amax(2))
        there = ~absent.all(2)  # [B, W, 1]
        # Of activations that rise everywhere the greatest is that of the greatest value.
        found = torch.where(there, torch.cat(greatest, -1), 0.0)
        if self._activation != "none":
            found = torch.tanh(found) if self._activation == "tanh" else F.relu(found)
        return torch.where(there, self.projection(self.highway(found)), 0.0)


def _filters(size: int, hparams: HParams) -> tuple[int, ...]:
    """Returns how many filters of each kernel there are."""
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
