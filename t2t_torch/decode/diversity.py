"""Groups of hypotheses that keep away from each other.

Vijayakumar et al. 2018, "Diverse Beam Search for Improved Description of Complex Scenes", AAAI,
arXiv:1610.02424: with the Hamming distance.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from t2t_torch.decode.beam import NO_SCORE, Beam


class Less(NamedTuple):
    """What is taken off log-probabilities where a group chooses.

    Attributes:
      places: [R, K / G] off those of its hypotheses.
      ids: [R, V] off those of the next id.
    """

    places: Tensor
    ids: Tensor


class Diversity:
    """A beam of K hypotheses as G beams of K / G, of which each is a row of the search.

    The groups of an input stand side by side.  An id counts as less likely in a group for each
    living hypothesis of the groups before it that takes the same id in the same step; as in the
    authors' program a hypothesis bears that to its end, but only in the choice of what is gone on
    with: scores are the model's own.

    Used for one search.

    Args:
      groups: G, a divisor of K.
      strength: what each such hypothesis takes off a log-probability (nats).
    """

    def __init__(self, groups: int, strength: float) -> None:
        self.groups = groups
        self.strength = strength
        self._before: Tensor | None = None  # [R * G, K / G] what hypotheses bear
        self._added: Tensor | None = None  # [R * G, K / G] what was added in the last step

    def divided(self, beam: Beam) -> Beam:
        """Returns the beam of B rows as one of B * G."""
        return Beam(*(field.repeat_interleave(self.groups, 0) for field in beam))

    def group(self, beam: Beam, number: int) -> Beam:
        """Returns one group of each input."""
        return Beam(*(field[number :: self.groups] for field in beam))

    def together(self, groups: list[Beam]) -> Beam:
        """Returns the groups side by side again; undoes `group`."""
        return Beam(*(torch.stack(fields, 1).flatten(0, 1) for fields in zip(*groups, strict=True)))

    def all_done(self, done: Tensor) -> Tensor:
        """Returns for each group whether all of its input are done.  [R * G] bool."""
        return done.view(-1, self.groups).all(1).repeat_interleave(self.groups)

    def united(self, beam: Beam) -> Beam:
        """Returns the groups of each input as one beam, best first; undoes `divided`."""
        rows, limits = (field[:: self.groups] for field in (beam.rows, beam.limits))
        found = []
        for ids, scores in (
            (beam.alive_ids, beam.alive_log_probs),
            (beam.ended_ids, beam.ended_scores),
        ):
            scores, order = scores.reshape(len(rows), -1).sort(dim=1, descending=True, stable=True)
            ids = ids.reshape(len(rows), -1, ids.size(-1))
            index = order.unsqueeze(-1).expand_as(ids)
            found += [ids.gather(1, index), scores]
        return Beam(rows, limits, *found)

    def less(self, taken: Tensor, beam: Beam, number: int) -> Less:
        """Returns what a group's choice goes by.

        Args:
          taken: [R, V] how often the groups before it took each id in this step.
          beam: of all groups.
          number: of the group.
        """
        if self._before is None:
            self._before = torch.zeros_like(beam.alive_log_probs)
        return Less(self._before[number :: self.groups], self.strength * taken)

    def keep(self, added: list[Tensor]) -> None:
        """Keeps what each group's hypotheses, as they are chosen now, bear more than before."""
        self._added = torch.stack(added, 1).flatten(0, 1)

    def reorder(self, index: Tensor) -> None:
        """Keeps the hypotheses of these numbers.  [R', K / G] into R * (K / G) of the last step."""
        if self._before is None or self._added is None:
            return
        kept = index[:, 0] // index.size(1)
        self._before = self._before.flatten()[index] + self._added.index_select(0, kept)
        self._added = None


def add_taken(taken: Tensor, grown: Beam) -> None:
    """Counts the ids that living hypotheses took last, [R, V] of each row."""
    lives = (grown.alive_log_probs > NO_SCORE / 2).to(taken.dtype)
    taken.scatter_add_(1, grown.alive_ids[:, :, -1], lives)
