"""Texts as single characters in a graph, and single characters as texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from t2t_torch.export.graph import Graph

_TOGETHER = 8


def tokens(graph: Graph, texts: str, **cut: Any) -> str:
    """Returns the tokens of each text.

    Args:
      graph: that the operators are added to.
      texts: [B] string.
      cut: `separators`, regular expressions of what is between tokens; or `tokenexp`, one of a
        token, of which the longest match counts.

    Returns:
      [B, W] string, filled up with the empty one; W may be 0.
    """
    return graph.add(
        "Tokenizer", texts, domain="com.microsoft", mark=0, mincharnum=1, pad_value="", **cut
    )


def at_least_one(graph: Graph, rows: str, padding: Any) -> str:
    """Returns rows as they are, or with one column of padding if they have none.  [B, W]."""
    column = graph.add("Expand", graph.constant(padding), _column(graph, rows))
    width = graph.add("Max", graph.add("Shape", rows, start=1, end=2), graph.constant([1]))
    return first(graph, graph.add("Concat", rows, column, axis=1), width)


def first(graph: Graph, rows: str, width: str) -> str:
    """Returns the first `width`, [1] int64, columns of rows.  [B, W, ...]."""
    return graph.add("Slice", rows, graph.constant([0]), width, graph.constant([1]))


def characters_of(graph: Graph, texts: str) -> str:
    """Returns the characters of texts, [B] string: [B, L] string, filled up with the empty one; L
    may be 0.
    """
    return tokens(graph, texts, separators=[""])


def numbered(graph: Graph, strings: str, numbers: Mapping[str, int], other: int) -> str:
    """Returns int64 numbers of strings; `other` is that of all that are not in the mapping."""
    return graph.add(
        "LabelEncoder",
        strings,
        domain="ai.onnx.ml",
        keys_strings=list(numbers),
        values_int64s=list(numbers.values()),
        default_int64=other,
    )


def without_first(graph: Graph, rows: str) -> str:
    """Returns all columns of rows but the first."""
    end = graph.add("Shape", rows, start=1, end=2)
    return graph.add("Slice", rows, graph.constant([1]), end, graph.constant([1]))


def beside(graph: Graph, rows: str, padding: Any) -> tuple[str, str]:
    """Returns for each column the one before it and the one after it, `padding` where there is
    none: [B, L] each, of numbers or strings.
    """
    blank = graph.add("Expand", graph.constant(padding), _column(graph, rows))
    before = graph.add("Concat", blank, rows, axis=1)
    after = graph.add("Concat", without_first(graph, rows), blank, axis=1)
    width = graph.add("Shape", rows, start=1, end=2)
    return first(graph, before, width), after


def replaced(graph: Graph, strings: str, unchanged: str, change: Callable[[str], str]) -> str:
    """Returns strings, some of them changed: what most strings need not go through.

    Args:
      graph: that the operators are added to.
      strings: of any shape.
      unchanged: a regular expression of RE2 of those that stay as they are.
      change: from strings, [N] and an empty one behind them, to N or more, the first N of which are
        put in the place of the others.
    """
    flat = graph.add("Reshape", strings, graph.constant([-1]))
    others = graph.add("Not", graph.add("RegexFullMatch", flat, pattern=unchanged))
    places = graph.add("Transpose", graph.add("NonZero", others))  # [N, 1]
    some = graph.add("Compress", flat, others, axis=0)
    changed = change(graph.add("Concat", some, graph.constant([""]), axis=0))
    count = graph.add("Shape", places, start=0, end=1)
    changed = graph.add("Slice", changed, graph.constant([0]), count)
    flat = graph.add("ScatterND", flat, places, changed)
    return graph.add("Reshape", flat, graph.add("Shape", strings), allowzero=1)


def changed_together(graph: Graph, words: str, change: Callable[[str], str]) -> str:
    """Returns words whose characters were changed: all as one text, so that nothing is filled up.

    Args:
      graph: that the operators are added to.
      words: [N] string, none with a line end; empty ones are left out.
      change: from the characters of texts, [B, L] string, to what becomes of them; line ends stay.

    Returns:
      [N'] string.
    """
    lines = graph.add("StringConcat", words, graph.constant("\n"))
    text = joined(graph, graph.add("Unsqueeze", lines, graph.constant([0])))
    text = joined(graph, change(characters_of(graph, text)))
    lines = tokens(graph, text, separators=["\n"])
    return graph.add("Reshape", lines, graph.constant([-1]))


def spaced(graph: Graph, words: str) -> str:
    """Returns words with a space before each but the first of its row.

    Args:
      graph: that the operators are added to.
      words: [B, W] string, filled up with the empty one, which stays.
    """
    blank = graph.add("Equal", words, graph.constant(""))
    alone = graph.add("Or", blank, is_first(graph, words))
    space = graph.add("Where", alone, graph.constant(""), graph.constant(" "))
    return graph.add("StringConcat", space, words)


def is_first(graph: Graph, rows: str) -> str:
    """Returns which column is the first, of rows [B, W].  [W] bool."""
    width = graph.add("Squeeze", graph.add("Shape", rows, start=1, end=2))
    numbers = graph.add("Range", graph.constant(0), width, graph.constant(1))
    return graph.add("Equal", numbers, graph.constant(0))


def joined(graph: Graph, strings: str) -> str:
    """Returns each row of strings as one: [B, L] to [B].

    `_TOGETHER` neighbours are joined, then as many of those, so that a text is copied a few times
    only, and a loop of onnxruntime, which takes its time, has few turns.
    """
    body = graph.body("join")
    body.input("number", "int64", [])
    body.input("wide", "bool", [])
    rows = body.input("rows", "string", [None, None])
    count = body.add("Shape", rows, start=0, end=1)
    size, axis = body.constant([_TOGETHER]), body.constant([1])
    blank = body.add("Expand", body.constant(""), body.add("Concat", count, size, axis=0))
    width = body.add("Add", body.add("Shape", rows, start=1, end=2), body.constant([_TOGETHER - 1]))
    width = body.add("Max", body.add("Mul", body.add("Div", width, size), size), size)
    rows = body.add("Concat", rows, blank, axis=1)
    whole = ""
    for first_one in range(_TOGETHER):
        part = body.add("Slice", rows, body.constant([first_one]), width, axis, size)
        whole = body.add("StringConcat", whole, part) if whole else part
    body.output("wide", _is_not_one(body, whole), "bool", [])
    body.output("rows", whole, "string", [None, None])
    whole = graph.add("Loop", "", _is_not_one(graph, strings), strings, body=body)
    return graph.add("Squeeze", whole, graph.constant([1]))


def _column(graph: Graph, rows: str) -> str:
    """Returns the shape of a single column beside rows.  [2] int64."""
    return graph.add(
        "Concat", graph.add("Shape", rows, start=0, end=1), graph.constant([1]), axis=0
    )


def _is_not_one(graph: Graph, rows: str) -> str:
    width = graph.add("Squeeze", graph.add("Shape", rows, start=1, end=2))
    return graph.add("Not", graph.add("Equal", width, graph.constant(1)))
