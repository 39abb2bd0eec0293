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
from t2t_torch.export.graph import Graph, Proxy, arange, combine, concat, loop, shifted, take, where
from t2t_torch.text.encoder import EOS

_TOGETHER = 8


def tokens(texts: Proxy, **cut: Any) -> Proxy:
    """Returns the tokens of each text.

    Args:
      texts: [B] string.
      cut: `separators`, regular expressions of separators; or `tokenexp`, the regular expression
        of a token, whose longest match counts.

    Returns:
      [B, W] string, padded with ""; W may be 0.
    """
    return texts.Tokenizer(domain="com.microsoft", mark=0, mincharnum=1, pad_value="", **cut)


def at_least_one(rows: Proxy, padding: Any) -> Proxy:
    """Returns rows unchanged, or with one column of padding if they have none.  [B, W]."""
    column = combine("Expand", padding, _column(rows))
    return first(rows.Concat(column, axis=1), rows.size(1).Max([1]))


def first(rows: Proxy, width: Proxy) -> Proxy:
    """Returns the first `width` ([1] int64) columns of rows.  [B, W, ...]."""
    return rows.Slice([0], width, [1])


def characters_of(texts: Proxy) -> Proxy:
    """Returns the characters of texts [B]: [B, L] string, padded with ""; L may be 0."""
    return tokens(texts, separators=[""])


def look_up(keys: Proxy, table: Mapping[Any, Any], other: Any) -> Proxy:
    """Returns the values of keys in a table, `other` for keys that are not in it.

    Args:
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
    return keys.LabelEncoder(domain="ai.onnx.ml", **attributes)


def named(names: Sequence[str], ids: Proxy, mask: Proxy, other: str = "") -> Proxy:
    """Returns the name of each kept id, `other` if it has none; "" for the others: int64 to string.

    Args:
      names: names by id.
      ids: [B, T] int64.
      mask: mask of kept ids, [B, T] bool.
      other: name of ids beyond the names.
    """
    return where(mask, look_up(ids, dict(enumerate(names)), other), "")


def substitute(strings: Proxy, table: Mapping[str, str], none: str = "") -> Proxy:
    """Returns strings, with those in a table replaced; `none` is a string that no value is."""
    found = look_up(strings, table, none)
    return where(found == none, strings, found)


def beside(rows: Proxy, padding: Any) -> tuple[Proxy, Proxy]:
    """Returns the previous and the next element of each, `padding` at the ends: [B, L] each, of
    numbers or strings.
    """
    blank = combine("Expand", padding, _column(rows))
    width, without_first = rows.size(1), rows.Slice([1], rows.size(1), [1])
    return first(blank.Concat(rows, axis=1), width), without_first.Concat(blank, axis=1)


def replaced(strings: Proxy, unchanged: str, change: Callable[[Proxy], Proxy]) -> Proxy:
    """Returns strings with a change applied only to those that need it.

    Args:
      strings: strings of any shape.
      unchanged: RE2 regular expression of strings that are not changed.
      change: function from N strings and an empty one to at least N strings, the first N of which
        replace the originals.
    """
    flat = strings.Reshape([-1])
    others = ~flat.RegexFullMatch(pattern=unchanged)
    places = others.NonZero().Transpose()  # [N, 1]
    changed = change(flat.Compress(others, axis=0).Concat([""], axis=0))
    return flat.ScatterND(places, changed[: places.size(0)]).Reshape(strings.Shape(), allowzero=1)


def changed_words(words: Proxy, letters: str, change: Callable[[Proxy], Proxy]) -> Proxy:
    """Returns words with changed characters; those to change are one text, to avoid padding.

    Args:
      words: strings of any shape, without line ends.
      letters: content of an RE2 character class; words without these are not changed.
      change: function from the characters of texts, [B, L] string, to the changed ones; it keeps
        line ends.
    """

    def together(some: Proxy) -> Proxy:
        text = joined(some.StringConcat("\n").Unsqueeze([0]))
        return tokens(joined(change(characters_of(text))), separators=["\n"]).Reshape([-1])

    return replaced(words, f"[^{letters}]*", together)


def spaced(words: Proxy) -> Proxy:
    """Returns words with a space before all but the first of each row.

    Args:
      words: [B, W] string, padded with "", which is unchanged.
    """
    return where((words == "") | is_first(words), "", " ").StringConcat(words)


def is_first(rows: Proxy) -> Proxy:
    """Returns a mask of the first column of rows [B, W].  [W] bool."""
    return arange(rows.size(1)) == 0


def joined_words(words: Proxy, mask: Proxy) -> Proxy:
    """Returns the kept words of each row with single spaces between them: [B, L] to [B]."""
    return joined(where(mask & (mask.integers().CumSum(1) > 1), " ", "").StringConcat(words))


def joined(strings: Proxy) -> Proxy:
    """Returns the concatenation of each row of strings: [B, L] to [B].

    `_TOGETHER` adjacent pieces are joined at a time, repeatedly: a text is copied only a few times,
    and onnxruntime's slow loop has few iterations.
    """

    def join(body: Graph, number: Proxy, rows: Proxy) -> tuple[Proxy, ...]:
        size = [_TOGETHER]
        blank = combine("Expand", "", concat(rows.size(0), size, axis=0))
        width = ((rows.size(1) + (_TOGETHER - 1)) / size * size).Max(size)
        rows = concat(rows, blank, axis=1)
        whole = concat_strings(rows.Slice([i], width, [1], size) for i in range(_TOGETHER))
        return _is_not_one(whole), whole

    kinds, wide = [("string", [None, None])], _is_not_one(strings)
    return loop(strings.graph, join, strings, kinds=kinds, first=wide)[0].Squeeze([1])


def concat_strings(parts: Iterable[Proxy]) -> Proxy:
    """Returns the concatenation of tensors of strings, element by element."""
    return functools.reduce(lambda one, other: one.StringConcat(other), parts)


def _column(rows: Proxy) -> Proxy:
    """Returns the shape of a single column for rows.  [2] int64."""
    return rows.size(0).Concat([1], axis=0)


def _is_not_one(rows: Proxy) -> Proxy:
    return rows.size(1).Squeeze() != 1


class NumberRows(NamedTuple):
    """Rows of numbers.

    Attributes:
      values: [B, S] int64, padded with 0; S may be 0.
      lengths: [B] int64.
    """

    values: Proxy
    lengths: Proxy


def of_flat(flat: Proxy, lengths: Proxy) -> NumberRows:
    """Returns rows from their concatenated numbers.

    Args:
      flat: [N] int64, numbers of all rows in order.
      lengths: [B] int64, sum N.
    """
    mask = mask_of(lengths, longest(lengths))
    zeros = (mask & False).integers()
    places = mask.NonZero().Transpose()  # [N, 2], row by row
    return NumberRows(zeros.ScatterND(places, flat), lengths)


def nonempty(strings: Proxy) -> tuple[Proxy, Proxy]:
    """Returns the nonempty strings of rows [B, W], and the row of each.  [N] string, [N] int64."""
    mask = strings != ""
    return strings.Reshape([-1]).Compress(mask.Reshape([-1]), axis=0), mask.NonZero()[0]


def rows_of(ids: Proxy, row: Proxy, like: Proxy) -> NumberRows:
    """Returns rows of ids.

    Args:
      ids: [N] int64, those of each row in order.
      row: the row of each, [N] int64.
      like: a tensor with as many rows.
    """
    zeros, ones = combine("Expand", 0, like.size(0)), combine("Expand", 1, row.Shape())
    return of_flat(ids, zeros.ScatterElements(row, ones, reduction="add"))


def of_letters(letters: Proxy, row: Proxy, like: Proxy) -> Proxy:
    """Returns rows of strings, [B, L], padded with "".

    Args:
      letters: [N] string, those of each row in order.
      row: the row of each, [N] int64.
      like: a tensor with as many rows.
    """
    index, lengths = rows_of(arange(row.Shape()), row, like)
    letters = letters.Concat([""], axis=0)
    return where(mask_of(lengths, longest(lengths)), take(letters, index), "")


def counted(lengths: Proxy) -> NumberRows:
    """Returns 0, 1, 2 etc. for each row."""
    width = longest(lengths)
    return NumberRows(arange(width) * mask_of(lengths, width).integers(), lengths)


def with_end(rows: NumberRows) -> NumberRows:
    """Returns rows with `EOS` appended to each."""
    values = rows.values.Pad([0, 0, 0, 1], 0)
    values = where(arange(values.size(1)) == upright(rows.lengths), EOS, values)
    return NumberRows(values, rows.lengths + 1)


def turned(rows: NumberRows) -> NumberRows:
    """Returns rows with each row reversed."""
    values = rows.values.ReverseSequence(rows.lengths, batch_axis=0, time_axis=1)
    return NumberRows(values, rows.lengths)


def cut(rows: NumberRows, lengths: Proxy) -> NumberRows:
    """Returns truncated rows, as wide as the longest of them, at least 1.

    Args:
      rows: rows to truncate.
      lengths: [B] int64, maximum length of each row.
    """
    lengths = rows.lengths.Min(lengths)
    width = longest(lengths)
    mask = mask_of(lengths, width).integers()
    return NumberRows(first(at_least_one(rows.values, 0), width) * mask, lengths)


def longest(lengths: Proxy) -> Proxy:
    """Returns the maximum of lengths, at least 1.  [1] int64."""
    return lengths.ReduceMax(keepdims=0).Max([1])


def mask_of(lengths: Proxy, width: Proxy) -> Proxy:
    """Returns a mask of the positions in each row.  [B, width] bool."""
    return arange(width) < upright(lengths)


def upright(lengths: Proxy) -> Proxy:
    """Returns numbers [B] as a column, [B, 1]."""
    return lengths.Unsqueeze([1])


SPACE, LINE_SPACE = r"\s", r"[ \t\r\n]"
"""Separators of `str.split`, and of `features.text.words_of`."""

_TESTS: dict[str, Callable[[str], bool]] = {
    "w": lambda character: character.isalnum() or character == "_",
    "d": str.isdecimal,
}
_SAME = "nrtfv"  # escapes with the same meaning in both

# Groups other than (?:...), lazy or possessive repetitions, POSIX classes.
_REFUSED = re.compile(r"\((?!\?:)|[*+?}][+?]|\[:")
_PARTS = re.compile(r"\\(?P<escape>.)|(?P<opens>\[\^?\]?)|(?P<closes>\])|[\^$]", re.DOTALL)


@functools.cache
def characters() -> tuple[str, ...]:
    """Returns all Unicode characters: every code point except surrogates."""
    return tuple(map(chr, itertools.chain(range(0xD800), range(0xE000, sys.maxunicode + 1))))


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


def re2(expression: str, space: Callable[[str], bool] = str.isspace) -> str:
    r"""Returns a Python regular expression in RE2's syntax, with \w, \s and \d expanded.

    Args:
      expression: the expression.
      space: test of the characters of \s.

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
            parts.append(_escaped(expression, escape, space, inside=inside))
        elif inside and not closes:
            parts.append(match[0].replace("[", r"\["))
        elif opens or closes:
            parts.append(match[0].replace("]]", r"]\]"))
            inside = bool(opens)
        else:
            _refuse(expression)
    return "".join(parts) + expression[end:]


def _escaped(expression: str, letter: str, space: Callable[[str], bool], *, inside: bool) -> str:
    """Returns an escaped character in RE2's syntax, inside or outside a class."""
    test = space if letter.lower() == "s" else _TESTS.get(letter.lower())
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


def lower_words(words: Proxy) -> Proxy:
    """Returns words in lower case: strings of any shape, without line ends.

    Equal to `str.lower` for every text.
    """
    return changed_words(words, capitals(), lower)


def capitals() -> str:
    """Returns the characters that `str.lower` changes as the content of an RE2 character class."""
    return ranges(_small().__contains__)


def lower(letters: Proxy) -> Proxy:
    """Returns the characters of texts in lower case; one may become several.

    Args:
      letters: [B, L] string, the characters of each text, padded with "".

    Returns:
      [B, L] string.
    """
    return where(_is_final(letters), _FINAL, substitute(letters, _small()))


def _is_final(letters: Proxy) -> Proxy:
    """Returns a mask of capital sigmas that end a word.  [B, L] bool.

    Such a sigma follows a cased character and is not followed by one, both ignoring case-ignorable
    characters.
    """
    # Uncased characters before and after each text.
    kinds = look_up(letters, _kinds(), _OTHER).Pad([0, 1, 0, 1], _OTHER)
    shape, flat = kinds.Shape(), kinds.Reshape([-1])
    counts = flat != _IGNORED
    counted = flat.Compress(counts, axis=0).Pad([0, 1], _OTHER)  # [K], at most [B * (L + 2)]
    place = counts.integers().CumSum(0)  # from 1
    ends = ((counted[place - 2] == _CASED) & (counted[place] != _CASED)).Reshape(shape)
    return ends.Slice([1], [-1], [1]) & (letters == _SIGMA)


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


def utf8(letters: Proxy) -> Proxy:
    """Returns the bytes of characters.

    Args:
      letters: [N] string, one character each or empty.

    Returns:
      [N, 4] int64, padded with `NONE`.
    """
    plain = {"": NONE, **{chr(number): number for number in range(0x80)}}
    packed = look_up(letters, plain, _WORD)
    others = packed == _WORD
    places = others.NonZero().Transpose()
    packed = packed.ScatterND(places, _unhashed(letters.Compress(others, axis=0))).Unsqueeze([1])
    octets = (packed / [1 << 8 * i for i in range(_MOST)]).BitwiseAnd(0xFF)
    return where((packed.BitwiseAnd(0xFF) >= list(_LEAST)) & (packed >= 0), octets, NONE)


def code_points(letters: Proxy) -> Proxy:
    """Returns the code points of characters: [N] string, none empty, to [N] int64."""
    octets = utf8(letters)
    count = (octets >= 0).integers().sum(1)
    # For each number of bytes: the weight of each byte, and the total of the marker bits.
    weights = np.zeros((_MOST + 1, _MOST), np.int64)
    marks = np.zeros(_MOST + 1, np.int64)
    for size in range(1, _MOST + 1):
        weights[size, :size] = _RADIX ** np.arange(size - 1, -1, -1)
        marks[size] = weights[size, 0] * _LEAST[size - 1] + weights[size, 1:].sum() * _CONTINUES[0]
    return (octets * take(weights, count)).sum(1) - take(marks, count)


def characters_with(points: Proxy) -> Proxy:
    """Returns the characters of code points: [N] int64, no surrogates, to [N] string."""
    one, two, three = ((points >= limit).integers() for limit in (0x80, 0x800, 0x10000))
    behind = one + two + three
    parts = []
    for place in range(_MOST):
        left = behind - place  # bytes after this one
        octet = points / take([_RADIX**i for i in range(_MOST)], left.Max(0))
        if place:
            octet = octet.BitwiseAnd(_RADIX - 1) + _CONTINUES[0]
        else:
            octet = octet + take(list(_LEAST), behind)
        parts.append(take(_WRITTEN, where(left >= 0, octet, _NOTHING)))
    return concat_strings(parts)


def texts_of(octets: Proxy, together: Proxy | None = None, *, strips: bool = False) -> Proxy:
    """Returns the texts of rows of bytes: `bytes.decode(errors="replace")`.

    Args:
      octets: [B, T] int64, 0 to 255, or `NONE` for no byte.
      together: 1 for bytes of whose neighboring ones all are replaced, each on its own, if any of
        them is invalid, else 0, [B, T] int64.
      strips: True to remove one space at the beginning.

    Returns:
      [B] string.
    """
    ended = octets.Pad([0, 0, 0, 1], _END)
    places = ended >= 0
    line = ended.Compress(places.Reshape([-1]))
    sound = _sound(line)
    if together is not None:
        own = together.Pad([0, 0, 0, 1], 0).Compress(places.Reshape([-1]))
        run = (own > shifted(own, -1, 0)).integers().CumSum(0)
        bad = (own == 1) & (sound == _REPLACED)
        bad_runs = own.Pad([0, 1], 0) * 0
        is_bad = bad_runs.ScatterElements(run, bad.integers(), reduction="max")[run]
        sound = where((own == 1) & (is_bad == 1), _REPLACED, sound)
    if strips:
        is_first = shifted(line, -1, _END) == _END
        sound = where(is_first & (sound == ord(" ")), _NOTHING, sound)
    blank = combine("Expand", "", ended.Shape())
    return joined(blank.ScatterND(places.NonZero().Transpose(), take(_WRITTEN, sound)))


def _sound(line: Proxy) -> Proxy:
    """Returns bytes with invalid UTF-8 replaced, as indices of `_WRITTEN`.

    The first byte of a character determines the number of bytes and the range of the second;
    Unicode 15.0, table 3-7.  The longest valid prefix of an incomplete character is replaced as a
    unit.

    Args:
      line: [N] int64, bytes of several texts, each followed by `_END`.
    """
    size, lowest, highest = (take(x, line) for x in _beginnings())
    length, fits = size * 0 + 1, size > 0
    for place in range(1, _MOST):
        octet = shifted(line, place, _END)
        fits = fits & (octet >= lowest) & (octet <= highest) & (size > place)
        length = fits.integers() + length
        lowest, highest = (line.graph.constant(limit) for limit in _CONTINUES)
    whole = length == size
    sound = where(whole, line, _REPLACED)
    for back in range(1, _MOST):
        over = shifted(length, -back, 0) > back
        sound = where(over, where(shifted(whole.integers(), -back, 0) == 1, line, _NOTHING), sound)
    return where(line == _END, _NOTHING, sound)


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


def _unhashed(letters: Proxy) -> Proxy:
    """Returns the bytes of characters with at least two bytes as one little-endian number.

    Args:
      letters: [N] string.

    Returns:
      [N] int64.
    """
    two = letters.RegexFullMatch(pattern=r"[\x{80}-\x{7FF}]")
    size = where(two, 2, where(letters.RegexFullMatch(pattern=r"[\x{800}-\x{FFFF}]"), 3, 4))
    number = _folded(letters.MurmurHash3(domain="com.microsoft", seed=0, positive=1).integers(), 16)
    number = _folded(_folded(_times(number, pow(_MIXED[1], -1, _WORD)), 13), 26)
    number = _folded(_times(number, pow(_MIXED[0], -1, _WORD)), 16).BitwiseXor(size)
    four = _times((number - _ADDED).BitwiseAnd(_WORD - 1), pow(5, -1, _WORD))
    number = where(size == 4, _turned(four, 13), number)
    number = _turned(_times(number, pow(_FACTORS[1], -1, _WORD)), 15)
    return _times(number, pow(_FACTORS[0], -1, _WORD))


def _times(number: Proxy, factor: int) -> Proxy:
    """Returns the lower 32 bits of the product of two 32-bit numbers."""
    half = 1 << 16  # computed in halves to stay within 64 bits
    low = number.BitwiseAnd((1 << 16) - 1)
    product = low * factor + (number / half * factor).BitwiseAnd((1 << 16) - 1) * half
    return product.BitwiseAnd(_WORD - 1)


def _folded(number: Proxy, bits: int) -> Proxy:
    """Returns the exclusive or of a number and the number shifted right by `bits`."""
    return number.BitwiseXor(number / (1 << bits))


def _turned(number: Proxy, bits: int) -> Proxy:
    """Returns a 32-bit number rotated right by `bits`."""
    return number / (1 << bits) + number.BitwiseAnd((1 << bits) - 1) * (1 << (32 - bits))


class FieldText:
    """The texts of a field.

    Args:
      texts: [B] string; omitted if `words` are given.
      words: [B, W] string, without whitespace, padded with "".
    """

    def __init__(self, texts: Proxy | None = None, words: Proxy | None = None) -> None:
        self._texts = texts
        self._words = words

    @functools.cached_property
    def texts(self) -> Proxy:
        """The texts: [B] string."""
        if self._texts is not None:
            return self._texts
        assert self._words is not None  # as one of them is given
        return joined(spaced(self._words))

    @functools.cached_property
    def letters(self) -> Proxy:
        """The characters of each text: [B, L] string, padded with ""; L > 0."""
        return at_least_one(characters_of(self.texts), "")

    @functools.cached_property
    def parts(self) -> Proxy:
        """The tokens of `str.split` of each text: [B, W] string, padded with ""."""
        return self._split(re2(SPACE))

    @functools.cached_property
    def words(self) -> Proxy:
        """The words of each text by `features.text.words_of`: [B, W] string, padded with ""."""
        return self._split(LINE_SPACE)

    def _split(self, space: str) -> Proxy:
        if self._words is not None:
            return self._words
        return tokens(self.texts, separators=[f"{space}+"])

    @functools.cached_property
    def lower_parts(self) -> Proxy:
        """`parts` in lower case."""
        return lower_words(self.parts)

    @functools.cached_property
    def lower_words(self) -> Proxy:
        """`words` in lower case."""
        return lower_words(self.words)

    @functools.cached_property
    def word_counts(self) -> Proxy:
        """The number of words of each text: [B] int64."""
        return count_of(self.words)


def count_of(strings: Proxy) -> Proxy:
    """Returns the number of nonempty strings of each row: [B, W] to [B] int64."""
    return (strings != "").integers().sum(1)


def before_end(ids: Proxy) -> Proxy:
    """Returns a mask of the ids before the first `EOS`.  [B, T] bool."""
    return (ids == EOS).integers().CumSum(1) == 0


def token_offsets(texts: Proxy, split: Proxy, words_given: Proxy) -> Proxy:
    """Returns the start and the end of each word in its text, in characters.  [B, W, 2] int64.

    Args:
      texts: [B] string.
      split: [B] string, the texts with exactly one space between words.
      words_given: [B] or [1] bool, true for texts whose words are separated by `LINE_SPACE` only.
    """
    of_texts = [at_least_one(characters_of(one), "") for one in (texts, split)]
    lines = [blank_mask(letters, " \t\r\n") for letters in of_texts]
    spaces = lines[0] | blank_mask(of_texts[0], whitespace()) & ~upright(words_given)
    places = _picked(arange(spaces.size(1)).Expand(spaces.Shape()), ~spaces)
    letter = ~lines[1]
    edges = beside(lines[1].integers(), 1)
    counts = (letter & (edges[0] == 1)).integers().sum(1)
    ends = []
    for edge in edges:
        is_edge = _picked(letter & (edge == 1), letter)
        ends.append(of_flat(places.Compress(is_edge, axis=0), counts).values)
    # The end is exclusive; padding remains 0.
    ends[1] = ends[1] + mask_of(counts, longest(counts)).integers()
    return concat(*(one.Unsqueeze([2]) for one in ends), axis=2)


def blank_mask(letters: Proxy, spaces: Iterable[str]) -> Proxy:
    """Returns a mask of spaces and padding.  [B, L] bool."""
    return look_up(letters, dict.fromkeys(["", *spaces], 1), 0) == 1


def _picked(values: Proxy, mask: Proxy) -> Proxy:
    """Returns the values [B, L] at which a mask is true, row by row, as a vector."""
    return values.Reshape([-1]).Compress(mask.Reshape([-1]), axis=0)


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

    ids: Proxy
    between: Proxy


class EncoderGraph(ABC):
    """Implementation of a `TextEncoder` in a graph.

    Args:
      encoder: the encoder.
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
