"""Words and phrases that have to be written, and a beam that finds where.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural
Machine Translation", NAACL, arXiv:1804.06609.  Banks that have too little leave their places to the
others, as each gives one hypothesis in turn.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from t2t_torch.decode.beam import Beam, Candidates, length_penalty, likeliest_of
from t2t_torch.decode.phrases import NOTHING, Phrases
from t2t_torch.text.encoder import EOS, PAD


class Progress(NamedTuple):
    """How far hypotheses are with their phrases, C of each of N at most; see `Phrases`.

    Attributes:
      phrases: of each hypothesis, P = 2 C: as they are inside a text, then as it begins.
      met: [N, C] which are written.
      begun: [N, P, L] at j: whether the last j ids are the phrase's first j, and it is longer.
      needed: [N] ids that are enough for what is left.
      wanted: [N, P] the next id of each phrase that is left; -1 where there is none.
      urgent: [N, P] those of `wanted` with which fewer are needed.
    """

    phrases: Phrases
    met: Tensor
    begun: Tensor
    needed: Tensor
    wanted: Tensor
    urgent: Tensor


class Constraints:
    """Phrases that each row has to have; a row without any is searched as without this.

    A phrase is met wherever its ids stand side by side.  A hypothesis ends only when all are; the
    hypotheses of a row are kept in banks by the ids of phrases that they have, and each bank gives
    its best in turn, the furthest first.  When no more ids are left in a row than its phrases need,
    nothing else is written.

    Args:
      phrases: of each row of the batch, each at least one id.
    """

    def __init__(self, phrases: Phrases) -> None:
        self._phrases = phrases

    def progress(self, ids: Tensor, rows: Tensor) -> Progress:
        """Returns how far hypotheses are.  ids [N, t] and the row [N] of each."""
        phrases = self._phrases.select(rows)
        inside, first = phrases.lengths.chunk(2, 1)  # [N, C] each
        met, begun = _either(phrases.within(ids)), phrases.begun(ids)
        left = ~met & (inside > 0)
        furthest = _furthest(begun)  # [N, P]
        # What has another form where a text begins takes that one there, and only there.
        goes_on = left if ids.size(1) else left & (first == 0)
        possible = torch.cat([goes_on, left & begun.chunk(2, 1)[1].any(-1)], 1)
        saved = torch.cat([inside, inside], 1) - phrases.lengths + furthest
        most = saved.masked_fill(~possible, -_NEVER).amax(1)
        following = phrases.ids.gather(-1, furthest.unsqueeze(-1)).squeeze(-1)
        return Progress(
            phrases,
            met,
            begun,
            needed=((inside * left).sum(1) - most).masked_fill(~left.any(1), 0),
            wanted=torch.where(possible, following, NOTHING),
            urgent=possible & (saved == most.unsqueeze(1)),
        )

    def restrict(self, scores: Tensor, progress: Progress, room: Tensor, given: Tensor) -> None:
        """Puts minus infinity where an id would leave a phrase out; see `Ban`.

        Args:
          scores: [N, V], which is changed.
          progress: of the hypotheses.
          room: [N] ids that may still be written before the end symbol.
          given: [N, V] the scores before anything was forbidden, which is what phrases keep where
            all else is.
        """
        goes_on = progress.needed > 0
        for identity in (PAD, EOS):
            scores[:, identity].masked_fill_(goes_on, -torch.inf)
        places = torch.where(progress.urgent, progress.wanted, scores.size(1))
        urgent = F.pad(torch.zeros_like(scores, dtype=torch.bool), (0, 1))
        urgent = urgent.scatter_(1, places, value=True)[:, :-1]
        pressed = goes_on & (progress.needed >= room)
        scores.masked_fill_(pressed.unsqueeze(1) & ~urgent, -torch.inf)
        stuck = goes_on & torch.isneginf(scores.amax(1))
        scores.copy_(torch.where(stuck.unsqueeze(1) & urgent, given, scores))

    def candidates(
        self, scores: Tensor, progress: Progress, beam: Beam, length: int, alpha: float
    ) -> Candidates:
        """Returns K continuations that go on and K that end, [R, 2 K]; see `candidates_of`.

        Args:
          scores: [N, V] log-probabilities, minus infinity of what may not follow.
          progress: of the N = R * K hypotheses.
          beam: of R rows.
          length: ids so far.
          alpha: exponent of the length penalty.
        """
        num_rows, beam_size = beam.alive_log_probs.shape
        width = min(scores.size(1), 2 * beam_size + progress.wanted.size(1))
        ids = _with_wanted(scores, progress.wanted, width)  # [N, W]
        needed = _needed_after(progress, ids).view(num_rows, -1)
        found = scores.gather(1, ids).view(num_rows, beam_size, width)
        found = found + beam.alive_log_probs.unsqueeze(-1)
        penalty = length_penalty(found.new_full((), length + 1.0), alpha)
        ids, found = ids.view(num_rows, -1), found.flatten(1) / penalty
        # By bank, what may not be last; then by score; then as they stand.
        possible = ~torch.isneginf(found)
        bank = torch.where(possible, needed, needed.max() + 1)
        order = found.sort(dim=1, descending=True, stable=True).indices
        order = order.gather(1, bank.gather(1, order).sort(dim=1, stable=True).indices)
        ends, bank = (ids == EOS).gather(1, order), bank.gather(1, order)
        possible, by_place = possible.gather(1, order), found.gather(1, order)
        turn = _place_in_bank(bank, possible & ~ends)
        # Of what ends, as much is looked at as in any search: the best 2 K, here of a bank.
        seen = ends & (_place_in_bank(bank, possible) < 2 * beam_size)
        going = torch.where(possible & ~ends, turn * (needed.max() + 2) + bank, _NEVER)
        chosen = [going.sort(dim=1, stable=True).indices[:, :beam_size]]
        scored = torch.where(seen, by_place, -torch.inf)
        chosen.append(scored.sort(dim=1, descending=True, stable=True).indices[:, :beam_size])
        kept = torch.where(torch.cat([going < _NEVER, seen], 1), 1, 0)
        kept = kept.gather(1, torch.cat([chosen[0], chosen[1] + ids.size(1)], 1)).bool()
        order = order.gather(1, torch.cat(chosen, 1))
        best = torch.where(kept, found.gather(1, order), -torch.inf)
        return Candidates(order // width, ids.gather(1, order), best * penalty, best)


_NEVER = 2**40  # above any turn


def _furthest(begun: Tensor) -> Tensor:
    """The most ids of each phrase that have just been written.  [N, ..., L] -> [N, ...]."""
    return (begun * torch.arange(begun.size(-1), device=begun.device)).amax(-1)


def _with_wanted(scores: Tensor, wanted: Tensor, width: int) -> Tensor:
    """The likeliest ids, the wanted ones among them, from the lowest on.  [N, V] -> [N, width]."""
    raised = F.pad(scores, (0, 1))
    places = torch.where(wanted == NOTHING, scores.size(1), wanted)
    more = scores.gather(1, wanted.clamp(min=0)) + _FIRST
    raised = raised.scatter(1, places, more)[:, :-1]
    return likeliest_of(raised, width)


_FIRST = 1e5  # more than log-probabilities differ


def _needed_after(progress: Progress, ids: Tensor) -> Tensor:
    """What is needed after one more id.  [N, W] -> [N, W]."""
    phrases = progress.phrases
    inside = phrases.lengths.chunk(2, 1)[0].unsqueeze(1)  # [N, 1, C]
    longer = progress.begun.unsqueeze(1) & (phrases.ids.unsqueeze(1) == ids[:, :, None, None])
    counts = torch.arange(1, longer.size(-1) + 1, device=ids.device)  # ids of the phrase then
    lengths = phrases.lengths[:, None, :, None]
    met_now = _either((longer & (counts == lengths)).any(-1).flatten(0, 1))
    met = progress.met.unsqueeze(1) | met_now.unflatten(0, ids.shape)  # [N, W, C]
    left = ~met & (inside > 0)
    partly = longer & (counts < lengths)
    saved = torch.cat([inside, inside], -1).unsqueeze(-1) - lengths + counts
    saved = (saved * partly).amax(-1) * torch.cat([left, left], -1)  # at least 0
    return (inside * left).sum(-1) - saved.amax(-1)


def _either(found: Tensor) -> Tensor:
    """Whether a phrase is there in one of its forms.  [N, P] -> [N, C]."""
    inside, first = found.chunk(2, 1)
    return inside | first


def _place_in_bank(bank: Tensor, counted: Tensor) -> Tensor:
    """How many of those that count stand before each in its bank.  [R, M], banks side by side."""
    before = counted.long().cumsum(1) - counted.long()
    first = F.pad(bank[:, 1:] != bank[:, :-1], (1, 0), value=True)
    places = torch.arange(bank.size(1), device=bank.device)
    start = torch.where(first, places, 0).cummax(1).values
    return before - before.gather(1, start)
