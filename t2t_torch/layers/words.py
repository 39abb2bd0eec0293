"""Where words stand among the ids of their text."""

from __future__ import annotations

import torch
from torch import Tensor

from t2t_torch.features import Features, WordStarts


class WordPlaces:
    """Goes from the positions of a text's ids to its words and back.

    Where each word has one id, the two are the same.

    Args:
      features: the problem's.
    """

    def __init__(self, features: Features) -> None:
        self._starts = {
            note.of: name for name, note in features.notes.items() if isinstance(note, WordStarts)
        }

    def at_words(self, text: str, hidden: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Returns what stands at the first ids of a text's words.  [B, S, H] -> [B, W, H]."""
        if text not in self._starts:
            return hidden
        starts = features[self._starts[text]]  # [B, W]
        return hidden.gather(1, starts[..., None].expand(-1, -1, hidden.size(-1)))

    def at_ids(self, text: str, words: Tensor, ids: Tensor, features: dict[str, Tensor]) -> Tensor:
        """Puts vectors of words at the words' first ids, zeros elsewhere.

        Args:
          text: whose words.
          words: [B, W, H].
          ids: the text's own vectors, [B, S, ...].
          features: what `T2TModel.bottom` gives.

        Returns:
          [B, S, H].
        """
        if text not in self._starts:
            return words
        starts = features[self._starts[text]]  # [B, W]; what fills up adds zeros to position 0
        index = starts[..., None].expand_as(words)
        placed = words.new_zeros(*ids.shape[:2], words.size(-1))
        return placed.scatter_add(1, index, words)

    def mask(self, text: str, features: dict[str, Tensor]) -> Tensor:
        """Returns where a text has words.  [B, W] bool."""
        if text not in self._starts:
            return features[f"{text}_mask"]
        starts = features[self._starts[text]]
        # Only the first word starts at 0, which is also what fills up.
        return (starts != 0) | (torch.arange(starts.size(1), device=starts.device) == 0)
