"""Normalizers of Hugging Face's tokenizers in an ONNX graph, step by step."""

from __future__ import annotations

import base64
import functools
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from t2t_torch.errors import ExportError
from t2t_torch.export import strings
from t2t_torch.export.graph import (
    EXTENSIONS,
    LINE,
    Graph,
    Proxy,
    any_true,
    combine,
    latest,
    loop,
    places,
    shifted,
    true_places,
    where,
)
from t2t_torch.text.pieces import HuggingFacePieces

Step = Mapping[str, Any]
"""A step of a tokenizer.json."""

_BLOCK = 256  # neighboring characters, which are often unchanged all
_RADIX = sys.maxunicode + 1
_LAST_CLASS = 240  # of combining marks; U+0345 has it
_LAST_MARK = "\u0345"
_SHORT = 6  # bytes below which a grapheme is normalized as a whole
_ACUTE = "a\u0301"  # a key, to try which characters belong to a grapheme
_NONE = "\0"  # no value of a table of texts


def normalized(step: Step | None, texts: Proxy) -> Proxy:
    """Returns normalized texts, [B] string.

    Args:
      step: the normalizer of a tokenizer.json.
      texts: [B] string.

    Raises:
      ExportError: it has a step that no graph computes.
    """
    match step:
        case None:
            return texts
        case {"type": "Sequence", "normalizers": steps}:
            return functools.reduce(lambda its, one: normalized(one, its), steps, texts)
        case {"type": "Prepend", "prepend": mark}:
            return where(texts == "", "", combine("StringConcat", mark, texts))
        case {"type": "Replace", "pattern": pattern, "content": content}:
            if len(literal := pattern.get("String", "")) == 1:
                return strings.joined(
                    strings.substitute(strings.FieldText(texts).letters, {literal: content}, _NONE)
                )
            expression = strings.re2(pattern.get("Regex", re.escape(literal)), is_space)
            return _substituted(texts, expression, content)
        case {"type": "Strip", "strip_left": left, "strip_right": right}:
            space = f"[{strings.ranges(is_space)}]+"
            sides = [f"^{space}"] * left + [f"{space}$"] * right
            return _substituted(texts, "|".join(sides), "") if sides else texts
        case {"type": "Precompiled", "precompiled_charsmap": charsmap}:
            return _by_grapheme(charsmap, texts)
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
            return _canonical(form, texts)
        case {"type": "Lowercase" | "StripAccents" | "Nmt" as kind}:
            return _by_letter(kind, texts)
    raise ExportError(f"its normalizer has the step {step['type']}")


def is_space(character: str) -> bool:
    """Returns True for whitespace of Unicode, as Rust and Oniguruma have it."""
    return character.isspace() and not "\x1c" <= character <= "\x1f"


def normalizer_of(step: Step) -> Callable[[str], str]:
    """Returns the function of a step in the package tokenizers."""
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    config = {"version": "1.0", "added_tokens": [], "normalizer": step, "model": empty}
    return HuggingFacePieces(json.dumps(config)).normalize


@functools.lru_cache(4)
def _changes(kind: str) -> dict[str, str]:
    """Returns what a step of a type without options makes of each character that it changes."""
    normalize, every = normalizer_of({"type": kind}), strings.characters()
    changed: dict[str, str] = {}
    for start in range(0, len(every), _BLOCK):
        block = every[start : start + _BLOCK]
        if normalize("".join(block)) != "".join(block):
            own = {one: normalize(one) for one in block}
            changed |= {one: text for one, text in own.items() if text != one}
    return changed


def _by_letter(kind: str, texts: Proxy) -> Proxy:
    """Returns texts after a step that changes each character alone."""
    return strings.joined(
        strings.substitute(strings.FieldText(texts).letters, _changes(kind), _NONE)
    )


def _substituted(texts: Proxy, pattern: str, content: str) -> Proxy:
    """Returns texts with all matches of an expression replaced; a text ends at NUL."""
    content = content.replace("\\", r"\\")
    values = texts, [pattern], [content]
    return texts.graph.add("StringRegexReplace", *values, domain=EXTENSIONS, global_replace=1)


def _canonical(form: str, texts: Proxy) -> Proxy:
    """Returns texts in a normalization form of Unicode: Unicode Standard Annex 15."""
    apart = f"{form[:-1]}D"
    letters, row = strings.nonempty(strings.FieldText(_by_letter(apart, texts)).letters)
    # Marks between two other letters are in the order of their classes.
    kind = strings.look_up(letters, _classes(normalizer_of({"type": apart})), 0)
    begins = (kind == 0) | (row != shifted(row, -1, strings.NONE))
    key = (begins.integers().CumSum(0) * (_LAST_CLASS + 1) + kind) * letters.Shape() + places(row)
    _, order = letters.graph.several(2, "TopK", key, letters.Shape(), largest=0)
    letters, kind = letters[order], kind[order]
    if form.endswith("C"):
        compose = normalizer_of({"type": form})
        points, row = _composed(strings.code_points(letters), kind, row, compose)
        letters = strings.characters_with(points)
    return strings.joined(strings.of_letters(letters, row, texts))


def _classes(normalize: Callable[[str], str]) -> dict[str, int]:
    """Returns the combining class of each mark that a normalizer puts in order."""
    classes = {one: unicodedata.combining(one) for one in strings.characters()}
    return {
        one: its
        for one, its in classes.items()
        if its == _LAST_CLASS or (its and normalize(_LAST_MARK + one) == one + _LAST_MARK)
    }


def _composed(
    points: Proxy, kind: Proxy, row: Proxy, compose: Callable[[str], str]
) -> tuple[Proxy, Proxy]:
    """Returns the code points of texts and their rows after canonical composition, [M] int64 each.

    Args:
      points: code points in canonical order, [N] int64.
      kind: combining class of each, [N] int64.
      row: row of each, [N] int64.
      compose: normalizer to a composed form.
    """
    pairs = {strings.NONE: strings.NONE}
    for whole, parts in _changes("NFD").items():
        first = compose(parts[:-1])
        if len(first) == 1 and compose(whole) == whole == compose(first + parts[-1]):
            pairs[ord(first) * _RADIX + ord(parts[-1])] = ord(whole)

    def turn(body: Graph, number: Proxy, points: Proxy, kind: Proxy, row: Proxy) -> Any:
        place = places(points)
        start = shifted(latest(kind == 0), -1, strings.NONE)  # the last starter before each
        at = start.Max(0)
        key = where((start < 0) | (row[at] != row), strings.NONE, points[at] * _RADIX + points)
        whole = strings.look_up(key, pairs, strings.NONE)
        is_free = (start == place - 1) | (kind > shifted(kind, -1, 0))
        joins = (whole != strings.NONE) & is_free
        # A starter that joins the one before it comes first.
        joins = joins & (joins.integers()[at] == 0)
        nearest = points * 0 + points.Shape()
        wanted = where(joins, place, points.Shape())
        joins = joins & (nearest.ScatterElements(at, wanted, reduction="min")[at] == place)
        joined_at = true_places(joins)
        points = points.ScatterElements(at[joined_at], whole[joined_at])
        left = (one.Compress(~joins, axis=0) for one in (points, kind, row))
        return any_true(joins), *left

    points, _, row = loop(points.graph, turn, points, kind, row, kinds=[LINE] * 3)
    return points, row


def _by_grapheme(charsmap: str, texts: Proxy) -> Proxy:
    """Returns texts after sentencepiece's map of characters.

    As in Hugging Face's tokenizers a grapheme of few bytes that begins with a key of the map is
    replaced by its value as a whole, also where it has further marks; characters of other graphemes
    are replaced one by one.
    """
    letters = strings.FieldText(texts).letters
    table, marks, joins, closed = _graphemes(charsmap)
    single = {key: value for key, value in table.items() if len(key) == 1}
    before, after = (one.Reshape([-1]) for one in strings.beside(letters, ""))
    not_first = (~strings.is_first(letters) & (letters != "")).Reshape([-1])
    letters, shape = letters.Reshape([-1]), letters.Shape()
    is_mark, is_joined, is_closed = (
        strings.look_up(one, dict.fromkeys(some, 1), 0) == 1
        for one, some in ((letters, marks), (before, joins), (before, closed))
    )
    inner = not_first & (is_mark | is_joined) & ~is_closed
    inner = inner | (before == "\r") & (letters == "\n")
    starts = ~inner
    group = starts.integers().CumSum(0) - 1
    zeros = group * 0
    octets = (strings.utf8(letters) >= 0).integers().sum(1)
    size = zeros.ScatterElements(group, octets, reduction="add")[group]
    own = strings.look_up(letters, single, _NONE)
    pair = where(shifted(inner.integers(), 1, 0) == 1, letters.StringConcat(after), "")
    both = strings.look_up(pair, {key: one for key, one in table.items() if len(key) == 2}, _NONE)
    whole = where(own == _NONE, both, own)
    is_key = (starts & (size < _SHORT) & (whole != _NONE)).integers()
    is_whole = zeros.ScatterElements(group, is_key, reduction="max")[group] == 1
    by_letter = where(own == _NONE, letters, own)
    return strings.joined(where(is_whole, where(starts, whole, ""), by_letter).Reshape(shape))


@functools.lru_cache(1)
def _graphemes(charsmap: str) -> tuple[dict[str, str], list[str], list[str], list[str]]:
    """Returns a map of characters; those that belong to a grapheme with the one before, and with
    the one after; and those of the map that do not belong to one with a mark.
    """
    table = _table(charsmap)
    covered = [{key[:1], key[:2]} & table.keys() for key in table]
    if _ACUTE not in table or not all(covered):
        raise ExportError("its normalizer is not that of sentencepiece")
    normalize = normalizer_of({"type": "Precompiled", "precompiled_charsmap": charsmap})
    alone = {one: normalize(one) for one in strings.characters()}
    acute = table[_ACUTE]
    marks = [one for one, its in alone.items() if normalize(_ACUTE + one) != acute + its]
    joins = [one for one, its in alone.items() if normalize(one + _ACUTE) != its + acute]
    single = [one for one in table if len(one) == 1]
    closed = [one for one in single if normalize(one + _ACUTE[1:]) != table[one]]
    return table, marks, joins, closed


def _table(charsmap: str) -> dict[str, str]:
    """Returns a map of characters in base64, of keys of fewer than `_SHORT` bytes.

    It is a trie of Darts-clone, whose units have a byte, a flag of a value, and an offset; and
    values that end in NUL.
    """
    content = base64.b64decode(charsmap)
    size = int.from_bytes(content[:4], "little")
    units = np.frombuffer(content, "<u4", size // 4, 4).astype(np.int64)
    branches = np.arange(len(units)) ^ (units >> 10) << ((units & 1 << 9) >> 6)
    values, table = content[4 + size :], {}
    left = [(0, b"")]
    while left:
        place, key = left.pop()
        near = branches[place] ^ np.arange(1, 256)
        near = near[near < len(units)]
        for unit in near[units[near] & 0x800000FF == near ^ branches[place]].tolist():
            longer = key + bytes([unit ^ int(branches[place])])
            left += [(unit, longer)] if len(longer) < _SHORT - 1 else []
            if units[unit] >> 8 & 1:
                value = int(units[branches[unit]]) & 0x7FFFFFFF
                table[longer.decode()] = values[value : values.index(b"\0", value)].decode()
    return table
