"""Stack structure, constraints and stack LSTM for transition-based parsing.

The structure of known transitions is computed in advance, so a network can process a batch by stack
height and composition depth instead of transition by transition.
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
from t2t_torch.layers.recurrent import RowState
from t2t_torch.text.encoder import EOS, NUM_RESERVED
from t2t_torch.text.tree import OPEN, REDUCE, SHIFT, SLOT, are_of_requests

_Ints: TypeAlias = npt.NDArray[np.int64]

SHIFT_ID, REDUCE_ID = NUM_RESERVED, NUM_RESERVED + 1
"""Ids of transitions that open nothing; all higher ids open a constituent."""


class Height(NamedTuple):
    """Pushes to one height of the stack.

    Attributes:
      pushes: their number.
      parents: index of the element below each, among the pushes of the height below, [pushes].
    """

    pushes: int
    parents: Tensor


class Structure(NamedTuple):
    """Stack structure of a batch of N transitions, each of which pushes one vector.

    A *vector* is numbered from 1, 0 is a vector of zeros: first those of shifts and opened
    constituents, in the order of `sources`, then the composed ones, by increasing depth.

    Attributes:
      sources: origin of the vectors that are not composed: indices into the words' [B * (S + 1)]
        and then the transitions' [B * T] vectors.
      composed: for each depth the vectors of its members, the opened constituent and then its
        children, padded with 0; [number of constituents, maximum number of members].
      vectors: the vector of each push, in the order of heights, [N].
      heights: from the lowest.
      tops: for each transition the push at the top of the stack before it, counted from 1 in the
        order of heights; 0 is an empty stack.  [B, T].
      fronts: number of words consumed before each transition.  [B, T].
    """

    sources: Tensor
    composed: list[Tensor]
    vectors: Tensor
    heights: list[Height]
    tops: Tensor
    fronts: Tensor


class _Stack(NamedTuple):
    """Properties of each transition, [B, T] each.

    Attributes:
      height: stack height after it.
      parent: the transition that pushed the element below; -1 is none.
      depth: composition depth; 0 without composition.
      owner: the transition that composes its push; -1 is none.
      order: its index among the elements that are composed together.
      front: words consumed before it.
    """

    height: _Ints
    parent: _Ints
    depth: _Ints
    owner: _Ints
    order: _Ints
    front: _Ints


def structure_of(ids: Tensor, words: int) -> Structure:
    """Returns the structure of transitions.

    Invalid sequences are processed too: a REDUCE without an open constituent composes the whole
    stack.

    Args:
      ids: ids of transitions, [B, T]; PAD and EOS push nothing.
      words: S, maximum number of words of a row.
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
    """Processes the transitions, all rows at a time."""
    size, length = ids.shape
    row = np.arange(size)
    found = _Stack(*(np.full((size, length), fill) for fill in (0, -1, 0, -1, 0, 0)))
    stack = np.full((size, length + 1), -1)  # transitions; the first is that of an empty stack
    depths = np.zeros_like(stack)
    opened = np.zeros_like(stack)  # heights of open constituents
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
    """Numbers the vectors; returns the number of each push's, the sources and the compositions."""
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


_NEVER, _END, _SHIFT, _REDUCE, _OPEN, _OPEN_OTHER, _OPEN_ANY = range(7)


@dataclasses.dataclass
class ParseState(RowState):
    """Parsing state of R rows; a row that violated a constraint may end at any time.

    Attributes:
      left: words not yet consumed, [R].
      kinds: kinds of the open constituents, from the outermost, [R, D]: 0, 1 slot, 2 unknown.
      open: number of open constituents, [R].
      fresh: whether the last transition opened one, [R] bool.
      has_opened: whether one was ever opened, [R] bool.
      remaining: remaining number of transitions, including the end symbol, [R].
    """

    left: Tensor
    kinds: Tensor
    open: Tensor
    fresh: Tensor
    has_opened: Tensor
    remaining: Tensor


class ValidTransitions:
    """Transition constraints for the labels of a problem.

    SHIFT requires a word and an open constituent.  REDUCE requires a non-empty constituent, and
    another open one unless all words are consumed.  A constituent may open while words remain, with
    at most `max_open` nested, and only if the remaining length suffices to close all.  After the
    tree only the end symbol follows.  If all labels begin with IN: or SL:, the outermost
    constituent and those directly in a slot are intents, and those directly in an intent are slots.

    Dyer et al. 2016, "Recurrent Neural Network Grammars", arXiv:1602.07776, section 3.1;
    alternation of intents and slots as in Gupta et al. 2018, "Semantic Parsing for Task Oriented
    Dialog using Hierarchical Representations", arXiv:1810.07942, section 2.

    Args:
      feature: the target.
      max_open: maximum number of open constituents.
      device: device of the tensors.
      allow_unknown: allow constituents with an unknown label, as in reference trees.
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

    def start(self, words: Tensor, remaining: Tensor | None = None) -> ParseState:
        """Returns the initial state.

        Args:
          words: number of words of each row, [R].
          remaining: maximum number of transitions of each row, including the end symbol, [R]; None:
            unlimited.
        """
        nothing = torch.zeros_like(words)
        return ParseState(
            left=words,
            kinds=words.new_zeros(len(words), self._max_open),
            open=nothing,
            fresh=nothing > 0,
            has_opened=nothing > 0,
            remaining=torch.full_like(words, 2**40) if remaining is None else remaining,
        )

    def after(self, ids: Tensor, progress: ParseState) -> ParseState:
        """Returns the state after one transition of each row.  [R] ids; PAD changes nothing."""
        kind = self._kinds[ids]
        shifts, reduces, opens = kind == _SHIFT, kind == _REDUCE, kind >= _OPEN
        place = progress.open.clamp(max=self._max_open - 1)[:, None]  # the next to open
        opened = torch.where(opens, kind - _OPEN, progress.kinds.gather(1, place)[:, 0])
        return ParseState(
            left=(progress.left - shifts.long()).clamp(min=0),
            kinds=progress.kinds.scatter(1, place, opened[:, None]),
            open=(progress.open + opens.long() - reduces.long()).clamp(0, self._max_open),
            fresh=torch.where(kind == _NEVER, progress.fresh, opens),
            has_opened=progress.has_opened | opens,
            remaining=progress.remaining - (kind != _NEVER).long(),
        )

    def valid(self, progress: ParseState) -> Tensor:
        """Returns the allowed transitions, at least one.  [R, V] bool."""
        left, is_open = progress.left > 0, progress.open > 0
        ended = progress.has_opened & ~is_open
        reduce = is_open & ~progress.fresh & ((progress.open > 1) | ~left)
        # Opening also costs its own end; all words, ends and the end symbol follow.
        enough = progress.left + progress.open + 3 <= progress.remaining
        opens = left & ~ended & (progress.open < self._max_open) & enough
        last = progress.kinds.gather(1, (progress.open - 1).clamp(min=0)[:, None])[:, 0]
        first = other = opens
        if self._alternates:
            first = opens & (~is_open | (last != 0))
            other = opens & is_open & (last != 1)
        rules = [torch.zeros_like(left), ended, left & is_open, reduce, first, other, opens]
        rules[_END] = ended | ~torch.stack(rules[_SHIFT:]).any(0)
        return torch.stack(rules, 1)[:, self._kinds]


class StackLSTM(nn.Module):
    """LSTM layers over the pushes of many stacks.

    The state of a push continues from the element below, not from the previous one.  Dyer et al.
    2015, "Transition-Based Dependency Parsing with Stack Long Short-Term Memory", arXiv:1505.08075.

    Args:
      size: H, width of pushed vectors and outputs.
      num_layers: L, number of stacked layers.
      dropout: probability of zeroing a unit between layers.
    """

    def __init__(self, size: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTMCell(size, size) for _ in range(num_layers))
        self.between = Dropout(dropout)

    def forward(self, x: Tensor, heights: Sequence[Height]) -> Tensor:
        """Returns the output after each push of stacks known in advance.

        Computes all pushes to one height together, as the elements below are one lower.

        Args:
          x: pushed vectors, in the order of heights, [N, H].
          heights: from the lowest; N pushes in total.

        Returns:
          [N, H].
        """
        counts = [height.pushes for height in heights]
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, nn.LSTMCell)
            x = self.between(x) if number else x
            of_inputs = torch.addmm(layer.bias_ih + layer.bias_hh, x, layer.weight_ih.T)
            weight = layer.weight_hh.T
            outputs: list[Tensor] = []
            memory: Tensor | None = None
            for gates, height in zip(torch.split(of_inputs, counts), heights, strict=True):
                cell = None
                if memory is not None:
                    hidden, cell = memory.index_select(0, height.parents).chunk(2, 1)
                    gates = torch.addmm(gates, hidden, weight)
                memory = torch.cat(_cell(gates, cell), 1)
                outputs.append(memory)
            x = torch.cat(outputs)[:, : x.size(1)] if outputs else x
        return x

    def push(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the layer states after one push to each of R stacks.

        Args:
          x: pushed vectors, [R, H].
          hidden: layer outputs at the elements below, [R, L, H].
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
    """Returns output and cell, [R, H] each, from gates [R, 4 H] in PyTorch's order: i, f, g, o."""
    size = gates.size(1) // 4
    enter, keep = gates[:, : 2 * size].sigmoid().chunk(2, 1)
    new = enter * gates[:, 2 * size : 3 * size].tanh()
    cell = new if cell is None else torch.addcmul(new, keep, cell)
    return gates[:, 3 * size :].sigmoid() * cell.tanh(), cell
