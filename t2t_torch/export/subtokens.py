"""tensor2tensor's subtokens as ids, in a graph."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_torch.export.graph import (
    LINE,
    Graph,
    Proxy,
    any_true,
    before_each,
    combine,
    concat,
    following,
    latest,
    loop,
    places,
    shifted,
    take,
    where,
)
from t2t_torch.export.strings import (
    EncoderGraph,
    FieldText,
    NumberRows,
    WordIds,
    characters_of,
    characters_with,
    code_points,
    count_of,
    joined,
    look_up,
    of_flat,
    ranges,
)
from t2t_torch.text import tensor2tensor_subword
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

_ROOT = 0
_NO = -1


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
        ids = [_NO]  # id of the piece that ends at each node
        for symbols, identity in pieces.items():
            node = _ROOT
            for symbol in symbols:
                edge = node * self._branches + symbol
                if edge not in self._edges:
                    self._edges[edge] = len(ids)
                    ids.append(_NO)
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
        ids, lengths = self._longest(symbols)
        return Cut(_reached(starts, places(symbols) + lengths), ids)

    def _longest(self, symbols: Proxy) -> tuple[Proxy, Proxy]:
        """Returns the id and length of the longest piece at each position; length 0 for none.

        All positions descend the trie in parallel, one symbol per iteration, until all have ended.
        """
        # Appends a symbol that no piece has, which ends every match.
        longer = symbols.Pad([0, 1], self._branches - 1)

        def descend(
            body: Graph, turn: Proxy, node: Proxy, place: Proxy, ids: Proxy, lengths: Proxy
        ) -> tuple[Proxy, ...]:
            node = look_up(node * self._branches + longer[place + turn], self._edges, _NO)
            goes_on = node > _ROOT
            node, place = (one.Compress(goes_on, axis=0) for one in (node, place))
            piece_ids = take(self._ids, node)
            is_piece = piece_ids >= 0
            at, piece_ids = (one.Compress(is_piece, axis=0) for one in (place, piece_ids))
            ids = ids.ScatterElements(at, piece_ids)
            lengths = lengths.ScatterElements(at, (turn + 1).Expand(at.Shape()))
            return any_true(goes_on), node, place, ids, lengths

        zeros = symbols * 0
        begin = (zeros, places(symbols), zeros - 1, zeros)
        _, _, ids, lengths = loop(symbols.graph, descend, *begin, kinds=[LINE] * 4)
        return ids, lengths


def _reached(starts: Proxy, following: Proxy) -> Proxy:
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


_LINE_END = "\n"  # not in any alphabet
_NONE = -1
_POWERS = [10**i for i in range(6, -1, -1)]  # place values of the digits of a code point


class _Characters(NamedTuple):
    """The concatenated characters of all texts.

    Attributes:
      letters: characters, [N] string.
      kinds: 1 for letters and numbers, else 0, [N] int64.
      row: index of the text, [N] int64.
      counts: number of characters of each text, [B] int64.
      space: mask of spaces, [N] bool.
      first: mask of the first character of each text, [N] bool.
      last: mask of the last character of each text, [N] bool.
      lone: mask of single spaces between letters or numbers of one text, [N] bool.
    """

    letters: Proxy
    kinds: Proxy
    row: Proxy
    counts: Proxy
    space: Proxy
    first: Proxy
    last: Proxy
    lone: Proxy


class SubtokenGraph(EncoderGraph):
    """A `SubtokenEncoder` in a graph."""

    def __init__(self, encoder: SubtokenEncoder, graph: Graph, name: str) -> None:
        super().__init__(encoder, graph, name)
        alphabet = sorted(encoder.alphabet - {_LINE_END})
        self._numbers = {character: number for number, character in enumerate(alphabet)}
        pieces = {}
        for identity, piece in enumerate(encoder.subtokens):
            # Others are in no token: only the end of a token has the end mark, and a line end is
            # escaped.
            if piece and tensor2tensor_subword.END not in piece[:-1] and _LINE_END not in piece:
                pieces[tuple(self._numbers[character] for character in piece)] = identity
        self._trie = PieceTrie(pieces, len(alphabet))

    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns the ids of each text."""
        line = self._line(field)
        return self._cut(line, line.first)[0]

    def of_words(self, field: FieldText) -> WordIds:
        """Returns the ids of each text's words; a kept space before a word belongs to it."""
        line = self._line(FieldText(words=field.words))
        begins = line.first | line.space
        ids, before = self._cut(line, begins)
        return WordIds(ids, of_flat(before.Compress(begins, axis=0), field.word_counts))

    def _line(self, field: FieldText) -> _Characters:
        letters = field.letters
        mask = letters != ""
        row = mask.NonZero()[0]
        flat = letters.Reshape([-1]).Compress(mask.Reshape([-1]), axis=0)
        kinds = flat.RegexFullMatch(pattern=f"[{ranges(str.isalnum)}]").integers()
        first = row != shifted(row, -1, _NONE)
        last = row != shifted(row, 1, _NONE)
        space = flat == " "
        lone = space & (shifted(kinds, -1, 0) + shifted(kinds, 1, 0) == 2) & ~(first | last)
        return _Characters(flat, kinds, row, count_of(letters), space, first, last, lone)

    def _cut(self, line: _Characters, begins: Proxy) -> tuple[NumberRows, Proxy]:
        """Returns the ids of texts, and the number of ids of the text before each character.

        Args:
          line: characters of the texts.
          begins: mask of characters that always begin a token, [N] bool.
        """
        written = self._written(line, self._ends(line, begins))
        is_symbol = written >= 0
        sizes = is_symbol.integers().sum(1)
        symbols = written.Reshape([-1]).Compress(is_symbol.Reshape([-1]), axis=0)
        end = self._numbers[tensor2tensor_subword.END]
        cut = self._trie.cut(symbols, shifted(symbols, -1, end) == end)
        ids = cut.ids.Compress(cut.begins, axis=0)
        known = ids.Concat([0], axis=0).ReduceMin(keepdims=0) >= 0
        ids = self.graph.require(known, f"{self._name}: the vocabulary has no entry for it", ids)
        # Number of ids before each character, and before each text and after the last.
        before = before_each(cut.begins.integers())[before_each(sizes)]
        of_rows = before[before_each(line.counts)]
        lengths = (shifted(of_rows, 1, 0) - of_rows)[:-1]
        return of_flat(ids, lengths), before[:-1] - of_rows[line.row]

    def _ends(self, line: _Characters, begins: Proxy) -> Proxy:
        """Returns a mask of the characters that end a token.  [N] bool."""
        other = line.kinds != shifted(line.kinds, 1, _NONE)
        return other | (shifted(begins.integers(), 1, 1) == 1) | line.last

    def _written(self, line: _Characters, ends: Proxy) -> Proxy:
        """Returns the symbols of each escaped character: `tokenizer.escape`.

        Returns:
          [N, 11] int64, padded with -1.
        """
        numbers = self._numbers
        mark, low_line, end = numbers["\\"], numbers["_"], numbers[tensor2tensor_subword.END]
        number = look_up(line.letters, numbers, _NONE)
        unknown = number == _NONE
        is_low_line = number == low_line
        first = where(unknown | is_low_line, mark, number)
        second = where(is_low_line, numbers["u"], where(number == mark, mark, _NONE))
        semicolon = where(unknown, numbers[";"], _NONE)
        ended = where(ends, end, _NONE)
        digits = self._digits(line.letters, unknown)
        columns = [one.Unsqueeze([1]) for one in (first, second, semicolon, ended)]
        written = concat(*columns[:2], digits, *columns[2:], axis=1)
        return where(line.lone.Unsqueeze([1]), _NONE, written)

    def _digits(self, letters: Proxy, unknown: Proxy) -> Proxy:
        """Returns the code point digits of characters that are not in the alphabet.

        Returns:
          Symbols of the digits, -1 for none, [N, 7] int64.
        """
        points = code_points(letters.Compress(unknown, axis=0)).Unsqueeze([1])
        symbols = [self._numbers[digit] for digit in "0123456789"]
        digits = take(symbols, points / _POWERS % 10)
        digits = where(points >= [*_POWERS[:-1], 0], digits, _NONE)
        blank = combine("Expand", _NONE, letters.Shape().Concat([len(_POWERS)], axis=0))
        return blank.ScatterND(unknown.NonZero().Transpose(), digits)


# Kinds of characters; the kind of a digit is its value.
_DIGITS = 10
_MARK, _LOW_LINE, _SEMICOLON, _OTHER, _END = range(_DIGITS, _DIGITS + 5)
_KINDS = {
    **{str(digit): digit for digit in range(_DIGITS)},
    "\\": _MARK, "u": _LOW_LINE, ";": _SEMICOLON, tensor2tensor_subword.END: _END, "": _END,
}  # fmt: skip

_MOST_DIGITS = 7  # a number with more digits, without leading zeros, is not a code point


def unescaped_texts(escaped: Proxy) -> Proxy:
    """Returns the texts of joined subtokens, equal to `SubtokenEncoder.decode`.

    Args:
      escaped: [B] string.

    Returns:
      [B] string.
    """
    letters = characters_of(escaped)
    # An end after each text separates it from the next.
    letters = letters.Concat(combine("Expand", "", letters.size(0).Concat([1], axis=0)), axis=1)
    shape, flat = letters.Shape(), letters.Reshape([-1])
    kinds = look_up(flat, _KINDS, _OTHER)
    flat = _unescaped(flat, kinds)
    return joined(_apart(flat, kinds, places(kinds) / letters.size(1).Squeeze()).Reshape(shape))


def _unescaped(letters: Proxy, kinds: Proxy) -> Proxy:
    """Returns characters without escapes: the escaped character at the position of the mark, and
    "" at the other positions of the escape.  [N] string.
    """

    def is_kind(kind: int, by: int = 0) -> Proxy:
        return (shifted(kinds, by, _END) if by else kinds) == kind

    def back(flags: Proxy) -> Proxy:
        return shifted(flags.integers(), -1, 0) == 1

    # In a sequence of marks every second one is escaped by the one before it.
    mark = is_kind(_MARK)
    odd = (places(kinds) - latest(~mark)).BitwiseAnd(1) == 1
    odd_mark = mark & odd
    low_line = odd_mark & is_kind(_LOW_LINE, 1)

    digit = kinds < _DIGITS
    stop = following(~digit)
    stops_at = kinds.Pad([0, 1], _END)[stop]
    number = odd_mark & (shifted(kinds, 1, _END) < _DIGITS) & (stops_at == _SEMICOLON)
    of_number = digit & number[latest(~digit)]

    points = _numbers(kinds, digit, stop).Compress(number, axis=0)
    removed = mark & ~odd | is_kind(_LOW_LINE) & back(low_line) | of_number | is_kind(_END)
    removed = removed | is_kind(_SEMICOLON) & back(of_number)
    letters = where(low_line, "_", where(removed, "", letters))
    return letters.ScatterND(number.NonZero().Transpose(), characters_with(_known(points)))


def _numbers(kinds: Proxy, digit: Proxy, stop: Proxy) -> Proxy:
    """Returns the number formed by the digits after each position; numbers above all code points
    may be inexact, but stay above them.

    Args:
      kinds: kinds of the characters, [N] int64.
      digit: mask of digits, [N] bool.
      stop: next position without a digit, [N] int64.
    """
    powers = [10**i for i in range(_MOST_DIGITS + 1)]
    value = where(digit, kinds * take(powers, (stop - places(kinds) - 1).Min(_MOST_DIGITS)), 0)
    before = before_each(value)
    return before[stop] - before[:-1]


def _known(points: Proxy) -> Proxy:
    """Returns code points with invalid ones replaced by that of the replacement symbol."""
    known = (points <= sys.maxunicode) & ((points < 0xD800) | (points > 0xDFFF))
    return where(known, points, ord(tensor2tensor_subword.UNKNOWN))


def _apart(letters: Proxy, kinds: Proxy, row: Proxy) -> Proxy:
    """Returns characters with a space before each token of letters or numbers that directly follows
    another one: `tokenizer.join`.

    Args:
      letters: characters, [N] string.
      kinds: kinds of the escaped characters, [N] int64.
      row: index of the text of each character, [N] int64.
    """
    begins = (shifted(kinds, -1, _END) == _END) & (kinds < _END)
    heads = letters.Compress(begins, axis=0)
    of_letters = heads.RegexFullMatch(pattern=f"[{ranges(str.isalnum)}]").integers()
    row = row.Compress(begins, axis=0)
    apart = (row == shifted(row, -1, -1)) & (of_letters + shifted(of_letters, -1, 0) == 2)
    space = where(apart, " ", "")
    return letters.ScatterND(begins.NonZero().Transpose(), space.StringConcat(heads))
