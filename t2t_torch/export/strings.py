"""Strings in an ONNX graph: characters, classes of characters, lower case, UTF-8, fields.

In RE2, onnxruntime's regular expressions, classes of letters or spaces are limited to ASCII or
follow another version of Unicode; so the characters of Python's classes themselves are listed.

No operator of onnxruntime returns a character's code point, but one hashes strings: 32-bit
MurmurHash3.  Each of its steps is invertible, so the bytes of a string of up to four bytes follow
from its hash and length.  For the inverse, strings of single bytes are joined; onnxruntime accepts
string constants that are invalid UTF-8, although the ONNX standard requires UTF-8.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_torch.errors import ExportError
from t2t_torch.export.graph import Graph, shifted
from t2t_torch.text.encoder import EOS

_TOGETHER = 8


def tokens(graph: Graph, texts: str, **cut: Any) -> str:
    """Returns the tokens of each text.

    Args:
      graph: graph to which operators are added.
      texts: [B] string.
      cut: `separators`, regular expressions of separators; or `tokenexp`, the regular expression
        of a token, whose longest match counts.

    Returns:
      [B, W] string, padded with ""; W may be 0.
    """
    return graph.add(
        "Tokenizer", texts, domain="com.microsoft", mark=0, mincharnum=1, pad_value="", **cut
    )


def at_least_one(graph: Graph, rows: str, padding: Any) -> str:
    """Returns rows unchanged, or with one column of padding if they have none.  [B, W]."""
    column = graph.add("Expand", graph.constant(padding), _column(graph, rows))
    width = graph.add("Max", graph.add("Shape", rows, start=1, end=2), [1])
    return first(graph, graph.add("Concat", rows, column, axis=1), width)


def first(graph: Graph, rows: str, width: str) -> str:
    """Returns the first `width` ([1] int64) columns of rows.  [B, W, ...]."""
    return graph.add("Slice", rows, [0], width, [1])


def characters_of(graph: Graph, texts: str) -> str:
    """Returns the characters of texts [B]: [B, L] string, padded with ""; L may be 0."""
    return tokens(graph, texts, separators=[""])


def look_up(graph: Graph, keys: str, table: Mapping[Any, Any], other: Any) -> str:
    """Returns the values of keys in a table, `other` for keys that are not in it.

    Args:
      graph: graph to which operators are added.
      keys: strings or int64.
      table: strings or integers by string, or by integer.
      other: a string or an integer, as the values are.
    """
    of_keys = "int64" if any(isinstance(key, int) for key in table) else "string"
    of_values = "string" if isinstance(other, str) else "int64"
    attributes = {
        f"keys_{of_keys}s": list(table),
        f"values_{of_values}s": list(table.values()),
        f"default_{of_values}": other,
    }
    return graph.add("LabelEncoder", keys, domain="ai.onnx.ml", **attributes)


def named(graph: Graph, names: Sequence[str], ids: str, mask: str, other: str = "") -> str:
    """Returns the name of each kept id, `other` if it has none; "" for the others: int64 to string.

    Args:
      graph: graph to which operators are added.
      names: names by id.
      ids: [B, T] int64.
      mask: mask of kept ids, [B, T] bool.
      other: name of ids beyond the names.
    """
    texts = look_up(graph, ids, dict(enumerate(names)), other)
    return graph.add("Where", mask, texts, [""])


def substitute(graph: Graph, strings: str, table: Mapping[str, str], none: str = "") -> str:
    """Returns strings, with those in a table replaced; `none` is a string that no value is."""
    found = look_up(graph, strings, table, none)
    as_it_is = graph.add("Equal", found, graph.constant(none))
    return graph.add("Where", as_it_is, strings, found)


def without_first(graph: Graph, rows: str) -> str:
    """Returns all columns of rows except the first."""
    end = graph.add("Shape", rows, start=1, end=2)
    return graph.add("Slice", rows, [1], end, [1])


def beside(graph: Graph, rows: str, padding: Any) -> tuple[str, str]:
    """Returns the previous and the next element of each, `padding` at the ends: [B, L] each, of
    numbers or strings.
    """
    blank = graph.add("Expand", graph.constant(padding), _column(graph, rows))
    before = graph.add("Concat", blank, rows, axis=1)
    after = graph.add("Concat", without_first(graph, rows), blank, axis=1)
    width = graph.add("Shape", rows, start=1, end=2)
    return first(graph, before, width), after


def replaced(graph: Graph, strings: str, unchanged: str, change: Callable[[str], str]) -> str:
    """Returns strings with a change applied only to those that need it.

    Args:
      graph: graph to which operators are added.
      strings: strings of any shape.
      unchanged: RE2 regular expression of strings that are not changed.
      change: function from N strings and an empty one to at least N strings, the first N of which
        replace the originals.
    """
    flat = graph.add("Reshape", strings, [-1])
    others = graph.add("Not", graph.add("RegexFullMatch", flat, pattern=unchanged))
    places = graph.add("Transpose", graph.add("NonZero", others))  # [N, 1]
    some = graph.add("Compress", flat, others, axis=0)
    changed = change(graph.add("Concat", some, [""], axis=0))
    count = graph.add("Shape", places, start=0, end=1)
    changed = graph.add("Slice", changed, [0], count)
    flat = graph.add("ScatterND", flat, places, changed)
    return graph.add("Reshape", flat, graph.add("Shape", strings), allowzero=1)


def changed_together(graph: Graph, words: str, change: Callable[[str], str]) -> str:
    """Returns words with changed characters, processed as one text to avoid padding.

    Args:
      graph: graph to which operators are added.
      words: [N] string, without line ends; empty ones are dropped.
      change: function from the characters of texts, [B, L] string, to the changed ones; it keeps
        line ends.

    Returns:
      [N'] string.
    """
    lines = graph.add("StringConcat", words, graph.constant("\n"))
    text = joined(graph, graph.add("Unsqueeze", lines, [0]))
    text = joined(graph, change(characters_of(graph, text)))
    lines = tokens(graph, text, separators=["\n"])
    return graph.add("Reshape", lines, [-1])


def spaced(graph: Graph, words: str) -> str:
    """Returns words with a space before all but the first of each row.

    Args:
      graph: graph to which operators are added.
      words: [B, W] string, padded with "", which is unchanged.
    """
    blank = graph.add("Equal", words, graph.constant(""))
    alone = graph.add("Or", blank, is_first(graph, words))
    space = graph.add("Where", alone, graph.constant(""), graph.constant(" "))
    return graph.add("StringConcat", space, words)


def is_first(graph: Graph, rows: str) -> str:
    """Returns a mask of the first column of rows [B, W].  [W] bool."""
    width = graph.add("Squeeze", graph.add("Shape", rows, start=1, end=2))
    numbers = graph.add("Range", 0, width, 1)
    return graph.add("Equal", numbers, 0)


def joined_words(graph: Graph, words: str, mask: str) -> str:
    """Returns the kept words of each row with single spaces between them: [B, L] to [B]."""
    number = graph.add("CumSum", graph.integers(mask), 1)
    follows = graph.add("And", mask, graph.add("Greater", number, 1))
    between = graph.add("Where", follows, [" "], [""])
    return joined(graph, graph.add("StringConcat", between, words))


def joined(graph: Graph, strings: str) -> str:
    """Returns the concatenation of each row of strings: [B, L] to [B].

    `_TOGETHER` adjacent pieces are joined at a time, repeatedly: a text is copied only a few times,
    and onnxruntime's slow loop has few iterations.
    """
    body = graph.body("join")
    body.input("number", "int64", [])
    body.input("wide", "bool", [])
    rows = body.input("rows", "string", [None, None])
    count = body.add("Shape", rows, start=0, end=1)
    size, axis = body.constant([_TOGETHER]), body.constant([1])
    blank = body.add("Expand", body.constant(""), body.add("Concat", count, size, axis=0))
    width = body.add("Add", body.add("Shape", rows, start=1, end=2), [_TOGETHER - 1])
    width = body.add("Max", body.add("Mul", body.add("Div", width, size), size), size)
    rows = body.add("Concat", rows, blank, axis=1)
    whole = ""
    for first_one in range(_TOGETHER):
        part = body.add("Slice", rows, [first_one], width, axis, size)
        whole = body.add("StringConcat", whole, part) if whole else part
    body.output("wide", _is_not_one(body, whole), "bool", [])
    body.output("rows", whole, "string", [None, None])
    whole = graph.add("Loop", "", _is_not_one(graph, strings), strings, body=body)
    return graph.add("Squeeze", whole, [1])


def _column(graph: Graph, rows: str) -> str:
    """Returns the shape of a single column for rows.  [2] int64."""
    return graph.add("Concat", graph.add("Shape", rows, start=0, end=1), [1], axis=0)


def _is_not_one(graph: Graph, rows: str) -> str:
    width = graph.add("Squeeze", graph.add("Shape", rows, start=1, end=2))
    return graph.add("Not", graph.add("Equal", width, 1))


class NumberRows(NamedTuple):
    """Rows of numbers.

    Attributes:
      values: [B, S] int64, padded with 0; S may be 0.
      lengths: [B] int64.
    """

    values: str
    lengths: str


def of_flat(graph: Graph, flat: str, lengths: str) -> NumberRows:
    """Returns rows from their concatenated numbers.

    Args:
      graph: graph to which operators are added.
      flat: [N] int64, numbers of all rows in order.
      lengths: [B] int64, sum N.
    """
    mask = mask_of(graph, lengths, longest(graph, lengths))
    zeros = graph.integers(graph.add("And", mask, graph.constant(False)))
    places = graph.add("Transpose", graph.add("NonZero", mask))  # [N, 2], row by row
    return NumberRows(graph.add("ScatterND", zeros, places, flat), lengths)


def counted(graph: Graph, lengths: str) -> NumberRows:
    """Returns 0, 1, 2 etc. for each row."""
    width = longest(graph, lengths)
    values = graph.add(
        "Mul", _numbers(graph, width), graph.integers(mask_of(graph, lengths, width))
    )
    return NumberRows(values, lengths)


def with_end(graph: Graph, rows: NumberRows) -> NumberRows:
    """Returns rows with `EOS` appended to each."""
    values = graph.add("Pad", rows.values, [0, 0, 0, 1], 0)
    numbers = _numbers(graph, graph.add("Shape", values, start=1, end=2))
    end = graph.add("Equal", numbers, upright(graph, rows.lengths))
    values = graph.add("Where", end, EOS, values)
    return NumberRows(values, graph.add("Add", rows.lengths, 1))


def turned(graph: Graph, rows: NumberRows) -> NumberRows:
    """Returns rows with each row reversed."""
    values = graph.add("ReverseSequence", rows.values, rows.lengths, batch_axis=0, time_axis=1)
    return NumberRows(values, rows.lengths)


def cut(graph: Graph, rows: NumberRows, lengths: str) -> NumberRows:
    """Returns truncated rows, as wide as the longest of them, at least 1.

    Args:
      graph: graph to which operators are added.
      rows: rows to truncate.
      lengths: [B] int64, maximum length of each row.
    """
    lengths = graph.add("Min", rows.lengths, lengths)
    width = longest(graph, lengths)
    mask = graph.integers(mask_of(graph, lengths, width))
    values = first(graph, at_least_one(graph, rows.values, 0), width)
    return NumberRows(graph.add("Mul", values, mask), lengths)


def longest(graph: Graph, lengths: str) -> str:
    """Returns the maximum of lengths, at least 1.  [1] int64."""
    return graph.add("Max", graph.add("ReduceMax", lengths, keepdims=0), [1])


def _numbers(graph: Graph, width: str) -> str:
    """Returns 0, 1, ..., width - 1.  [width] int64."""
    end = graph.add("Squeeze", width)
    return graph.add("Range", 0, end, 1)


def mask_of(graph: Graph, lengths: str, width: str) -> str:
    """Returns a mask of the positions in each row.  [B, width] bool."""
    return graph.add("Less", _numbers(graph, width), upright(graph, lengths))


def upright(graph: Graph, lengths: str) -> str:
    """Returns numbers [B] as a column, [B, 1]."""
    return graph.add("Unsqueeze", lengths, [1])


SPACE, LINE_SPACE = r"\s", r"[ \t\r\n]"
"""Separators of `str.split`, and of `features.text.words_of`."""

_TESTS: dict[str, Callable[[str], bool]] = {
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
    "d": str.isdecimal,
}
_SAME = "nrtfv"  # escapes with the same meaning in both

# Groups other than (?:...), lazy or possessive repetitions, POSIX classes.
_REFUSED = re.compile(r"\((?!\?:)|[*+?}][+?]|\[:")
_PARTS = re.compile(r"\\(?P<escape>.)|(?P<opens>\[\^?\]?)|(?P<closes>\])|[\^$]", re.DOTALL)


@functools.cache
def characters() -> tuple[str, ...]:
    """Returns all Unicode characters: every code point except surrogates."""
    points = itertools.chain(range(0xD800), range(0xE000, sys.maxunicode + 1))
    return tuple(map(chr, points))


def whitespace() -> list[str]:
    """Returns the characters of `str.isspace`."""
    return list(filter(str.isspace, characters()))


@functools.cache
def ranges(test: Callable[[str], bool], *, others: bool = False) -> str:
    """Returns the characters that pass a test as the content of an RE2 character class.

    Args:
      test: predicate of a character.
      others: if True, returns the characters that do not pass.
    """
    parts = []
    points = (ord(character) for character in characters() if test(character) is not others)
    for _, run in itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0]):
        first, *rest = (point for _, point in run)
        parts.append(f"\\x{{{first:X}}}" + (f"-\\x{{{rest[-1]:X}}}" if rest else ""))
    return "".join(parts)


def re2(expression: str) -> str:
    r"""Returns a Python regular expression in RE2's syntax, with \w, \s and \d expanded.

    Raises:
      ExportError: the expression has syntax that RE2 lacks or interprets differently.
    """
    if _REFUSED.search(re.sub(r"\\.", "", expression, flags=re.DOTALL)):
        _refuse(expression)
    parts, inside, end = [], False, 0
    for match in _PARTS.finditer(expression):
        parts.append(expression[end : match.start()])
        end = match.end()
        escape, opens, closes = match["escape"], match["opens"], match["closes"]
        if escape:
            parts.append(_escaped(expression, escape, inside=inside))
        elif inside and not closes:
            parts.append(match[0].replace("[", r"\["))
        elif opens or closes:
            parts.append(match[0].replace("]]", r"]\]"))
            inside = bool(opens)
        else:
            _refuse(expression)
    return "".join(parts) + expression[end:]


def _escaped(expression: str, letter: str, *, inside: bool) -> str:
    """Returns an escaped character in RE2's syntax, inside or outside a class."""
    test = _TESTS.get(letter.lower())
    if test is None:
        if letter.isalnum() and letter not in _SAME:
            _refuse(expression)
        return f"\\{letter}" if letter in _SAME else f"\\x{{{ord(letter):X}}}"
    if inside:
        return ranges(test, others=letter.isupper())
    return f"[{'^' * letter.isupper()}{ranges(test)}]"


def _refuse(expression: str) -> None:
    raise ExportError(
        f"the regular expression {expression!r} cannot stand in a graph: no lookaround, no groups "
        "but (?:...), no anchors, no repetition that takes as little as it can, no POSIX class, of "
        r"the escapes \w, \s, \d, \n, \r, \t, \f, \v and signs. Write it without."
    )


# A capital sigma has two lower-case forms: the second is word-final.  Unicode 3.13, Final_Sigma.
_SIGMA, _SMALL, _FINAL = "Σ", "σ", "ς"
_OTHER, _CASED, _IGNORED = 0, 1, 2


def lower_words(graph: Graph, words: str) -> str:
    """Returns words in lower case: strings of any shape, without line ends.

    Equal to `str.lower` for every text.
    """

    def change(some: str) -> str:
        return changed_together(graph, some, lambda letters: lower(graph, letters))

    return replaced(graph, words, f"[^{capitals()}]*", change)


def capitals() -> str:
    """Returns the characters that `str.lower` changes as the content of an RE2 character class."""
    return ranges(_is_capital)


def _is_capital(character: str) -> bool:
    return character.lower() != character


def lower(graph: Graph, letters: str) -> str:
    """Returns the characters of texts in lower case; one may become several.

    Args:
      graph: graph to which operators are added.
      letters: [B, L] string, the characters of each text, padded with "".

    Returns:
      [B, L] string.
    """
    lowered = substitute(graph, letters, _small())
    return graph.add("Where", _is_final(graph, letters), graph.constant(_FINAL), lowered)


def _is_final(graph: Graph, letters: str) -> str:
    """Returns a mask of capital sigmas that end a word.  [B, L] bool.

    Such a sigma follows a cased character and is not followed by one, both ignoring case-ignorable
    characters.
    """
    kinds = look_up(graph, letters, _kinds(), _OTHER)
    # Uncased characters before and after each text.
    kinds = graph.add("Pad", kinds, [0, 1, 0, 1], _OTHER)
    shape = graph.add("Shape", kinds)
    flat = graph.add("Reshape", kinds, [-1])
    counts = graph.add("Not", graph.add("Equal", flat, _IGNORED))
    counted = graph.add("Compress", flat, counts, axis=0)  # [K], at most [B * (L + 2)]
    counted = graph.add("Pad", counted, [0, 1], _OTHER)
    place = graph.add("CumSum", graph.add("Cast", counts, to=7), 0)  # from 1
    before = graph.add("Gather", counted, graph.add("Sub", place, 2))
    after = graph.add("Gather", counted, place)
    ends = graph.add(
        "And",
        graph.add("Equal", before, _CASED),
        graph.add("Not", graph.add("Equal", after, _CASED)),
    )
    ends = graph.add("Reshape", ends, shape)
    axis = graph.constant([1])
    ends = graph.add("Slice", ends, [1], [-1], axis)
    return graph.add("And", ends, graph.add("Equal", letters, graph.constant(_SIGMA)))


@functools.cache
def _small() -> dict[str, str]:
    """Returns the characters that `str.lower` changes, with their lower-case forms."""
    return {one: one.lower() for one in characters() if one.lower() != one}


@functools.cache
def _kinds() -> dict[str, int]:
    """Returns the kinds of characters that are cased or case-ignorable.

    They are inferred from the lower-case form of a sigma after each of them.
    """
    kinds = {}
    for one in characters():
        if f"A{one}{_SIGMA}".lower()[-1] == _FINAL:
            kinds[one] = _CASED if f"{one}{_SIGMA}".lower()[-1] == _FINAL else _IGNORED
    return kinds


NONE = -1
"""Padding after the bytes of a character."""

_MOST = 4  # maximum bytes of a character
_LEAST = (0, 0xC0, 0xE0, 0xF0)  # lowest first byte of a character by number of bytes
_RADIX = 64  # values of a continuation byte
_CONTINUES = (0x80, 0xBF)  # range of continuation bytes

# MurmurHash3_x86_32, Austin Appleby, public domain; the seed is 0.
_WORD = 1 << 32
_FACTORS = (0xCC9E2D51, 0x1B873593)
_MIXED = (0x85EBCA6B, 0xC2B2AE35)
_ADDED = 0xE6546B64

# Output of a byte: itself, the replacement character, or nothing.
_REPLACED, _NOTHING = 256, 257
_WRITTEN = np.array([*(bytes([i]) for i in range(256)), "\ufffd".encode(), b""], object)
_END = 256  # end of a text in a sequence of bytes


def utf8(graph: Graph, letters: str) -> str:
    """Returns the bytes of characters.

    Args:
      graph: graph to which operators are added.
      letters: [N] string, one character each or empty.

    Returns:
      [N, 4] int64, padded with `NONE`.
    """
    plain = {"": NONE, **{chr(number): number for number in range(0x80)}}
    packed = look_up(graph, letters, plain, _WORD)
    others = graph.add("Equal", packed, _WORD)
    places = graph.add("Transpose", graph.add("NonZero", others))
    unhashed = _unhashed(graph, graph.add("Compress", letters, others, axis=0))
    packed = graph.add("ScatterND", packed, places, unhashed)
    packed = graph.add("Unsqueeze", packed, [1])
    octets = graph.add("Div", packed, graph.constant([1 << 8 * i for i in range(_MOST)]))
    octets = graph.add("BitwiseAnd", octets, 0xFF)
    first = graph.add("BitwiseAnd", packed, 0xFF)
    mask = graph.add("GreaterOrEqual", first, graph.constant(list(_LEAST)))
    mask = graph.add("And", mask, graph.add("GreaterOrEqual", packed, 0))
    return graph.add("Where", mask, octets, NONE)


def code_points(graph: Graph, letters: str) -> str:
    """Returns the code points of characters: [N] string, none empty, to [N] int64."""
    octets = utf8(graph, letters)
    count = graph.integers(graph.add("GreaterOrEqual", octets, 0))
    count = graph.add("ReduceSum", count, [1], keepdims=0)
    # For each number of bytes: the weight of each byte, and the total of the marker bits.
    weights = np.zeros((_MOST + 1, _MOST), np.int64)
    marks = np.zeros(_MOST + 1, np.int64)
    for size in range(1, _MOST + 1):
        weights[size, :size] = _RADIX ** np.arange(size - 1, -1, -1)
        marks[size] = weights[size, 0] * _LEAST[size - 1] + weights[size, 1:].sum() * _CONTINUES[0]
    weight = graph.add("Gather", graph.constant(weights), count)
    number = graph.add("ReduceSum", graph.add("Mul", octets, weight), [1], keepdims=0)
    return graph.add("Sub", number, graph.add("Gather", graph.constant(marks), count))


def characters_with(graph: Graph, points: str) -> str:
    """Returns the characters of code points: [N] int64, no surrogates, to [N] string."""
    more = [graph.constant(limit) for limit in (0x80, 0x800, 0x10000)]
    counts = [graph.integers(graph.add("GreaterOrEqual", points, limit)) for limit in more]
    behind = graph.add("Add", graph.add("Add", counts[0], counts[1]), counts[2])
    whole = ""
    for place in range(_MOST):
        left = graph.add("Sub", behind, graph.constant(place))  # bytes after this one
        scale = graph.constant([_RADIX**i for i in range(_MOST)])
        scale = graph.add("Gather", scale, graph.add("Max", left, 0))
        octet = graph.add("Div", points, scale)
        if place:
            octet = graph.add("BitwiseAnd", octet, graph.constant(_RADIX - 1))
            octet = graph.add("Add", octet, graph.constant(_CONTINUES[0]))
        else:
            octet = graph.add(
                "Add", octet, graph.add("Gather", graph.constant(list(_LEAST)), behind)
            )
        mask = graph.add("GreaterOrEqual", left, 0)
        octet = graph.add("Where", mask, octet, _NOTHING)
        part = graph.add("Gather", graph.constant(_WRITTEN), octet)
        whole = graph.add("StringConcat", whole, part) if whole else part
    return whole


def texts_of(graph: Graph, octets: str) -> str:
    """Returns the texts of rows of bytes: `bytes.decode(errors="replace")`.

    Args:
      graph: graph to which operators are added.
      octets: [B, T] int64, 0 to 255, or `NONE` for no byte.

    Returns:
      [B] string.
    """
    ended = graph.add("Pad", octets, [0, 0, 0, 1], _END)
    places = graph.add("GreaterOrEqual", ended, 0)
    flat = graph.add("Compress", ended, graph.add("Reshape", places, [-1]))
    letters = graph.add("Gather", graph.constant(_WRITTEN), _sound(graph, flat))
    blank = graph.add("Expand", graph.constant(""), graph.add("Shape", ended))
    places = graph.add("Transpose", graph.add("NonZero", places))
    return joined(graph, graph.add("ScatterND", blank, places, letters))


def _sound(graph: Graph, line: str) -> str:
    """Returns bytes with invalid UTF-8 replaced, as indices of `_WRITTEN`.

    The first byte of a character determines the number of bytes and the range of the second;
    Unicode 15.0, table 3-7.  The longest valid prefix of an incomplete character is replaced as a
    unit.

    Args:
      graph: graph to which operators are added.
      line: [N] int64, bytes of several texts, each followed by `_END`.
    """
    size, lowest, highest = (graph.add("Gather", graph.constant(x), line) for x in _beginnings())
    length, fits = graph.constant(1), ""
    for place in range(1, _MOST):
        octet = shifted(graph, line, place, _END)
        goes_on = graph.add(
            "And",
            graph.add("GreaterOrEqual", octet, lowest),
            graph.add("LessOrEqual", octet, highest),
        )
        goes_on = graph.add("And", goes_on, graph.add("Greater", size, graph.constant(place)))
        fits = graph.add("And", fits, goes_on) if fits else goes_on
        length = graph.add("Add", length, graph.integers(fits))
        lowest, highest = (graph.constant(limit) for limit in _CONTINUES)
    whole = graph.add("Equal", length, size)
    sound = graph.add("Where", whole, line, _REPLACED)
    for back in range(1, _MOST):
        over = graph.add("Greater", shifted(graph, length, -back, 0), graph.constant(back))
        is_whole = shifted(graph, graph.integers(whole), -back, 0)
        is_whole = graph.add("Equal", is_whole, 1)
        inside = graph.add("Where", is_whole, line, _NOTHING)
        sound = graph.add("Where", over, inside, sound)
    ends = graph.add("Equal", line, _END)
    return graph.add("Where", ends, _NOTHING, sound)


def _beginnings() -> np.ndarray:
    """Returns for each byte and `_END` the number of bytes of the character that it begins, 0 if
    none, and the lowest and highest second byte.  [3, 257] int64.
    """
    table = np.zeros((3, _END + 1), np.int64)
    table[1:] = np.array(_CONTINUES)[:, None]
    for size, (first, last) in enumerate(((0, 0x7F), (0xC2, 0xDF), (0xE0, 0xEF), (0xF0, 0xF4)), 1):
        table[0, first : last + 1] = size
    table[1, 0xE0], table[2, 0xED] = 0xA0, 0x9F  # no shorter form, no surrogates
    table[1, 0xF0], table[2, 0xF4] = 0x90, 0x8F  # no shorter form, nothing above U+10FFFF
    return table


def _unhashed(graph: Graph, letters: str) -> str:
    """Returns the bytes of characters with at least two bytes as one little-endian number.

    Args:
      graph: graph to which operators are added.
      letters: [N] string.

    Returns:
      [N] int64.
    """
    two = graph.add("RegexFullMatch", letters, pattern=r"[\x{80}-\x{7FF}]")
    three = graph.add("RegexFullMatch", letters, pattern=r"[\x{800}-\x{FFFF}]")
    size = graph.add("Where", three, 3, 4)
    size = graph.add("Where", two, 2, size)
    number = graph.add("MurmurHash3", letters, domain="com.microsoft", seed=0, positive=1)
    number = _folded(graph, graph.integers(number), 16)
    number = _times(graph, number, pow(_MIXED[1], -1, _WORD))
    number = _folded(graph, _folded(graph, number, 13), 26)
    number = _times(graph, number, pow(_MIXED[0], -1, _WORD))
    number = graph.add("BitwiseXor", _folded(graph, number, 16), size)
    four = graph.add("Sub", number, _ADDED)
    four = _times(
        graph, graph.add("BitwiseAnd", four, graph.constant(_WORD - 1)), pow(5, -1, _WORD)
    )
    is_four = graph.add("Equal", size, 4)
    number = graph.add("Where", is_four, _turned(graph, four, 13), number)
    number = _turned(graph, _times(graph, number, pow(_FACTORS[1], -1, _WORD)), 15)
    return _times(graph, number, pow(_FACTORS[0], -1, _WORD))


def _times(graph: Graph, number: str, factor: int) -> str:
    """Returns the lower 32 bits of the product of two 32-bit numbers."""
    half = graph.constant(1 << 16)  # computed in halves to stay within 64 bits
    low = graph.add("BitwiseAnd", number, graph.constant((1 << 16) - 1))
    high = graph.add("Mul", graph.add("Div", number, half), graph.constant(factor))
    high = graph.add("Mul", graph.add("BitwiseAnd", high, graph.constant((1 << 16) - 1)), half)
    product = graph.add("Add", graph.add("Mul", low, graph.constant(factor)), high)
    return graph.add("BitwiseAnd", product, graph.constant(_WORD - 1))


def _folded(graph: Graph, number: str, bits: int) -> str:
    """Returns the exclusive or of a number and the number shifted right by `bits`."""
    return graph.add("BitwiseXor", number, graph.add("Div", number, graph.constant(1 << bits)))


def _turned(graph: Graph, number: str, bits: int) -> str:
    """Returns a 32-bit number rotated right by `bits`."""
    over = graph.add("BitwiseAnd", number, graph.constant((1 << bits) - 1))
    over = graph.add("Mul", over, graph.constant(1 << (32 - bits)))
    return graph.add("Add", graph.add("Div", number, graph.constant(1 << bits)), over)


class FieldText:
    """The texts of a field.

    Args:
      graph: graph to which operators are added.
      texts: [B] string; omitted if `words` are given.
      words: [B, W] string, without whitespace, padded with "".
    """

    def __init__(self, graph: Graph, texts: str = "", words: str = "") -> None:
        self._graph = graph
        self._texts = texts
        self._words = words

    @functools.cached_property
    def texts(self) -> str:
        """The texts: [B] string."""
        return self._texts or joined(self._graph, spaced(self._graph, self._words))

    @functools.cached_property
    def letters(self) -> str:
        """The characters of each text: [B, L] string, padded with ""; L > 0."""
        return at_least_one(self._graph, characters_of(self._graph, self.texts), "")

    @functools.cached_property
    def parts(self) -> str:
        """The tokens of `str.split` of each text: [B, W] string, padded with ""."""
        return self._words or tokens(self._graph, self.texts, separators=[f"{re2(SPACE)}+"])

    @functools.cached_property
    def words(self) -> str:
        """The words of each text by `features.text.words_of`: [B, W] string, padded with ""."""
        return self._words or tokens(self._graph, self.texts, separators=[f"{LINE_SPACE}+"])

    @functools.cached_property
    def lower_parts(self) -> str:
        """`parts` in lower case."""
        return lower_words(self._graph, self.parts)

    @functools.cached_property
    def lower_words(self) -> str:
        """`words` in lower case."""
        return lower_words(self._graph, self.words)

    @functools.cached_property
    def word_counts(self) -> str:
        """The number of words of each text: [B] int64."""
        return count_of(self._graph, self.words)


def count_of(graph: Graph, strings: str) -> str:
    """Returns the number of nonempty strings of each row: [B, W] to [B] int64."""
    is_nonempty = graph.add("Not", graph.add("Equal", strings, graph.constant("")))
    return graph.add("ReduceSum", graph.integers(is_nonempty), [1], keepdims=0)


def token_offsets(graph: Graph, texts: str, split: str, words_given: str) -> str:
    """Returns the start and the end of each word in its text, in characters.  [B, W, 2] int64.

    Args:
      graph: graph to which operators are added.
      texts: [B] string.
      split: [B] string, the texts with exactly one space between words.
      words_given: [B] or [1] bool, true for texts whose words are separated by `LINE_SPACE` only.
    """
    of_texts = [at_least_one(graph, characters_of(graph, one), "") for one in (texts, split)]
    lines = [blank_mask(graph, letters, " \t\r\n") for letters in of_texts]
    spaces = blank_mask(graph, of_texts[0], whitespace())
    by_tokenizer = graph.add("Not", upright(graph, words_given))
    spaces = graph.add("Or", lines[0], graph.add("And", spaces, by_tokenizer))
    width = graph.add("Squeeze", graph.add("Shape", spaces, start=1, end=2))
    places = graph.add("Range", 0, width, 1)
    places = graph.add("Expand", places, graph.add("Shape", spaces))
    places = _picked(graph, places, graph.add("Not", spaces))
    letter = graph.add("Not", lines[1])
    edges = beside(graph, graph.integers(lines[1]), 1)
    starts = graph.integers(_and_space(graph, letter, edges[0]))
    counts = graph.add("ReduceSum", starts, [1], keepdims=0)
    ends = []
    for edge in edges:
        is_edge = _picked(graph, _and_space(graph, letter, edge), letter)
        flat = graph.add("Compress", places, is_edge, axis=0)
        ends.append(of_flat(graph, flat, counts).values)
    # The end is exclusive; padding remains 0.
    is_word = mask_of(graph, counts, longest(graph, counts))
    ends[1] = graph.add("Add", ends[1], graph.integers(is_word))
    return graph.add("Concat", *(graph.add("Unsqueeze", one, [2]) for one in ends), axis=2)


def blank_mask(graph: Graph, letters: str, spaces: Iterable[str]) -> str:
    """Returns a mask of spaces and padding.  [B, L] bool."""
    return graph.add("Equal", look_up(graph, letters, dict.fromkeys(["", *spaces], 1), 0), 1)


def _and_space(graph: Graph, letter: str, beside_it: str) -> str:
    return graph.add("And", letter, graph.add("Equal", beside_it, 1))


def _picked(graph: Graph, values: str, mask: str) -> str:
    """Returns the values [B, L] at which a mask is true, row by row, as a vector."""
    flat, mask = (graph.add("Reshape", one, [-1]) for one in (values, mask))
    return graph.add("Compress", flat, mask, axis=0)


class WordIds(NamedTuple):
    """The ids of words.

    Attributes:
      ids: concatenated ids of the words.
      starts: position of the first id of each word.
    """

    ids: NumberRows
    starts: NumberRows


class Spelling(NamedTuple):
    """Characters or bytes of texts.

    Attributes:
      ids: ids of characters or bytes, [B, L] int64.
      between: mask of ids outside words: spaces and padding, [B, L] bool.
    """

    ids: str
    between: str


class EncoderGraph(ABC):
    """Implementation of a `TextEncoder` in a graph.

    Args:
      encoder: the encoder.
      graph: graph to which operators are added.
      name: name of the text, for errors.

    Attributes:
      encoder: same as the argument.
      graph: same as the argument.
    """

    def __init__(self, encoder: Any, graph: Graph, name: str) -> None:
        self.encoder = encoder
        self.graph = graph
        self._name = name

    @abstractmethod
    def of_texts(self, field: FieldText) -> NumberRows:
        """Returns the ids of each text, without `EOS`: `TextEncoder.encode_batch`."""

    @abstractmethod
    def of_words(self, field: FieldText) -> WordIds:
        """Returns the ids of each text's words: `TextEncoder.encode_words`."""

    def spelled(self, field: FieldText) -> Spelling | None:
        """Returns the characters or bytes of each text; None if ids are none of these."""
        return None
