"""BPE of bytes in an ONNX graph: tokenizers of GPT-2, RoBERTa, BART, Llama 3, Qwen and others."""

from __future__ import annotations

import json

import numpy as np

from t2t_torch.export.graph import EXTENSIONS, Proxy, take, where
from t2t_torch.export.strings import NONE, FieldText, NumberRows, of_flat, texts_of
from t2t_torch.text.pieces import HuggingFacePieces, PieceEncoder

_CLASS = {"tokenizer_class": "GPT2Tokenizer"}  # by which the operator knows BPE of bytes


def is_byte_level(pieces: HuggingFacePieces) -> bool:
    """Returns True for a tokenizer that merges pairs of bytes."""
    config = pieces.config
    steps = config.get("pre_tokenizer") or {}
    kinds = {step.get("type") for step in steps.get("pretokenizers", [steps])}
    return config["model"]["type"] == "BPE" and "ByteLevel" in kinds and not config["normalizer"]


def byte_pairs(
    pieces: HuggingFacePieces, ids: dict[str, int], unknown: int, field: FieldText
) -> NumberRows:
    """Returns our ids of texts; a text ends at NUL.

    Args:
      pieces: the tokenizer.
      ids: our id of each token.
      unknown: our id of all others.
      field: the texts.
    """
    names = [one["content"] for one in pieces.config["added_tokens"] if one["special"]]
    added = [one for one in pieces.config["added_tokens"] if one["content"] not in names]
    config = {**pieces.config, "added_tokens": added, "post_processor": None}
    theirs, mask = field.texts.graph.several(
        2,
        "HfJsonTokenizer",
        field.texts,
        domain=EXTENSIONS,
        tokenizer_vocab=json.dumps(config),
        tokenizer_config=json.dumps(_CLASS),
    )
    vocabulary = pieces.config["model"]["vocab"]
    vocabulary = {**vocabulary, **{one["content"]: one["id"] for one in added}}
    table = np.full(max(vocabulary.values()) + 1, unknown, np.int64)
    for token, number in vocabulary.items():
        table[number] = ids.get(token, unknown)
    flat = theirs.Reshape([-1]).Compress(mask.Reshape([-1]) == 1, axis=0)
    return of_flat(take(table, flat), mask.integers().sum(1))


def join_byte_pairs(encoder: PieceEncoder, ids: Proxy, mask: Proxy) -> Proxy:
    """Returns the texts of tokens, [B] string; invalid UTF-8 is replaced.

    Args:
      encoder: the encoder.
      ids: [B, T] int64.
      mask: mask of ids that have a text, [B, T] bool.
    """
    letters = _letters()
    octets = [
        [letters[one] for one in token]
        if all(one in letters for one in token)
        else list(token.encode())
        for token in encoder.tokens
    ]
    table = np.full((len(octets), max(map(len, octets))), NONE, np.int64)
    for row, own in zip(table, octets, strict=True):
        row[: len(own)] = own
    rows = where(mask.Unsqueeze([2]), take(table, ids), NONE)  # [B, T, most]
    return texts_of(rows.Reshape([0, -1]))


def _letters() -> dict[str, int]:
    """Returns the byte that each letter stands for: those that are printed stand for themselves."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (one for one in range(256) if one not in printed)
    numbered = {chr(256 + number): one for number, one in enumerate(others)}
    return {**{chr(one): one for one in printed}, **numbered}
