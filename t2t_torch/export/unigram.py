"""Unigram subwords in an ONNX graph: the tokenizers of T5 and XLM-R.

The most probable pieces of each word are searched (Kudo 2018, arXiv:1804.10959), after the
normalization of Hugging Face's tokenizers.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping

import numpy as np

from t2t_torch.export.graph import Proxy, shifted, take, where
from t2t_torch.export.segmentation import most_probable
from t2t_torch.export.strings import (
    FieldText,
    NumberRows,
    at_least_one,
    beside,
    characters,
    characters_of,
    is_first,
    joined,
    look_up,
    named,
    nonempty,
    rows_of,
    substitute,
    tokens,
    utf8,
    whitespace,
)
from t2t_torch.text.pieces import HuggingFacePieces

META_SPACE = "\u2581"

_METASPACE = {
    "type": "Metaspace",
    "replacement": META_SPACE,
    "prepend_scheme": "always",
    "split": True,
}
_STEPS = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE]}
_SHORT = 6  # bytes below which a grapheme is normalized as a whole
_ACUTE = "a\u0301"  # a key, to try which characters belong to a grapheme
_NONE = "\0"  # no value of a table of texts


def why_not_unigram(pieces: HuggingFacePieces) -> str:
    """Returns the part of a Unigram tokenizer that a graph cannot compute exactly; "" if none."""
    config = pieces.config
    normalizer, model = config["normalizer"], config["model"]
    if config["pre_tokenizer"] != _STEPS:
        return "its words are not split as those of T5"
    if normalizer and normalizer["type"] != "Precompiled":
        return f"its normalizer is {normalizer['type']}"
    if config["decoder"] != _METASPACE:
        return "its decoder is not that of T5"
    if any(not one["special"] for one in config["added_tokens"]):
        return "it has added tokens that are not special"
    if model.get("byte_fallback") or model["unk_id"] is None:
        return "it has no unknown token"
    table = _table(normalizer["precompiled_charsmap"]) if normalizer else {_ACUTE: ""}
    covered = [{key[:1], key[:2]} & table.keys() for key in table]
    if _ACUTE not in table or not all(covered):
        return "its normalizer is not that of sentencepiece"
    return ""


def encode_unigram(
    pieces: HuggingFacePieces, ids: Mapping[str, int], unknown: int, field: FieldText
) -> NumberRows:
    """Returns our ids of texts.

    Args:
      pieces: the tokenizer.
      ids: our id of each token.
      unknown: our id of all others.
      field: the texts.
    """
    letters, model = field.letters, pieces.config["model"]
    if pieces.config["normalizer"]:
        letters = at_least_one(characters_of(joined(_normalized(letters, pieces))), "")
    spaces = {one: "" for one in whitespace() if not "\x1c" <= one <= "\x1f"}  # of Rust
    letters = substitute(letters, spaces, _NONE)
    before, _ = beside(letters, "")
    # A word begins after whitespace, and at a letter that is the sign of a space.
    is_apart, is_sign = before == "", letters == META_SPACE
    sign = where(is_apart & ~is_sign, META_SPACE, "")
    start = where(is_apart | is_sign, "\n", "")
    marked = where(letters == "", "", start.StringConcat(sign).StringConcat(letters))
    words = tokens(joined(marked), separators=["\n"])
    flat, row = nonempty(words)
    found, word = most_probable(flat, model["vocab"])
    ours = np.array([*(ids.get(token, unknown) for token, _ in model["vocab"]), unknown])
    return rows_of(take(ours, found), row[word], words)


def decode_unigram(names: tuple[str, ...], ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of tokens, [B] string.

    Args:
      names: token of each id.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.
    """
    is_lead = mask.integers().CumSum(1) == 1
    inside, lead = ([one.replace(META_SPACE, by) for one in names] for by in (" ", ""))
    return joined(where(is_lead, named(lead, ids, mask), named(inside, ids, mask)))


def _normalized(letters: Proxy, pieces: HuggingFacePieces) -> Proxy:
    """Returns the characters of texts, replaced by the tokenizer's map of characters.

    As in Hugging Face's tokenizers a grapheme of few bytes that begins with a key of the map is
    replaced by its value as a whole, also where it has further marks; characters of other graphemes
    are replaced one by one.

    Args:
      letters: [B, L] string, padded with "".
      pieces: the tokenizer.
    """
    table = _table(pieces.config["normalizer"]["precompiled_charsmap"])
    alone = {one: pieces.normalize(one) for one in characters()}
    normalize, acute = pieces.normalize, table[_ACUTE]
    marks = [one for one, its in alone.items() if normalize(_ACUTE + one) != acute + its]
    joins = [one for one, its in alone.items() if normalize(one + _ACUTE) != its + acute]
    single = {key: value for key, value in table.items() if len(key) == 1}
    closed = [one for one in single if normalize(one + _ACUTE[1:]) != single[one]]
    before, after = (one.Reshape([-1]) for one in beside(letters, ""))
    not_first = (~is_first(letters) & (letters != "")).Reshape([-1])
    letters, shape = letters.Reshape([-1]), letters.Shape()
    is_mark, is_joined, is_closed = (
        look_up(one, dict.fromkeys(some, 1), 0) == 1
        for one, some in ((letters, marks), (before, joins), (before, closed))
    )
    inner = not_first & (is_mark | is_joined) & ~is_closed
    starts = ~inner
    group = starts.integers().CumSum(0) - 1
    zeros = group * 0
    octets = (utf8(letters) >= 0).integers().sum(1)
    size = zeros.ScatterElements(group, octets, reduction="add")[group]
    own = look_up(letters, single, _NONE)
    pair = where(shifted(inner.integers(), 1, 0) == 1, letters.StringConcat(after), "")
    both = look_up(pair, {key: one for key, one in table.items() if len(key) == 2}, _NONE)
    whole = where(own == _NONE, both, own)
    is_key = (starts & (size < _SHORT) & (whole != _NONE)).integers()
    is_whole = zeros.ScatterElements(group, is_key, reduction="max")[group] == 1
    by_letter = where(own == _NONE, letters, own)
    return where(is_whole, where(starts, whole, ""), by_letter).Reshape(shape)


@functools.lru_cache(1)
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
