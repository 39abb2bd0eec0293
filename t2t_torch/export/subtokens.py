"""tensor2tensor's subtokens as ids, in a graph."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_torch.export.graph import Graph, any_true, before_each, following, latest, places, shifted
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

    begins: str
    ids: str


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

    def cut(self, graph: Graph, symbols: str, starts: str) -> Cut:
        """Returns the segmentation of tokens.

        Args:
          graph: graph to which operators are added.
          symbols: symbols of the concatenated tokens, [N] int64; pieces have the last symbol of a
            token only at their end.
          starts: mask of the starts of tokens, [N] bool.
        """
        ids, lengths = self._longest(graph, symbols)
        return Cut(_reached(graph, starts, graph.add("Add", places(graph, symbols), lengths)), ids)

    def _longest(self, graph: Graph, symbols: str) -> tuple[str, str]:
        """Returns the id and length of the longest piece at each position; length 0 for none.

        All positions descend the trie in parallel, one symbol per iteration, until all have ended.
        """
        # Appends a symbol that no piece has, which ends every match.
        beyond = graph.constant(self._branches - 1)
        longer = graph.add("Pad", symbols, [0, 1], beyond)
        node_ids = graph.constant(self._ids)
        zeros = graph.add("Mul", symbols, 0)
        body = graph.body("down")
        turn = body.input("turn", "int64", [])
        body.input("more", "bool", [])
        node = body.input("node", "int64", [None])
        place = body.input("place", "int64", [None])
        ids = body.input("ids", "int64", [None])
        lengths = body.input("lengths", "int64", [None])
        symbol = body.add("Gather", longer, body.add("Add", place, turn))
        edge = body.add("Add", body.add("Mul", node, body.constant(self._branches)), symbol)
        node = look_up(body, edge, self._edges, _NO)
        goes_on = body.add("Greater", node, _ROOT)
        node = body.add("Compress", node, goes_on, axis=0)
        place = body.add("Compress", place, goes_on, axis=0)
        piece_ids = body.add("Gather", node_ids, node)
        is_piece = body.add("GreaterOrEqual", piece_ids, 0)
        at = body.add("Compress", place, is_piece, axis=0)
        piece_ids = body.add("Compress", piece_ids, is_piece, axis=0)
        length = body.add("Expand", body.add("Add", turn, 1), body.add("Shape", at))
        body.output("more", any_true(body, goes_on), "bool", [])
        body.output("node", node, "int64", [None])
        body.output("place", place, "int64", [None])
        body.output("ids", body.add("ScatterElements", ids, at, piece_ids), "int64", [None])
        body.output("lengths", body.add("ScatterElements", lengths, at, length), "int64", [None])
        begin = (zeros, places(graph, symbols), graph.add("Sub", zeros, 1), zeros)
        _, _, ids, lengths = graph.several(4, "Loop", "", graph.constant(True), *begin, body=body)
        return ids, lengths


def _reached(graph: Graph, starts: str, following: str) -> str:
    """Returns a mask of the positions reachable from any start.

    The step width doubles in each iteration, until an iteration reaches no new position.

    Args:
      graph: graph to which operators are added.
      starts: [N] bool.
      following: next position of each, N for the end, [N] int64.

    Returns:
      [N] bool.
    """
    beyond = graph.add("Shape", starts)
    body = graph.body("wider")
    body.input("turn", "int64", [])
    body.input("more", "bool", [])
    met = body.input("met", "int64", [None])
    step = body.input("step", "int64", [None])
    ahead = body.add("Compress", step, body.add("Equal", met, 1), axis=0)
    ones = body.add("Expand", 1, body.add("Shape", ahead))
    now = body.add("ScatterElements", met, ahead, ones)
    more = body.add("Greater", now, met)
    body.output("more", any_true(body, more), "bool", [])
    body.output("met", now, "int64", [None])
    body.output("step", body.add("Gather", step, step), "int64", [None])
    met = graph.add("Pad", graph.integers(starts), [0, 1], 0)
    step = graph.add("Concat", following, beyond, axis=0)
    met, _ = graph.several(2, "Loop", "", graph.constant(True), met, step, body=body)
    met = graph.add("Slice", met, [0], beyond)
    return graph.add("Equal", met, 1)


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

    letters: str
    kinds: str
    row: str
    counts: str
    space: str
    first: str
    last: str
    lone: str


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
        graph = self.graph
        line = self._line(FieldText(graph, words=field.words))
        begins = graph.add("Or", line.first, line.space)
        ids, before = self._cut(line, begins)
        starts = graph.add("Compress", before, begins, axis=0)
        return WordIds(ids, of_flat(graph, starts, field.word_counts))

    def _line(self, field: FieldText) -> _Characters:
        graph, letters = self.graph, field.letters
        mask = graph.add("Not", graph.add("Equal", letters, graph.constant("")))
        row = graph.add("Gather", graph.add("NonZero", mask), 0)
        mask = graph.add("Reshape", mask, [-1])
        flat = graph.add("Reshape", letters, [-1])
        flat = graph.add("Compress", flat, mask, axis=0)
        kinds = graph.add("RegexFullMatch", flat, pattern=f"[{ranges(str.isalnum)}]")
        kinds = graph.integers(kinds)
        first = graph.add("Not", graph.add("Equal", row, shifted(graph, row, -1, _NONE)))
        last = graph.add("Not", graph.add("Equal", row, shifted(graph, row, 1, _NONE)))
        space = graph.add("Equal", flat, graph.constant(" "))
        around = graph.add("Add", shifted(graph, kinds, -1, 0), shifted(graph, kinds, 1, 0))
        lone = graph.add("And", space, graph.add("Equal", around, 2))
        lone = graph.add("And", lone, graph.add("Not", graph.add("Or", first, last)))
        return _Characters(flat, kinds, row, count_of(graph, letters), space, first, last, lone)

    def _cut(self, line: _Characters, begins: str) -> tuple[NumberRows, str]:
        """Returns the ids of texts, and the number of ids of the text before each character.

        Args:
          line: characters of the texts.
          begins: mask of characters that always begin a token, [N] bool.
        """
        graph = self.graph
        written = self._written(line, self._ends(line, begins))
        is_symbol = graph.add("GreaterOrEqual", written, 0)
        sizes = graph.add("ReduceSum", graph.integers(is_symbol), [1], keepdims=0)
        flat = graph.add("Reshape", written, [-1])
        is_symbol = graph.add("Reshape", is_symbol, [-1])
        symbols = graph.add("Compress", flat, is_symbol, axis=0)
        end = self._numbers[tensor2tensor_subword.END]
        starts = graph.add("Equal", shifted(graph, symbols, -1, end), graph.constant(end))
        cut = self._trie.cut(graph, symbols, starts)
        ids = graph.add("Compress", cut.ids, cut.begins, axis=0)
        some = graph.add("Concat", ids, [0], axis=0)
        known = graph.add("ReduceMin", some, keepdims=0)
        known = graph.add("GreaterOrEqual", known, 0)
        ids = graph.require(known, f"{self._name}: the vocabulary has no entry for it", ids)
        # Number of ids before each character, and before each text and after the last.
        before = before_each(graph, graph.integers(cut.begins))
        before = graph.add("Gather", before, before_each(graph, sizes))
        of_rows = graph.add("Gather", before, before_each(graph, line.counts))
        lengths = graph.add("Sub", shifted(graph, of_rows, 1, 0), of_rows)
        lengths = graph.add("Slice", lengths, [0], [-1])
        before = graph.add("Slice", before, [0], [-1])
        before = graph.add("Sub", before, graph.add("Gather", of_rows, line.row))
        return of_flat(graph, ids, lengths), before

    def _ends(self, line: _Characters, begins: str) -> str:
        """Returns a mask of the characters that end a token.  [N] bool."""
        graph = self.graph
        other = graph.add("Equal", line.kinds, shifted(graph, line.kinds, 1, _NONE))
        other = graph.add("Not", other)
        cut = graph.add("Equal", shifted(graph, graph.integers(begins), 1, 1), 1)
        return graph.add("Or", graph.add("Or", other, cut), line.last)

    def _written(self, line: _Characters, ends: str) -> str:
        """Returns the symbols of each escaped character: `tokenizer.escape`.

        Returns:
          [N, 11] int64, padded with -1.
        """
        graph = self.graph
        numbers, none = self._numbers, graph.constant(_NONE)
        mark, low_line, end = numbers["\\"], numbers["_"], numbers[tensor2tensor_subword.END]
        number = look_up(graph, line.letters, numbers, _NONE)
        unknown = graph.add("Equal", number, none)
        is_low_line = graph.add("Equal", number, graph.constant(low_line))
        escaped = graph.add("Or", unknown, is_low_line)
        first = graph.add("Where", escaped, graph.constant(mark), number)
        is_mark = graph.add("Equal", number, graph.constant(mark))
        second = graph.add("Where", is_mark, graph.constant(mark), none)
        second = graph.add("Where", is_low_line, graph.constant(numbers["u"]), second)
        semicolon = graph.add("Where", unknown, graph.constant(numbers[";"]), none)
        ended = graph.add("Where", ends, graph.constant(end), none)
        digits = self._digits(line.letters, unknown)
        columns = [graph.add("Unsqueeze", one, [1]) for one in (first, second, semicolon, ended)]
        written = graph.add("Concat", *columns[:2], digits, *columns[2:], axis=1)
        lone = graph.add("Unsqueeze", line.lone, [1])
        return graph.add("Where", lone, none, written)

    def _digits(self, letters: str, unknown: str) -> str:
        """Returns the code point digits of characters that are not in the alphabet.

        Returns:
          Symbols of the digits, -1 for none, [N, 7] int64.
        """
        graph = self.graph
        points = code_points(graph, graph.add("Compress", letters, unknown, axis=0))
        points = graph.add("Unsqueeze", points, [1])
        digits = graph.add("Div", points, graph.constant(_POWERS))
        least = graph.constant([*_POWERS[:-1], 0])
        mask = graph.add("GreaterOrEqual", points, least)
        symbols = graph.constant([self._numbers[digit] for digit in "0123456789"])
        digits = graph.add("Gather", symbols, graph.add("Mod", digits, 10))
        digits = graph.add("Where", mask, digits, _NONE)
        shape = graph.add("Concat", graph.add("Shape", letters), [len(_POWERS)], axis=0)
        blank = graph.add("Expand", _NONE, shape)
        where = graph.add("Transpose", graph.add("NonZero", unknown))
        return graph.add("ScatterND", blank, where, digits)


# Kinds of characters; the kind of a digit is its value.
_DIGITS = 10
_MARK, _LOW_LINE, _SEMICOLON, _OTHER, _END = range(_DIGITS, _DIGITS + 5)
_KINDS = {
    **{str(digit): digit for digit in range(_DIGITS)},
    "\\": _MARK, "u": _LOW_LINE, ";": _SEMICOLON, tensor2tensor_subword.END: _END, "": _END,
}  # fmt: skip

_MOST_DIGITS = 7  # a number with more digits, without leading zeros, is not a code point


def unescaped_texts(graph: Graph, escaped: str) -> str:
    """Returns the texts of joined subtokens, equal to `SubtokenEncoder.decode`.

    Args:
      graph: graph to which operators are added.
      escaped: [B] string.

    Returns:
      [B] string.
    """
    letters = characters_of(graph, escaped)
    # An end after each text separates it from the next.
    pair = graph.add("Concat", graph.add("Shape", letters, start=0, end=1), [1], axis=0)
    letters = graph.add("Concat", letters, graph.add("Expand", graph.constant(""), pair), axis=1)
    shape = graph.add("Shape", letters)
    flat = graph.add("Reshape", letters, [-1])
    kinds = look_up(graph, flat, _KINDS, _OTHER)
    flat = _unescaped(graph, flat, kinds)
    width = graph.add("Squeeze", graph.add("Shape", letters, start=1, end=2))
    row = graph.add("Div", places(graph, kinds), width)
    flat = _apart(graph, flat, kinds, row)
    return joined(graph, graph.add("Reshape", flat, shape))


def _unescaped(graph: Graph, letters: str, kinds: str) -> str:
    """Returns characters without escapes: the escaped character at the position of the mark, and
    "" at the other positions of the escape.  [N] string.
    """

    def is_kind(kind: int, by: int = 0) -> str:
        line = shifted(graph, kinds, by, _END) if by else kinds
        return graph.add("Equal", line, graph.constant(kind))

    def both(*flags: str) -> str:
        whole = flags[0]
        for one in flags[1:]:
            whole = graph.add("And", whole, one)
        return whole

    def back(flags: str) -> str:
        one = shifted(graph, graph.integers(flags), -1, 0)
        return graph.add("Equal", one, 1)

    # In a sequence of marks every second one is escaped by the one before it.
    mark = is_kind(_MARK)
    in_run = graph.add("Sub", places(graph, kinds), latest(graph, graph.add("Not", mark)))
    odd = graph.add("Equal", graph.add("BitwiseAnd", in_run, 1), 1)
    odd_mark = both(mark, odd)
    escaped_mark = both(mark, graph.add("Not", odd))
    low_line = both(odd_mark, is_kind(_LOW_LINE, 1))

    digit = graph.add("Less", kinds, _DIGITS)
    no_digit = graph.add("Not", digit)
    stop = following(graph, no_digit)
    longer = graph.add("Pad", kinds, [0, 1], _END)
    stops_at = graph.add("Gather", longer, stop)
    before_digit = graph.add("Less", shifted(graph, kinds, 1, _END), _DIGITS)
    closed = graph.add("Equal", stops_at, _SEMICOLON)
    number = both(odd_mark, before_digit, closed)
    of_number = graph.add("Gather", number, latest(graph, no_digit))

    points = _numbers(graph, kinds, digit, stop)
    points = graph.add("Compress", points, number, axis=0)
    removed = escaped_mark
    for one in (
        both(is_kind(_LOW_LINE), back(low_line)),
        both(digit, of_number),
        both(is_kind(_SEMICOLON), back(both(digit, of_number))),
        is_kind(_END),
    ):
        removed = graph.add("Or", removed, one)
    letters = graph.add("Where", removed, graph.constant(""), letters)
    letters = graph.add("Where", low_line, graph.constant("_"), letters)
    where = graph.add("Transpose", graph.add("NonZero", number))
    return graph.add("ScatterND", letters, where, characters_with(graph, _known(graph, points)))


def _numbers(graph: Graph, kinds: str, digit: str, stop: str) -> str:
    """Returns the number formed by the digits after each position; numbers above all code points
    may be inexact, but stay above them.

    Args:
      graph: graph to which operators are added.
      kinds: kinds of the characters, [N] int64.
      digit: mask of digits, [N] bool.
      stop: next position without a digit, [N] int64.
    """
    powers = graph.constant([10**i for i in range(_MOST_DIGITS + 1)])
    power = graph.add("Sub", graph.add("Sub", stop, places(graph, kinds)), 1)
    power = graph.add("Min", power, _MOST_DIGITS)
    value = graph.add("Mul", kinds, graph.add("Gather", powers, power))
    value = graph.add("Where", digit, value, 0)
    before = before_each(graph, value)
    upto = graph.add("Slice", before, [0], [-1])
    return graph.add("Sub", graph.add("Gather", before, stop), upto)


def _known(graph: Graph, points: str) -> str:
    """Returns code points with invalid ones replaced by that of the replacement symbol."""
    known = graph.add("LessOrEqual", points, graph.constant(sys.maxunicode))
    below = graph.add("Less", points, 0xD800)
    above = graph.add("Greater", points, 0xDFFF)
    known = graph.add("And", known, graph.add("Or", below, above))
    return graph.add("Where", known, points, graph.constant(ord(tensor2tensor_subword.UNKNOWN)))


def _apart(graph: Graph, letters: str, kinds: str, row: str) -> str:
    """Returns characters with a space before each token of letters or numbers that directly follows
    another one: `tokenizer.join`.

    Args:
      graph: graph to which operators are added.
      letters: characters, [N] string.
      kinds: kinds of the escaped characters, [N] int64.
      row: index of the text of each character, [N] int64.
    """
    begins = graph.add("Equal", shifted(graph, kinds, -1, _END), _END)
    begins = graph.add("And", begins, graph.add("Less", kinds, _END))
    heads = graph.add("Compress", letters, begins, axis=0)
    of_letters = graph.add("RegexFullMatch", heads, pattern=f"[{ranges(str.isalnum)}]")
    of_letters = graph.integers(of_letters)
    row = graph.add("Compress", row, begins, axis=0)
    beside = graph.add("Equal", row, shifted(graph, row, -1, -1))
    both = graph.add("Add", of_letters, shifted(graph, of_letters, -1, 0))
    apart = graph.add("And", beside, graph.add("Equal", both, 2))
    space = graph.add("Where", apart, graph.constant(" "), graph.constant(""))
    where = graph.add("Transpose", graph.add("NonZero", begins))
    return graph.add("ScatterND", letters, where, graph.add("StringConcat", space, heads))
