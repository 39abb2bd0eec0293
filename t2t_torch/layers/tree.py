"""How known transitions go over a stack: what stands on what, and what is composed of what.

All is found before anything is computed, so that a network need not go from transition to
transition: it goes by the height of the stack, and by the depth of what is composed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from t2t_torch.features import TreeFeature
from t2t_torch.layers.dropout import Dropout
from t2t_torch.text.encoder import EOS, NUM_RESERVED
from t2t_torch.text.tree import OPEN, REDUCE, SHIFT, SLOT, TransitionEncoder, are_of_requests

_Ints: TypeAlias = npt.NDArray[np.int64]

SHIFT_ID, REDUCE_ID = NUM_RESERVED, NUM_RESERVED + 1
"""The ids of the transitions that open nothing; all above open a constituent."""


class Height(NamedTuple):
    """What is pushed to one height of the stack.

    Attributes:
      count: of pushes.
      parents: what each stands on, as a place among the pushes of the height below, [count].
    """

    count: int
    parents: Tensor


class Structure(NamedTuple):
    """A batch of transitions.  N is the number of all: each of them pushes one vector.

    A *vector* is numbered from 1, 0 is a vector of zeros: first those of shifts and of opened
    constituents, in the order of `sources`, then those that are composed, depth after depth.

    Attributes:
      sources: where the vectors that are not composed come from: places in the words' [B * (S + 1)]
        and then the transitions' [B * T] vectors.
      composed: for each depth the vectors of its members, the opened constituent and then its
        children, filled up with 0; [number of them, most members].
      vectors: which vector each push is, in the order of heights, [N].
      heights: from the lowest.
      tops: for each transition the push that is the top of the stack before it, counted from 1 in
        the order of heights; 0 is an empty stack.  [B, T].
      fronts: how many words were taken before each transition.  [B, T].
    """

    sources: Tensor
    composed: list[Tensor]
    vectors: Tensor
    heights: list[Height]
    tops: Tensor
    fronts: Tensor


class _Stack(NamedTuple):
    """What is known of each transition, [B, T] each.

    Attributes:
      height: of the stack after it.
      parent: the transition whose push it stands on; -1 is none.
      depth: of composition; 0 where nothing is composed.
      owner: the transition that composes its push; -1 is none.
      order: its place among those that are composed together.
      front: words taken before it.
    """

    height: _Ints
    parent: _Ints
    depth: _Ints
    owner: _Ints
    order: _Ints
    front: _Ints


def structure_of(ids: Tensor, words: int) -> Structure:
    """Returns the structure of transitions.

    What is no tree is gone through all the same: a REDUCE without an open constituent composes
    the whole stack.

    Args:
      ids: of transitions, [B, T]; PAD and EOS push nothing.
      words: S, the most words of a row.
    """
    known = ids.cpu().numpy()
    pushes = known >= NUM_RESERVED
    stack = _walk(known)
    rows, times = pushes.nonzero()
    order = np.argsort(stack.height[rows, times], kind="stable")
    rows, times = rows[order], times[order]  # in the order of heights, [N]
    number, (sources, composed) = _vectors(known, stack, words)
    place = np.full((len(known), known.shape[1] + 1), -1)  # the last is that of no parent
    place[rows, times] = np.arange(len(rows))
    counts = np.bincount(stack.height[rows, times])[1:]
    ends = np.cumsum(counts)
    parents = place[rows, stack.parent[rows, times]]
    heights = []
    for i, (count, end) in enumerate(zip(counts.tolist(), ends.tolist(), strict=True)):
        below = parents[end - count : end] - (ends[i - 2] if i > 1 else 0) if i else parents[:0]
        heights.append(Height(count, _tensor(below, ids)))
    tops = np.pad(place[:, :-2], ((0, 0), (1, 0)), constant_values=-1) + 1
    return Structure(
        sources=_tensor(sources, ids),
        composed=[_tensor(members, ids) for members in composed],
        vectors=_tensor(number[rows, times], ids),
        heights=heights,
        tops=_tensor(np.where(pushes | (known > 0), tops, 0), ids),
        fronts=_tensor(stack.front, ids),
    )


def _tensor(values: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)


def _walk(ids: _Ints) -> _Stack:
    """Goes through the transitions, all rows at a time."""
    size, length = ids.shape
    row = np.arange(size)
    found = _Stack(*(np.full((size, length), fill) for fill in (0, -1, 0, -1, 0, 0)))
    stack = np.full((size, length + 1), -1)  # transitions; the first is that of an empty stack
    depths = np.zeros_like(stack)
    opened = np.zeros_like(stack)  # heights at which constituents stand open
    height, count, front = (np.zeros(size, np.int64) for _ in range(3))
    places = np.arange(length + 1)
    for t in range(length):
        now = ids[:, t]
        reduces, opens = now == REDUCE_ID, now > REDUCE_ID
        pushes = now >= NUM_RESERVED
        found.front[:, t] = front
        depth = np.zeros(size, np.int64)
        below = height
        if reduces.any():
            base = np.where(count > 0, opened[row, np.maximum(count - 1, 0)], 1)
            inside = (places >= base[:, None]) & (places <= height[:, None]) & reduces[:, None]
            rows, at = inside.nonzero()
            members = stack[rows, at]
            found.owner[rows, members] = t
            found.order[rows, members] = at - base[rows]
            depth = np.where(reduces, np.where(inside, depths, 0).max(1) + 1, 0)
            below = np.where(reduces, np.minimum(base - 1, height), height)
            count = np.maximum(count - reduces, 0)
        found.parent[:, t] = np.where(pushes, stack[row, below], -1)
        height = np.where(pushes, below + 1, height)
        found.height[:, t] = np.where(pushes, height, 0)
        found.depth[:, t] = depth
        stack[row, height] = np.where(pushes, t, stack[row, height])
        depths[row, height] = np.where(pushes, depth, depths[row, height])
        opened[row, count] = np.where(opens, height, opened[row, count])
        count = count + opens
        front = front + (now == SHIFT_ID)
    return found


def _vectors(ids: _Ints, stack: _Stack, words: int) -> tuple[_Ints, tuple[_Ints, list[_Ints]]]:
    """Numbers the vectors; returns the number of each push's, the sources, what is composed."""
    length = ids.shape[1]
    number = np.zeros_like(ids)
    rows, times = ((ids >= NUM_RESERVED) & (stack.depth == 0)).nonzero()
    number[rows, times] = np.arange(1, len(rows) + 1)
    of_words = rows * (words + 1) + np.minimum(stack.front[rows, times], words)
    of_labels = ids.shape[0] * (words + 1) + rows * length + times
    sources = np.where(ids[rows, times] == SHIFT_ID, of_words, of_labels)
    start = len(rows) + 1
    by_depth = []
    for depth in range(1, int(stack.depth.max(initial=0)) + 1):
        rows, times = (stack.depth == depth).nonzero()
        number[rows, times] = start + np.arange(len(rows))
        by_depth.append((rows, times, start))
        start += len(rows)
    composed = []
    owned, at = (stack.owner >= 0).nonzero()
    owners = stack.owner[owned, at]
    depths = stack.depth[owned, owners]
    for depth, (rows, _, start) in enumerate(by_depth, start=1):
        here = depths == depth
        whose = number[owned[here], owners[here]] - start
        places = stack.order[owned[here], at[here]]
        members = np.zeros((len(rows), int(places.max(initial=0)) + 1), np.int64)
        members[whose, places] = number[owned[here], at[here]]
        composed.append(members)
    return number, (sources, composed)


# Which transitions may follow, so that they build one tree over all words of a sentence.
#
# Dyer et al. 2016, "Recurrent Neural Network Grammars", arXiv:1602.07776, section 3.1; the turns of
# intents and slots as in Gupta et al. 2018, "Semantic Parsing for Task Oriented Dialog using
# Hierarchical Representations", arXiv:1810.07942, section 2.


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


# LSTMs over a stack: a push goes on from what it stands on, not from what came before it.
#
# Dyer et al. 2015, "Transition-Based Dependency Parsing with Stack Long Short-Term Memory",
# arXiv:1505.08075.


class StackLSTM(nn.Module):
    """Layers of LSTM over the pushes of many stacks.

    Args:
      size: H, of what is pushed and of the outputs.
      num_layers: L, one above the other.
      dropout: probability of zeroing what goes from a layer to the next.
    """

    def __init__(self, size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTMCell(size, size) for _ in range(num_layers))
        self.between = Dropout(dropout)

    def forward(self, x: Tensor, heights: Sequence[Height]) -> Tensor:
        """Returns the output after each push, of stacks that are known beforehand.

        All pushes to one height are computed together: what they stand on is one lower.

        Args:
          x: what is pushed, in the order of heights, [N, H].
          heights: from the lowest; N pushes in all.

        Returns:
          [N, H].
        """
        counts = [height.count for height in heights]
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, nn.LSTMCell)
            x = self.between(x) if number else x
            of_inputs = torch.addmm(layer.bias_ih + layer.bias_hh, x, layer.weight_ih.T)
            weight = layer.weight_hh.T
            outputs: list[Tensor] = []
            memory: Tensor | None = None
            for gates, height in zip(of_inputs.split(counts), heights, strict=True):
                cell = None
                if memory is not None:
                    hidden, cell = memory.index_select(0, height.parents).chunk(2, 1)
                    gates = torch.addmm(gates, hidden, weight)
                memory = torch.cat(_cell(gates, cell), 1)
                outputs.append(memory)
            x = torch.cat(outputs)[:, : x.size(1)] if outputs else x
        return x

    def push(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what the layers remember after one push to each of R stacks.

        Args:
          x: what is pushed, [R, H].
          hidden: outputs of the layers after what it stands on, [R, L, H].
          cell: [R, L, H].
        """
        hiddens, cells = [], []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, nn.LSTMCell)
            x = self.between(x) if number else x
            gates = torch.addmm(layer.bias_ih + layer.bias_hh, x, layer.weight_ih.T)
            gates = torch.addmm(gates, hidden[:, number], layer.weight_hh.T)
            x, c = _cell(gates, cell[:, number])
            hiddens.append(x)
            cells.append(c)
        return torch.stack(hiddens, 1), torch.stack(cells, 1)


def _cell(gates: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns output and cell, [R, H] each, of gates [R, 4 H] in PyTorch's order: i, f, g, o."""
    size = gates.size(1) // 4
    enter, keep = gates[:, : 2 * size].sigmoid().chunk(2, 1)
    new = enter * gates[:, 2 * size : 3 * size].tanh()
    cell = new if cell is None else torch.addcmul(new, keep, cell)
    return gates[:, 3 * size :].sigmoid() * cell.tanh(), cell
