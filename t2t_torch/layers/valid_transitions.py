"""Which transitions may follow, so that they build one tree over all words of a sentence.

Dyer et al. 2016, "Recurrent Neural Network Grammars", arXiv:1602.07776, section 3.1; the turns of
intents and slots as in Gupta et al. 2018, "Semantic Parsing for Task Oriented Dialog using
Hierarchical Representations", arXiv:1810.07942, section 2.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from t2t_torch.features import TreeFeature
from t2t_torch.text.encoder import EOS
from t2t_torch.text.transition import SLOT, TransitionEncoder, are_of_requests
from t2t_torch.text.tree import OPEN, REDUCE, SHIFT

_NEVER, _END, _SHIFT, _REDUCE, _OPEN, _OPEN_OTHER, _OPEN_ANY = range(7)


@dataclasses.dataclass
class Progress:
    """How far the trees of R rows are built; a row that broke a rule once may end at any time.

    Attributes:
      left: words not yet taken, [R].
      kinds: of the open constituents, from the outermost, [R, D]: 0, or 1 of a slot, 2 of any.
      open: how many constituents are open, [R].
      fresh: whether the last transition opened one, [R] bool.
      begun: whether one was ever opened, [R] bool.
      room: how many transitions, the end symbol too, may still come, [R].
    """

    left: Tensor
    kinds: Tensor
    open: Tensor
    fresh: Tensor
    begun: Tensor
    room: Tensor

    def expand(self, hypotheses: int) -> Progress:
        """Returns it with each row `hypotheses` times, side by side."""
        rows = torch.arange(len(self.left), device=self.left.device)
        return self.reorder(rows.repeat_interleave(hypotheses))

    def reorder(self, index: Tensor) -> Progress:
        """Returns it with row `index[i]` in row i."""
        names = [field.name for field in dataclasses.fields(self)]
        return Progress(**{name: getattr(self, name).index_select(0, index) for name in names})


class ValidTransitions:
    """The rules, for the labels of a problem.

    SHIFT needs a word and an open constituent.  REDUCE needs something in the constituent, and
    another open one unless all words are taken.  A constituent opens while there are words, at most
    `max_open` in each other, and only if there is room to end all.  The end symbol, and nothing
    else, follows the tree.  Where all labels begin with IN: or SL:, the outermost constituent and
    those right in a slot are intents, and those right in an intent are slots.

    Args:
      feature: the target.
      max_open: the most constituents open at a time.
      device: of the tensors.
      allow_unknown: whether a constituent may have an unknown label, as right trees may.
    """

    def __init__(
        self,
        feature: TreeFeature,
        max_open: int,
        device: torch.device,
        *,
        allow_unknown: bool = True,
    ) -> None:
        encoder = feature.encoder
        assert isinstance(encoder, TransitionEncoder)
        self._max_open = max_open
        self._alternates = are_of_requests(encoder.labels)
        kinds = [_NEVER] * encoder.vocab_size
        kinds[EOS] = _END
        for name, kind in ((SHIFT, _SHIFT), (REDUCE, _REDUCE)):
            kinds[encoder.encode(name)[0]] = kind
        for label in encoder.labels:
            is_other = self._alternates and label.startswith(SLOT)
            kinds[encoder.encode(OPEN + label)[0]] = _OPEN_OTHER if is_other else _OPEN
        for identity in encoder.unknown_ids:
            kinds[identity] = _OPEN_ANY if allow_unknown else _NEVER
        self._kinds = torch.tensor(kinds, device=device)

    def start(self, words: Tensor, room: Tensor | None = None) -> Progress:
        """Returns the progress before the first transition.

        Args:
          words: of each row, [R].
          room: the most transitions of each row, the end symbol too, [R]; None is without limit.
        """
        nothing = torch.zeros_like(words)
        return Progress(
            left=words,
            kinds=words.new_zeros(len(words), self._max_open),
            open=nothing,
            fresh=nothing > 0,
            begun=nothing > 0,
            room=torch.full_like(words, 2**40) if room is None else room,
        )

    def after(self, ids: Tensor, progress: Progress) -> Progress:
        """Returns the progress after one transition of each row.  [R] ids; PAD changes nothing."""
        kind = self._kinds[ids]
        shifts, reduces, opens = kind == _SHIFT, kind == _REDUCE, kind >= _OPEN
        place = progress.open.clamp(max=self._max_open - 1)[:, None]  # where the next one opens
        opened = torch.where(opens, kind - _OPEN, progress.kinds.gather(1, place)[:, 0])
        return Progress(
            left=(progress.left - shifts.long()).clamp(min=0),
            kinds=progress.kinds.scatter(1, place, opened[:, None]),
            open=(progress.open + opens.long() - reduces.long()).clamp(0, self._max_open),
            fresh=torch.where(kind == _NEVER, progress.fresh, opens),
            begun=progress.begun | opens,
            room=progress.room - (kind != _NEVER).long(),
        )

    def valid(self, progress: Progress) -> Tensor:
        """Returns which transitions may follow, at least one.  [R, V] bool."""
        left, is_open = progress.left > 0, progress.open > 0
        ended = progress.begun & ~is_open
        reduce = is_open & ~progress.fresh & ((progress.open > 1) | ~left)
        # To open one costs its own end, too; all words, ends and the end symbol come after.
        enough = progress.left + progress.open + 3 <= progress.room
        opens = left & ~ended & (progress.open < self._max_open) & enough
        last = progress.kinds.gather(1, (progress.open - 1).clamp(min=0)[:, None])[:, 0]
        first = other = opens
        if self._alternates:
            first = opens & (~is_open | (last != 0))
            other = opens & is_open & (last != 1)
        rules = [torch.zeros_like(left), ended, left & is_open, reduce, first, other, opens]
        rules[_END] = ended | ~torch.stack(rules[_SHIFT:]).any(0)
        return torch.stack(rules, 1)[:, self._kinds]
