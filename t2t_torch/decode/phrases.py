"""Phrases, as ids, that are looked for in hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.text.encoder import PAD

NOTHING = -1
"""Stands where there is no id."""


class Phrase(NamedTuple):
    """A word or phrase that a text may have.

    Attributes:
      inside: its ids after other words.
      first: its ids where a text begins with it; empty if they are the same.
    """

    inside: tuple[int, ...]
    first: tuple[int, ...] = ()


class Phrases(NamedTuple):
    """Phrases of each row: P / 2 at most, first as they are inside a text, then as it begins.

    Attributes:
      ids: [B, P, L] int64, PAD after them.
      lengths: [B, P] int64, 0 where there is none.
    """

    ids: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, rows: Sequence[Sequence[Phrase]], device: torch.device) -> Phrases:
        """Returns the phrases of each row."""
        most = max((len(phrases) for phrases in rows), default=0)
        every = [ids for phrases in rows for phrase in phrases for ids in phrase]
        ids = torch.full((len(rows), 2 * most, max(map(len, every), default=0)), PAD)
        lengths = torch.zeros(len(rows), 2 * most, dtype=torch.int64)
        for row, phrases in enumerate(rows):
            for number, phrase in enumerate(phrases):
                for place, found in ((number, phrase.inside), (most + number, phrase.first)):
                    ids[row, place, : len(found)] = torch.tensor(found, dtype=torch.int64)
                    lengths[row, place] = len(found)
        return cls(ids.to(device), lengths.to(device))

    @property
    def _only_first(self) -> Tensor:
        """Which only stand where a text begins.  [P, 1] bool."""
        places = torch.arange(self.lengths.size(1), device=self.lengths.device)
        return (places >= self.lengths.size(1) // 2).unsqueeze(1)

    def select(self, rows: Tensor) -> Phrases:
        """Returns the phrases of rows of these numbers.  [N] integers."""
        return Phrases(self.ids.index_select(0, rows), self.lengths.index_select(0, rows))

    def begun(self, written: Tensor) -> Tensor:
        """Returns how much of each phrase stands at the end of what is written.

        Args:
          written: [B, t] ids.

        Returns:
          [B, P, L] bool: at j, whether the last j ids are the first j of the phrase, which is
          longer than that.
        """
        longest = self.ids.size(-1)
        padded = F.pad(written, (longest, 0), value=NOTHING)
        found = [torch.ones_like(self.lengths, dtype=torch.bool)]
        for count in range(1, longest):
            found.append((padded[:, None, -count:] == self.ids[:, :, :count]).all(-1))
        places = torch.arange(longest, device=written.device)
        ends_here = torch.stack(found[:longest], -1) & (places < self.lengths.unsqueeze(-1))
        return ends_here & (~self._only_first | (places == written.size(1)))

    def within(self, written: Tensor) -> Tensor:
        """Returns whether each phrase stands somewhere in what is written.

        [B, t] -> [B, P] bool, False where there is no phrase.
        """
        longest = self.ids.size(-1)
        windows = F.pad(written, (longest, 0), value=NOTHING).unfold(1, longest, 1)  # [B, t+1, L]
        # A window is compared from its end on: what is longer than the phrase does not count.
        places = torch.arange(longest, device=written.device) - longest + self.lengths[..., None]
        last = self.ids.gather(-1, places.clamp(min=0))[:, :, None]  # [B, P, 1, L]
        alike = (windows[:, None] == last) | (places < 0)[:, :, None]
        found = alike.all(-1)  # [B, P, t + 1], by where it ends
        ends = torch.arange(found.size(-1), device=found.device)
        found &= ~self._only_first | (ends == self.lengths.unsqueeze(-1))
        return found.any(-1) & (self.lengths > 0)

    def last(self) -> Tensor:
        """Returns the last id of each phrase; of none PAD.  [B, P]."""
        return self.ids.gather(-1, (self.lengths - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
