"""Llama's and Mistral's BPE in an ONNX graph: spaces are a letter, unknown characters are bytes.

Tokenizers of Hugging Face with byte fallback (sentencepiece, Kudo and Richardson 2018,
arXiv:1808.06226). Merges are made inside the graph, the best pair of each text at all its places
per iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_torch.export.graph import Proxy, combine, take, where
from t2t_torch.export.segmentation import merge_pairs
from t2t_torch.export.strings import (
    NONE,
    FieldText,
    NumberRows,
    at_least_one,
    characters_of,
    look_up,
    nonempty,
    rows_of,
    texts_of,
    utf8,
)

META_SPACE = "\u2581"

_BYTES = tuple(f"<0x{number:02X}>" for number in range(256))
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": META_SPACE}
_PREPEND = {"type": "Prepend", "prepend": META_SPACE}
_DECODERS = [
    {"type": "Replace", "pattern": {"String": META_SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]


def has_byte_fallback(config: Mapping[str, Any]) -> bool:
    """Returns True if a tokenizer.json is BPE with byte fallback."""
    return config["model"]["type"] == "BPE" and bool(config["model"].get("byte_fallback"))


def why_not_byte_fallback(config: Mapping[str, Any]) -> str:
    """Returns the part of a tokenizer.json that a graph cannot compute exactly; "" if none.

    Args:
      config: content of a tokenizer.json with byte fallback.
    """
    model = config["model"]
    steps = config["normalizer"] or {}
    if steps.get("normalizers") != [_PREPEND, _REPLACE] or config["pre_tokenizer"]:
        return "its normalizer is not that of Llama 2"
    if (config["decoder"] or {}).get("decoders") != _DECODERS:
        return "its decoder is not that of Llama 2"
    if any(not one["special"] for one in config["added_tokens"]):
        return "it has added tokens that are not special"
    options = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    if any(model.get(name) for name in options):
        return "its merges have options"
    if any(name not in model["vocab"] for name in _BYTES):
        return "it lacks tokens of bytes"
    pairs = _merges(config)
    if any(one in _BYTES for pair in pairs for one in pair):
        return "it merges tokens of bytes"
    return "the order of its merges depends on places" if _depends_on_places(pairs) else ""


def encode_bytes(
    config: Mapping[str, Any], ids: Mapping[str, int], unknown: int, field: FieldText
) -> NumberRows:
    """Returns our ids of texts.

    Args:
      config: content of the tokenizer.json.
      ids: our id of each token.
      unknown: our id of all others.
      field: the texts.
    """
    vocabulary, ranks = config["model"]["vocab"], _merges(config)
    numbers = {token: number for number, token in enumerate(vocabulary)}
    texts = where(field.texts == "", "", combine("StringConcat", META_SPACE, field.texts))
    letters, rows = nonempty(at_least_one(characters_of(texts), ""))
    single = {token: number for token, number in numbers.items() if len(token) == 1}
    single[" "] = numbers.get(META_SPACE, NONE)  # NONE: its bytes
    symbols = look_up(letters, single, NONE).Unsqueeze([1])
    octets = utf8(where(letters == " ", META_SPACE, letters))
    table = np.array([*(numbers[name] for name in _BYTES), NONE])  # the last is that of NONE
    fallback = take(table, octets)  # [N, 4]
    symbol = symbols.Concat(combine("Expand", NONE, symbols.Shape()), axis=1)
    symbol = symbol.Concat(symbol, axis=1)  # of the first column one is used
    wanted = where(symbols >= 0, where(np.array([[True, *[False] * 3]]), symbol, NONE), fallback)
    kept = (wanted >= 0).Reshape([-1])
    row = rows.Unsqueeze([1]).Expand(wanted.Shape()).Reshape([-1]).Compress(kept, axis=0)
    flat = wanted.Reshape([-1]).Compress(kept, axis=0)
    flat, row = merge_pairs(flat, row, ranks, numbers, field.texts.Shape())
    ours = np.array([ids.get(token, unknown) for token in vocabulary])
    return rows_of(take(ours, flat), row, field.texts)


def decode_bytes(tokens: tuple[str, ...], ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of tokens, [B] string; bytes that are not UTF-8 are replaced one by one.

    Args:
      tokens: token of each id.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.
    """
    values = {name: bytes([number]) for number, name in enumerate(_BYTES)}
    octets = [values.get(one, one.replace(META_SPACE, " ").encode()) for one in tokens]
    table = np.full((len(octets), max(map(len, octets))), NONE, np.int64)
    for line, text in zip(table, octets, strict=True):
        line[: len(text)] = list(text)
    rows = where(mask.Unsqueeze([2]), take(table, ids), NONE)  # [B, T, most]
    is_byte = take(np.array([one in values for one in tokens]), ids).Unsqueeze([2])
    own = (is_byte & (rows >= 0)).integers().Reshape([0, -1])
    return texts_of(rows.Reshape([0, -1]), own, strips=True)


def _merges(config: Mapping[str, Any]) -> dict[tuple[str, ...], int]:
    """Returns the rank of each merge."""
    merges = config["model"]["merges"]
    pairs = (tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in merges)
    return {(first, second): rank for rank, (first, second) in enumerate(pairs)}


def _depends_on_places(ranks: Mapping[tuple[str, ...], int]) -> bool:
    """Returns True if a merge ranks before one that makes a part of it.

    Else all places of a merge are made before any other, which the graph relies on.
    """
    made: dict[str, int] = {}
    for (first, second), rank in ranks.items():
        made[first + second] = max(rank, made.get(first + second, -1))
    return any(made.get(part, -1) > rank for pair, rank in ranks.items() for part in pair)
