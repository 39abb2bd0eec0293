"""What is known of each word: one vector for each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Gazetteer, WordCharacters, WordShape
from t2t_torch.hparam import HParams
from t2t_torch.modality import Modality

_CHARACTER_SIZE = 32  # of a character's vector
_KERNEL = 3  # characters that a filter sees


class WordModality(Modality):
    """What is known of each word: one vector for each, [B, W, H].  An input only.

    Args:
      bottom: makes it.
    """

    def __init__(self, bottom: nn.Module) -> None:
        super().__init__()
        self.bottom = bottom

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Makes it for an input."""
        if is_target:
            raise HParamsError(f"a {type(feature).__name__} can be an input, but no target.")
        return cls(cls.bottom_of(feature, hparams))

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns what makes the vectors: a table of them."""
        return WordTable(feature.vocab_size, hparams.hidden_size)

    def mask(self, values: Tensor) -> Tensor:
        """Returns where there is something.  [B, W] or [B, W, width] -> [B, W] bool."""
        return values != 0 if values.dim() == 2 else (values != 0).any(-1)


class WordTable(nn.Embedding):
    """A vector for each id; that of 0 is zero.

    Args:
      vocab_size: ids.
      hidden_size: H.
    """

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__(vocab_size, hidden_size, padding_idx=0)


class CharacterFilters(nn.Module):
    """A convolution over a word's characters, and the greatest of each filter.

    Ma and Hovy 2016, arXiv:1603.01354.

    Args:
      vocab_size: ids of characters.
      hidden_size: H, filters.
    """

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, _CHARACTER_SIZE, padding_idx=0)
        self.filters = nn.Linear(_KERNEL * _CHARACTER_SIZE, hidden_size)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, W, width] -> [B, W, H]."""
        padded = F.pad(self.table(ids), (0, 0, 1, 1))  # [B, W, width + 2, C]
        windows = padded.unfold(2, _KERNEL, 1).flatten(3)  # [B, W, width, C * 3]
        found = self.filters(windows).masked_fill(ids[..., None] == 0, -torch.inf).amax(2)
        return torch.where((ids != 0).any(-1, keepdim=True), found, 0.0)


class WordShapeModality(WordModality):
    """The shape of each word."""

    serves = WordShape


class WordCharactersModality(WordModality):
    """The characters, or bytes, of each word."""

    serves = WordCharacters

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns the filters."""
        return CharacterFilters(feature.vocab_size, hparams.hidden_size)


class GazetteerModality(WordModality):
    """The word lists that each word is on: the sum of their vectors by their weights."""

    serves = Gazetteer

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns the sums, [B, W, H]; `<name>_weights` is in the batch."""
        entries = self.bottom(batch[name])  # type: ignore[misc]
        return (entries * batch[f"{name}_weights"][..., None]).sum(2)
