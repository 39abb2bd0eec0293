"""Reader of spaCy's DocBin, the `.spacy` files of `spacy convert` and `spacy train`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_torch.errors import DataError, require
from t2t_torch.files import file_content
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader

_MOST = 1 << 30  # unpacked bytes
_ORTH, _POS, _TAG, _ENT_IOB, _ENT_TYPE = 65, 74, 75, 77, 78  # ids of attributes
_MARKS = {1: "I", 3: "B"}  # of the values of ENT_IOB inside an entity
CHOSEN = 0.5
"""Least score of a category that a document has."""

_SYMBOLS = {
    64: (
        "ID ORTH LOWER NORM SHAPE PREFIX SUFFIX LENGTH CLUSTER LEMMA POS TAG DEP ENT_IOB ENT_TYPE "
        "HEAD SENT_START SPACY PROB LANG ADJ ADP ADV AUX CONJ CCONJ DET INTJ NOUN NUM PART PRON "
        "PROPN PUNCT SCONJ SYM VERB X EOL SPACE"
    ),
    380: (
        "PERSON NORP FACILITY ORG GPE LOC PRODUCT EVENT WORK_OF_ART LANGUAGE LAW DATE TIME "
        "PERCENT MONEY QUANTITY ORDINAL CARDINAL acomp advcl advmod agent amod appos attr aux "
        "auxpass cc ccomp complm conj cop csubj csubjpass dep det dobj expl hmod hyph infmod intj "
        "iobj mark meta neg nmod nn npadvmod nsubj nsubjpass num number oprd obj obl parataxis "
        "partmod pcomp pobj poss possessive preconj prep prt punct quantmod relcl rcmod root "
        "xcomp acl ENT_KB_ID MORPH ENT_ID IDX _"
    ),
}
"""The strings that spaCy numbers, from the first number; it hashes all others."""


def _match_docbin(head: Head) -> Match | None:
    try:
        start = zlib.decompressobj().decompress(head.start[:10_000], 1000)
    except zlib.error:
        return None
    return Match(1.0) if b"attrs" in start and b"version" in start[:20] else None


@register_reader("docbin", endings=(".spacy",), matches=_match_docbin)
def read_docbin(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields {"text", "words", "tags", "pos", "labels", "label"} for each document.

    "tags" are IOB2 tags of the entities, "pos" those of the words (TAG, or else POS), "labels" the
    categories with a score of at least 0.5, and "label" the category if it is one, else None; each
    is left out if no document of the file has it.  Words that are blank are left out, and groups of
    spans and user data are not read.  The file is loaded into memory.

    DocBin, spacy.io/api/docbin.

    Args:
      path: the file.
      bad: policy for documents without words.

    Raises:
      DataError: msgpack is not installed, or the file cannot be read, or is no DocBin.
    """
    msgpack = require("msgpack", "spacy", f"{path} is read with msgpack", DataError)
    try:
        unpack = zlib.decompressobj()
        content = unpack.decompress(file_content(path, "file"), _MOST)
        if unpack.unconsumed_tail or not unpack.eof:
            raise ValueError(f"it ends early, or has more than {_MOST:,} bytes")
        yield from _documents(path, msgpack.unpackb(content), bad)
    except (zlib.error, ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise DataError(
            f"{path} is no DocBin of spaCy that can be read: {error}. Convert it with spaCy: save "
            "the words and tags of each document as JSON."
        ) from None


def _documents(path: Path, held: Mapping[str, Any], bad: BadRecords) -> Iterator[Record]:
    attributes = [int(one) for one in held["attrs"]]
    lengths = np.frombuffer(held["lengths"], "<i4")
    tokens = np.frombuffer(held["tokens"], "<u8").reshape(-1, len(attributes))
    spaces = np.frombuffer(held["spaces"], bool)
    if len(tokens) != lengths.sum() or len(spaces) != len(tokens) or (lengths < 0).any():
        raise ValueError(f"{len(tokens):,} words, where {lengths.sum():,} were expected")
    columns = dict(zip(attributes, tokens.T, strict=True))
    names = {_hash(one): one for one in held["strings"]} | {0: ""}
    for first, symbols in _SYMBOLS.items():
        names |= dict(enumerate(symbols.split(), first))
    tagging = next((one for one in (_TAG, _POS) if columns.get(one, np.zeros(1)).any()), None)
    has_entities = bool(np.isin(columns.get(_ENT_IOB, ()), list(_MARKS)).any())
    scores = held.get("cats") or [{}] * len(lengths)
    for number, (end, length) in enumerate(zip(np.cumsum(lengths), lengths, strict=True)):
        part = slice(int(end - length), int(end))
        words = [names[int(one)] for one in columns[_ORTH][part]]
        kept = [place for place, word in enumerate(words) if word.strip()]
        place = Place(path, number + 1, unit="document")
        if not kept:
            bad.report(place, "no words")
            continue
        blanks = [" " if one else "" for one in spaces[part]]
        text = "".join(map("".join, zip(words, blanks, strict=True))).strip()
        values: dict[str, Any] = {"text": text, "words": [words[one] for one in kept]}
        if has_entities:
            kinds = ("_".join(names[int(one)].split()) for one in columns[_ENT_TYPE][part])
            tags = [
                f"{_MARKS[int(mark)]}-{kind}" if mark in _MARKS else "O"
                for mark, kind in zip(columns[_ENT_IOB][part], kinds, strict=True)
            ]
            values["tags"] = [tags[one] for one in kept]
        if tagging is not None:
            values["pos"] = [names[int(columns[tagging][part][one])] for one in kept]
        if any(scores):
            values["labels"] = [name for name, one in scores[number].items() if one >= CHOSEN]
            values["label"] = values["labels"][0] if len(values["labels"]) == 1 else None
        yield Record(place, values)


_FACTOR, _SHIFT, _64_BITS = 0xC6A4A7935BD1E995, 47, (1 << 64) - 1


def _hash(text: str) -> int:
    """Returns the hash of a string: MurmurHash64A with the seed 1."""
    raw = text.encode("utf-8", "surrogatepass")
    if not raw:
        return 0
    made = 1 ^ (len(raw) * _FACTOR & _64_BITS)
    whole = len(raw) // 8 * 8
    for (block,) in struct.iter_unpack("<Q", raw[:whole]):
        mixed = block * _FACTOR & _64_BITS
        mixed = (mixed ^ (mixed >> _SHIFT)) * _FACTOR & _64_BITS
        made = (made ^ mixed) * _FACTOR & _64_BITS
    if rest := raw[whole:]:
        made = (made ^ int.from_bytes(rest, "little")) * _FACTOR & _64_BITS
    made = (made ^ (made >> _SHIFT)) * _FACTOR & _64_BITS
    return made ^ (made >> _SHIFT)
