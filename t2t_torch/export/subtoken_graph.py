"""tensor2tensor's pieces of words as ids, in a graph."""

from __future__ import annotations

from typing import NamedTuple

from t2t_torch.export.character_class import ranges
from t2t_torch.export.characters import numbered
from t2t_torch.export.encoder_graph import EncoderGraph, WordIds
from t2t_torch.export.field_text import FieldText, count_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.line import before_each, shifted
from t2t_torch.export.piece_trie import PieceTrie
from t2t_torch.export.rows import Rows, of_flat
from t2t_torch.export.utf8 import code_points
from t2t_torch.text import tokenizer
from t2t_torch.text.subtoken import SubtokenEncoder

_LINE_END = "\n"  # is in no alphabet
_NONE = -1
_POWERS = [10**i for i in range(6, -1, -1)]  # of the digits of a code point


class _Line(NamedTuple):
    """The characters of all texts, one after another.

    Attributes:
      letters: [N] string.
      kinds: [N] int64, 1 of letters and numbers, else 0.
      row: [N] int64, of which text.
      counts: [B] int64, of each text.
      space: [N] bool, which are a space.
      first: [N] bool, which are the first of their text.
      last: [N] bool.
      lone: [N] bool, which are a space between letters or numbers of one text.
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
    """A `SubtokenEncoder` in a graph.

    Args:
      graph: that the operators are added to.
      encoder: whose pieces these are.
      field: that is encoded, for the error when the vocabulary lacks a character.
    """

    def __init__(self, graph: Graph, encoder: SubtokenEncoder, field: str) -> None:
        self._graph = graph
        self._field = field
        alphabet = sorted(encoder.alphabet - {_LINE_END})
        self._numbers = {character: number for number, character in enumerate(alphabet)}
        pieces = {}
        for identity, piece in enumerate(encoder.subtokens):
            # Others are in no token: only its end has the sign for it, and a line's end is written.
            if piece and tokenizer.END not in piece[:-1] and _LINE_END not in piece:
                pieces[tuple(self._numbers[character] for character in piece)] = identity
        self._trie = PieceTrie(pieces, len(alphabet))

    def of_texts(self, field: FieldText) -> Rows:
        """Returns the ids of each text."""
        line = self._line(field)
        return self._cut(line, line.first)[0]

    def of_words(self, field: FieldText) -> WordIds:
        """Returns the ids of each text's words; a space before one is the first of its characters,
        if it is kept.
        """
        graph = self._graph
        line = self._line(FieldText(graph, words=field.words))
        begins = graph.add("Or", line.first, line.space)
        ids, before = self._cut(line, begins)
        starts = graph.add("Compress", before, begins, axis=0)
        return WordIds(ids, of_flat(graph, starts, field.word_counts))

    def _line(self, field: FieldText) -> _Line:
        graph, letters = self._graph, field.letters
        there = graph.add("Not", graph.add("Equal", letters, graph.constant("")))
        row = graph.add("Gather", graph.add("NonZero", there), graph.constant(0))
        there = graph.add("Reshape", there, graph.constant([-1]))
        flat = graph.add("Reshape", letters, graph.constant([-1]))
        flat = graph.add("Compress", flat, there, axis=0)
        kinds = graph.add("RegexFullMatch", flat, pattern=f"[{ranges(str.isalnum)}]")
        kinds = graph.integers(kinds)
        first = graph.add("Not", graph.add("Equal", row, shifted(graph, row, -1, _NONE)))
        last = graph.add("Not", graph.add("Equal", row, shifted(graph, row, 1, _NONE)))
        space = graph.add("Equal", flat, graph.constant(" "))
        around = graph.add("Add", shifted(graph, kinds, -1, 0), shifted(graph, kinds, 1, 0))
        lone = graph.add("And", space, graph.add("Equal", around, graph.constant(2)))
        lone = graph.add("And", lone, graph.add("Not", graph.add("Or", first, last)))
        return _Line(flat, kinds, row, count_of(graph, letters), space, first, last, lone)

    def _cut(self, line: _Line, begins: str) -> tuple[Rows, str]:
        """Returns the ids of texts, and how many ids of its text stand before each character.

        Args:
          line: the texts.
          begins: [N] bool, the characters that begin a token whatever stands before them.
        """
        graph = self._graph
        written = self._written(line, self._ends(line, begins))
        is_symbol = graph.add("GreaterOrEqual", written, graph.constant(0))
        sizes = graph.add("ReduceSum", graph.integers(is_symbol), graph.constant([1]), keepdims=0)
        flat = graph.add("Reshape", written, graph.constant([-1]))
        is_symbol = graph.add("Reshape", is_symbol, graph.constant([-1]))
        symbols = graph.add("Compress", flat, is_symbol, axis=0)
        end = self._numbers[tokenizer.END]
        starts = graph.add("Equal", shifted(graph, symbols, -1, end), graph.constant(end))
        cut = self._trie.cut(graph, symbols, starts)
        ids = graph.add("Compress", cut.ids, cut.begins, axis=0)
        some = graph.add("Concat", ids, graph.constant([0]), axis=0)
        known = graph.add("ReduceMin", some, keepdims=0)
        known = graph.add("GreaterOrEqual", known, graph.constant(0))
        ids = graph.require(known, f"{self._field}: the vocabulary has no entry for it", ids)
        # How many ids stand before each character, and before each text and behind the last.
        before = before_each(graph, graph.integers(cut.begins))
        before = graph.add("Gather", before, before_each(graph, sizes))
        of_rows = graph.add("Gather", before, before_each(graph, line.counts))
        lengths = graph.add("Sub", shifted(graph, of_rows, 1, 0), of_rows)
        lengths = graph.add("Slice", lengths, graph.constant([0]), graph.constant([-1]))
        before = graph.add("Slice", before, graph.constant([0]), graph.constant([-1]))
        before = graph.add("Sub", before, graph.add("Gather", of_rows, line.row))
        return of_flat(graph, ids, lengths), before

    def _ends(self, line: _Line, begins: str) -> str:
        """Returns which characters end a token.  [N] bool."""
        graph = self._graph
        other = graph.add("Equal", line.kinds, shifted(graph, line.kinds, 1, _NONE))
        other = graph.add("Not", other)
        cut = graph.add("Equal", shifted(graph, graph.integers(begins), 1, 1), graph.constant(1))
        return graph.add("Or", graph.add("Or", other, cut), line.last)

    def _written(self, line: _Line, ends: str) -> str:
        """Returns the symbols that each character is written with: `tokenizer.escape`.

        Returns:
          [N, 11] int64, -1 where there is none.
        """
        graph = self._graph
        numbers, none = self._numbers, graph.constant(_NONE)
        mark, low_line, end = numbers["\\"], numbers["_"], numbers[tokenizer.END]
        number = numbered(graph, line.letters, numbers, _NONE)
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
        columns = [
            graph.add("Unsqueeze", one, graph.constant([1]))
            for one in (first, second, semicolon, ended)
        ]
        written = graph.add("Concat", *columns[:2], digits, *columns[2:], axis=1)
        lone = graph.add("Unsqueeze", line.lone, graph.constant([1]))
        return graph.add("Where", lone, none, written)

    def _digits(self, letters: str, unknown: str) -> str:
        """Returns the digits of the code points of characters that are not in the alphabet.

        Returns:
          [N, 7] int64, symbols, -1 where there is none.
        """
        graph = self._graph
        points = code_points(graph, graph.add("Compress", letters, unknown, axis=0))
        points = graph.add("Unsqueeze", points, graph.constant([1]))
        digits = graph.add("Div", points, graph.constant(_POWERS))
        least = graph.constant([*_POWERS[:-1], 0])
        there = graph.add("GreaterOrEqual", points, least)
        symbols = graph.constant([self._numbers[digit] for digit in "0123456789"])
        digits = graph.add("Gather", symbols, graph.add("Mod", digits, graph.constant(10)))
        digits = graph.add("Where", there, digits, graph.constant(_NONE))
        shape = graph.add(
            "Concat", graph.add("Shape", letters), graph.constant([len(_POWERS)]), axis=0
        )
        blank = graph.add("Expand", graph.constant(_NONE), shape)
        where = graph.add("Transpose", graph.add("NonZero", unknown))
        return graph.add("ScatterND", blank, where, digits)
