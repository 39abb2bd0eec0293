"""Subwords of words in an ONNX graph: the longest ones, the most probable ones, or by merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_torch.export.graph import (
    LINE,
    Graph,
    Proxy,
    any_true,
    combine,
    following,
    latest,
    loop,
    places,
    shifted,
    take,
    true_places,
    where,
)
from t2t_torch.export.strings import NONE, look_up

_ROOT = 0
_PENALTY = 10.0  # of an unknown letter, beside the least probable piece
_END = 2**63 - 1


class Cut(NamedTuple):
    """Segmentation of a sequence of symbols.

    Attributes:
      begins: mask of the starts of pieces, [N] bool.
      ids: id of the longest piece that begins at each position, -1 for none, [N] int64.
    """

    begins: Proxy
    ids: Proxy


class PieceTrie:
    """Trie for greedy longest-match segmentation from the left: `subtoken_learner.cut`.

    Args:
      pieces: nonempty symbols of each piece, and its id.
      num_symbols: number of symbols; they are 0, 1, 2 etc.
    """

    def __init__(self, pieces: Mapping[tuple[int, ...], int], num_symbols: int) -> None:
        self._branches = num_symbols + 1
        self._edges: dict[int, int] = {}  # next node by node and symbol
        ids = [NONE]  # id of the piece that ends at each node
        for symbols, identity in pieces.items():
            node = _ROOT
            for symbol in symbols:
                edge = node * self._branches + symbol
                if edge not in self._edges:
                    self._edges[edge] = len(ids)
                    ids.append(NONE)
                node = self._edges[edge]
            ids[node] = identity
        self._ids = np.array(ids)

    def cut(self, symbols: Proxy, starts: Proxy) -> Cut:
        """Returns the segmentation of tokens.

        Args:
          symbols: symbols of the concatenated tokens, [N] int64; pieces have the last symbol of a
            token only at their end.
          starts: mask of the starts of tokens, [N] bool.
        """
        ids, lengths = self._descended(symbols, 1)
        return Cut(reached(starts, places(symbols) + lengths), ids)

    def matches(self, symbols: Proxy, longest: int) -> Proxy:
        """Returns the id of the piece of each length from 1 to `longest` at each position, or -1.

        Args:
          symbols: [N] int64.
          longest: length of the longest piece.

        Returns:
          [N, longest] int64.
        """
        return self._descended(symbols, longest)[0].Reshape([-1, longest])

    def _descended(self, symbols: Proxy, kept: int) -> tuple[Proxy, Proxy]:
        """Returns ids and lengths of the pieces at each position, [N * kept]; -1 and 0 for none.

        All positions descend the trie in parallel, one symbol per iteration, until all have ended.

        Args:
          symbols: [N] int64.
          kept: 1 for the longest piece alone, or the length of the longest one to keep all.
        """
        # Appends a symbol that no piece has, which ends every match.
        longer = symbols.Pad([0, 1], self._branches - 1)

        def descend(
            body: Graph, turn: Proxy, node: Proxy, place: Proxy, ids: Proxy, lengths: Proxy
        ) -> tuple[Proxy, ...]:
            node = look_up(node * self._branches + longer[place + turn], self._edges, NONE)
            goes_on = node > _ROOT
            node, place = (one.Compress(goes_on, axis=0) for one in (node, place))
            piece_ids = take(self._ids, node)
            is_piece = piece_ids >= 0
            at, piece_ids = (one.Compress(is_piece, axis=0) for one in (place, piece_ids))
            at = at * kept + turn if kept > 1 else at
            ids = ids.ScatterElements(at, piece_ids)
            lengths = lengths.ScatterElements(at, (turn + 1).Expand(at.Shape()))
            return any_true(goes_on), node, place, ids, lengths

        zeros = symbols * 0
        all_zeros = combine("Expand", 0, symbols.Shape() * kept)
        begin = (zeros, places(symbols), all_zeros - 1, all_zeros)
        _, _, ids, lengths = loop(symbols.graph, descend, *begin, kinds=[LINE] * 4)
        return ids, lengths


def reached(starts: Proxy, following: Proxy) -> Proxy:
    """Returns a mask of the positions reachable from any start.

    The step width doubles in each iteration, until an iteration reaches no new position.

    Args:
      starts: [N] bool.
      following: next position of each, N for the end, [N] int64.

    Returns:
      [N] bool.
    """

    def widen(body: Graph, turn: Proxy, met: Proxy, step: Proxy) -> tuple[Proxy, ...]:
        ahead = step.Compress(met == 1, axis=0)
        now = met.ScatterElements(ahead, combine("Expand", 1, ahead.Shape()))
        return any_true(now > met), now, step[step]

    met, beyond = starts.integers().Pad([0, 1], 0), starts.Shape()
    step = following.Concat(beyond, axis=0)
    met, _ = loop(starts.graph, widen, met, step, kinds=[LINE] * 2)
    return met[:beyond] == 1


def most_probable(
    letters: Proxy, begins: Proxy, pieces: Sequence[tuple[str, float]], unknown_piece: int
) -> tuple[Proxy, Proxy]:
    """Returns the numbers of the most probable pieces of words, and the word of each.

    Sums are in float64, and of equally probable ways that one is taken whose last piece is the
    longest, as by Hugging Face's tokenizers.

    Args:
      letters: characters of the words, [N] string.
      begins: mask of the first character of each word, [N] bool.
      pieces: text and log-probability of each piece.
      unknown_piece: number of the piece that stands for unknown letters.

    Returns:
      [M] int64 each; unknown letters beside each other are one piece.
    """
    scores = [score for _, score in pieces]
    alphabet = sorted({letter for token, _ in pieces for letter in token})
    numbers = {letter: number for number, letter in enumerate(alphabet)}
    spelled = {
        tuple(map(numbers.__getitem__, token)): number
        for number, (token, _) in enumerate(pieces)
        if token
    }
    most = max(map(len, spelled))
    symbols = look_up(letters, numbers, len(numbers))
    matches = PieceTrie(spelled, len(numbers)).matches(symbols, most)
    room = (following(begins) - places(begins)).Unsqueeze([1])  # pieces are inside words
    matches = where(np.arange(1, most + 1) <= room, matches, NONE)  # [N, most]
    score = take(np.array([*scores, -np.inf]), matches)  # of no piece the last one
    unknown = (matches < 0) & (np.arange(most) == 0)
    score = where(unknown, np.array(min(scores) - _PENALTY), score).Reshape([-1])
    chosen = _last_lengths(score, begins, most)
    # From the last letter of each word back, piece by piece.
    earlier = places(begins) - chosen
    earlier = where(earlier < latest(begins), begins.Shape(), earlier)
    is_last = shifted(begins.integers(), 1, 1) == 1
    end = true_places(reached(is_last, earlier))
    length, word = chosen[end], (begins.integers().CumSum(0) - 1)[end]
    found = matches.Reshape([-1])[(end + 1 - length) * most + (length - 1)]
    found = where(found < 0, unknown_piece, found)
    again = (found == unknown_piece) & (found == shifted(found, -1, NONE))
    again = again & (word == shifted(word, -1, NONE))
    return found.Compress(~again, axis=0), word.Compress(~again, axis=0)


def _last_lengths(score: Proxy, begins: Proxy, most: int) -> Proxy:
    """Returns the length of the last piece of the best way to each letter.  [N] int64.

    Args:
      score: log-probability of the piece of each length at each letter, [N * most] float64.
      begins: mask of the first letter of each word, [N] bool.
      most: length of the longest piece.
    """
    # The longest piece that ends at a letter comes first, as its start does.
    sizes = np.arange(most, 0, -1)

    def extend(
        body: Graph, turn: Proxy, start: Proxy, end: Proxy, best: Proxy, chosen: Proxy
    ) -> tuple[Proxy, ...]:
        letter = start + turn
        place = (letter.Unsqueeze([1]) + (1 - sizes)) * most + (sizes - 1)
        total = best + score[place.Max(0)]
        best = best.Concat(total.ReduceMax([1]), axis=1).Slice([1], [_END], [1])
        chosen = chosen.ScatterElements(letter, most - total.ArgMax(axis=1, keepdims=0))
        more = letter + 1 < end
        start, end, best = (one.Compress(more, axis=0) for one in (start, end, best))
        return any_true(more), start, end, best, chosen

    start = true_places(begins)
    none = np.array([*[-np.inf] * (most - 1), 0.0])
    at_start = combine("Expand", none, start.Shape().Concat([most], axis=0))
    state = (start, following(begins)[start], at_start, places(begins) * 0)
    kinds = [LINE, LINE, ("float64", [None, most]), LINE]
    return loop(begins.graph, extend, *state, kinds=kinds, first=any_true(begins))[-1]


def merge_pairs(
    symbols: Proxy, word: Proxy, ranks: Mapping[tuple[str, ...], int], numbers: Mapping[str, int]
) -> tuple[Proxy, Proxy]:
    """Returns the symbols of words, and the word of each, after all merges of BPE.  [M] int64 each.

    The best pair of each word is merged at all its places per iteration; at the first of them alone
    if what it makes is a part of a merge that ranks before it, and would come next.

    Args:
      symbols: numbers of the symbols, or `len(numbers)` for an unknown one, [M] int64.
      word: the word of each, 0, 1, 2 etc. without a gap, [M] int64.
      ranks: rank of each merge, 0, 1, 2 etc. in this order; lower ones are made first.
      numbers: number of each symbol.
    """
    size, none = len(numbers) + 1, len(ranks)
    by_key = {numbers[a] * size + numbers[b]: rank for (a, b), rank in ranks.items()}
    results = np.array([*(numbers[a + b] for a, b in ranks), 0])
    least: dict[str, int] = {}  # rank of the first merge of which it is a part
    for pair, rank in ranks.items():
        least |= {part: min(rank, least.get(part, rank)) for part in pair}
    alone = np.array([*(least.get(a + b, none) < rank for (a, b), rank in ranks.items()), False])

    def merge(body: Graph, turn: Proxy, symbols: Proxy, word: Proxy) -> tuple[Proxy, ...]:
        key = symbols * size + shifted(symbols, 1, 0)
        rank = look_up(key, {-1: none, **by_key}, none)  # never empty
        rank = where(word == shifted(word, 1, -1), rank, none)
        worst = word * 0 + none
        best = worst.ScatterElements(word, rank, reduction="min")[word]
        is_best = (rank == best) & (rank < none)
        # Pairs of equal symbols overlap: from the left, every second one is merged.
        makes = is_best & ((places(word) - latest(~is_best)).BitwiseAnd(1) == 1)
        if alone.any():
            at = where(makes, places(word), word.Shape())
            first = (word * 0 + word.Shape()).ScatterElements(word, at, reduction="min")
            makes = makes & (~take(alone, rank) | (first[word] == places(word)))
        merged = where(makes, take(results, rank), symbols)
        kept = shifted(makes.integers(), -1, 0) == 0
        return any_true(makes), merged.Compress(kept, axis=0), word.Compress(kept, axis=0)

    symbols, word = loop(symbols.graph, merge, symbols, word, kinds=[LINE] * 2)
    return symbols, word
