"""What may not be written next: bans on ids, for search and for drawing.

Each has `forbid`, which puts minus infinity where an id may not follow.  A score of what is found
stays the model's own: nothing is made likelier where something is forbidden.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from t2t_torch.decode.phrases import Phrases
from t2t_torch.text.encoder import EOS, PAD


class Written(NamedTuple):
    """What is written so far.

    Attributes:
      ids: [N, t] int64, with what was given to begin with.
      rows: [N] the row of the batch that each belongs to.
      wanted: [N, P] ids that may follow although they repeat something; None: there are none.
    """

    ids: Tensor
    rows: Tensor
    wanted: Tensor | None = None


class Ban(Protocol):
    """Says what may not follow."""

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Puts minus infinity where an id may not follow.  `scores` [N, V] is changed."""


@dataclasses.dataclass(frozen=True)
class MinimumLength:
    """No end before a length is reached, and nothing that is no text in its place.

    Attributes:
      lengths: [B] ids that each row has at least, its beginning and the end symbol counted.
    """

    lengths: Tensor

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Forbids `EOS` and `PAD`; see `Ban`."""
        early = written.ids.size(1) + 1 < self.lengths[written.rows]
        for identity in (PAD, EOS):
            scores[:, identity].masked_fill_(early, -torch.inf)


@dataclasses.dataclass(frozen=True)
class RepeatedNgrams:
    """Nothing that would make n ids follow each other a second time.  Paulus et al. 2018, 2.5.

    Attributes:
      size: n.
    """

    size: int

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Forbids what ended the same n-1 ids before, but never `EOS`; see `Ban`."""
        ids, size = written.ids, self.size
        if ids.size(1) < size:
            return
        windows = ids.unfold(1, size, 1)  # [N, t - n + 1, n]
        last = ids[:, None, ids.size(1) - size + 1 :]
        ended = windows[:, :, -1]
        repeats = (windows[:, :, :-1] == last).all(-1) & (ended != EOS)
        if written.wanted is not None:
            repeats &= (ended.unsqueeze(-1) != written.wanted.unsqueeze(1)).all(-1)
        _forbid_where(scores, ended, repeats)


@dataclasses.dataclass(frozen=True)
class ForbiddenPhrases:
    """Words and phrases that may not be written.

    Attributes:
      phrases: of each row.
    """

    phrases: Phrases

    def forbid(self, scores: Tensor, written: Written) -> None:
        """Forbids the last id of a phrase after all that come before it; see `Ban`."""
        phrases = self.phrases.select(written.rows)
        before = (phrases.lengths - 1).clamp(min=0).unsqueeze(-1)
        about_to = phrases.begun(written.ids).gather(-1, before).squeeze(-1)
        _forbid_where(scores, phrases.last(), about_to & (phrases.lengths > 0))


def _forbid_where(scores: Tensor, ids: Tensor, forbidden: Tensor) -> None:
    """Puts minus infinity at ids, [N, C], where they are forbidden, [N, C] bool."""
    most = torch.where(forbidden, -torch.inf, torch.inf).to(scores.dtype)
    scores.scatter_reduce_(1, ids, most, "amin")
