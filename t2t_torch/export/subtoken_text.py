"""Ids of tensor2tensor's pieces of words as text, in a graph."""

from __future__ import annotations

import sys

from t2t_torch.export.character_class import ranges
from t2t_torch.export.characters import characters_of, joined, numbered
from t2t_torch.export.graph import Graph
from t2t_torch.export.line import before_each, following, latest, places, shifted
from t2t_torch.export.utf8 import characters_with
from t2t_torch.text import tokenizer

# Kinds of characters; a digit's is its value.
_DIGITS = 10
_MARK, _LOW_LINE, _SEMICOLON, _OTHER, _END = range(_DIGITS, _DIGITS + 5)
_KINDS = {
    **{str(digit): digit for digit in range(_DIGITS)},
    "\\": _MARK, "u": _LOW_LINE, ";": _SEMICOLON, tokenizer.END: _END, "": _END,
}  # fmt: skip

_MOST_DIGITS = 7  # a number with more is no character's, if it does not begin with zeros


def unescaped_texts(graph: Graph, escaped: str) -> str:
    """Returns the texts that joined pieces stand for: what `SubtokenEncoder.decode` does of them.

    Args:
      graph: that the operators are added to.
      escaped: [B] string.

    Returns:
      [B] string.
    """
    letters = characters_of(graph, escaped)
    # An end behind each text, so that nothing goes on in the next.
    pair = graph.add(
        "Concat", graph.add("Shape", letters, start=0, end=1), graph.constant([1]), axis=0
    )
    letters = graph.add("Concat", letters, graph.add("Expand", graph.constant(""), pair), axis=1)
    shape = graph.add("Shape", letters)
    flat = graph.add("Reshape", letters, graph.constant([-1]))
    kinds = numbered(graph, flat, _KINDS, _OTHER)
    flat = _unescaped(graph, flat, kinds)
    width = graph.add("Squeeze", graph.add("Shape", letters, start=1, end=2))
    row = graph.add("Div", places(graph, kinds), width)
    flat = _apart(graph, flat, kinds, row)
    return joined(graph, graph.add("Reshape", flat, shape))


def _unescaped(graph: Graph, letters: str, kinds: str) -> str:
    """Returns characters without escapes: at the place of the mark stands what was escaped, and at
    the others of the escape nothing.  [N] string.
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
        return graph.add("Equal", one, graph.constant(1))

    # Of marks side by side each second one is escaped by the one before it.
    mark = is_kind(_MARK)
    in_run = graph.add("Sub", places(graph, kinds), latest(graph, graph.add("Not", mark)))
    odd = graph.add("Equal", graph.add("BitwiseAnd", in_run, graph.constant(1)), graph.constant(1))
    odd_mark = both(mark, odd)
    escaped_mark = both(mark, graph.add("Not", odd))
    low_line = both(odd_mark, is_kind(_LOW_LINE, 1))

    digit = graph.add("Less", kinds, graph.constant(_DIGITS))
    no_digit = graph.add("Not", digit)
    stop = following(graph, no_digit)
    longer = graph.add("Pad", kinds, graph.constant([0, 1]), graph.constant(_END))
    stops_at = graph.add("Gather", longer, stop)
    before_digit = graph.add("Less", shifted(graph, kinds, 1, _END), graph.constant(_DIGITS))
    closed = graph.add("Equal", stops_at, graph.constant(_SEMICOLON))
    number = both(odd_mark, before_digit, closed)
    of_number = graph.add("Gather", number, latest(graph, no_digit))

    points = _numbers(graph, kinds, digit, stop)
    points = graph.add("Compress", points, number, axis=0)
    gone = escaped_mark
    for one in (
        both(is_kind(_LOW_LINE), back(low_line)),
        both(digit, of_number),
        both(is_kind(_SEMICOLON), back(both(digit, of_number))),
        is_kind(_END),
    ):
        gone = graph.add("Or", gone, one)
    letters = graph.add("Where", gone, graph.constant(""), letters)
    letters = graph.add("Where", low_line, graph.constant("_"), letters)
    where = graph.add("Transpose", graph.add("NonZero", number))
    return graph.add("ScatterND", letters, where, characters_with(graph, _known(graph, points)))


def _numbers(graph: Graph, kinds: str, digit: str, stop: str) -> str:
    """Returns the number whose digits stand behind each place, or a greater one that is no
    character's either.

    Args:
      graph: that the operators are added to.
      kinds: [N] int64.
      digit: [N] bool, which are digits.
      stop: [N] int64, the next place that is none.
    """
    powers = graph.constant([10**i for i in range(_MOST_DIGITS + 1)])
    power = graph.add("Sub", graph.add("Sub", stop, places(graph, kinds)), graph.constant(1))
    power = graph.add("Min", power, graph.constant(_MOST_DIGITS))
    value = graph.add("Mul", kinds, graph.add("Gather", powers, power))
    value = graph.add("Where", digit, value, graph.constant(0))
    before = before_each(graph, value)
    upto = graph.add("Slice", before, graph.constant([0]), graph.constant([-1]))
    return graph.add("Sub", graph.add("Gather", before, stop), upto)


def _known(graph: Graph, points: str) -> str:
    """Returns code points; in the place of what is none that of the sign for it."""
    known = graph.add("LessOrEqual", points, graph.constant(sys.maxunicode))
    below = graph.add("Less", points, graph.constant(0xD800))
    above = graph.add("Greater", points, graph.constant(0xDFFF))
    known = graph.add("And", known, graph.add("Or", below, above))
    return graph.add("Where", known, points, graph.constant(ord(tokenizer.UNKNOWN)))


def _apart(graph: Graph, letters: str, kinds: str, row: str) -> str:
    """Returns characters, with a space before those that begin a token of letters or numbers right
    behind another one: `tokenizer.join`.

    Args:
      graph: that the operators are added to.
      letters: [N] string.
      kinds: [N] int64, of what they were when they were escaped.
      row: [N] int64, of which text each is.
    """
    begins = graph.add("Equal", shifted(graph, kinds, -1, _END), graph.constant(_END))
    begins = graph.add("And", begins, graph.add("Less", kinds, graph.constant(_END)))
    heads = graph.add("Compress", letters, begins, axis=0)
    of_letters = graph.add("RegexFullMatch", heads, pattern=f"[{ranges(str.isalnum)}]")
    of_letters = graph.integers(of_letters)
    row = graph.add("Compress", row, begins, axis=0)
    beside = graph.add("Equal", row, shifted(graph, row, -1, -1))
    both = graph.add("Add", of_letters, shifted(graph, of_letters, -1, 0))
    apart = graph.add("And", beside, graph.add("Equal", both, graph.constant(2)))
    space = graph.add("Where", apart, graph.constant(" "), graph.constant(""))
    where = graph.add("Transpose", graph.add("NonZero", begins))
    return graph.add("ScatterND", letters, where, graph.add("StringConcat", space, heads))
