"""Vocabularies of other libraries: a list of tokens, and a subword model that splits texts."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import sentencepiece

from t2t_torch.errors import DataError, require
from t2t_torch.files import MAX_VOCABULARY, read_bytes, read_json
from t2t_torch.text.encoder import NUM_RESERVED, TextEncoder, check_unicode, vocabulary_errors

END_OF_WORD = "</w>"
"""End of the last symbol of a word in BPE codes."""

_MAX_REMEMBERED = 1 << 17


class BytePairEncoding:
    """Splits words by the merges of subword-nmt or fastBPE: "gar@@ den".

    Sennrich et al. 2016, arXiv:1508.07909.

    Args:
      codes: content of the codes file: a merge per line, the most important first; of fastBPE with
        a count.
      separator: end of each piece but the last of a word.

    Attributes:
      ranks: position of each merge; lower ones are made first.
      end_is_apart: True if the end of a word is a symbol of its own, as until version 0.2.

    Raises:
      DataError: a line has no two symbols.
    """

    def __init__(self, codes: str, separator: str = "@@") -> None:
        lines = [line for line in codes.splitlines() if line.strip()]
        self.end_is_apart = False
        if lines and lines[0].startswith("#version:"):
            self.end_is_apart = lines.pop(0).split(":")[1].strip().startswith("0.1")
        merges = [tuple(line.split()[:2]) for line in lines]
        if bad := [number for number, merge in enumerate(merges, 1) if len(merge) != 2]:
            raise DataError(f"merge {bad[0]} is not of two symbols. Give a file of BPE codes.")
        self.ranks = {merge: rank for rank, merge in enumerate(dict.fromkeys(merges))}
        self.separator = separator
        self._split = functools.lru_cache(_MAX_REMEMBERED)(self._split_word)

    def split(self, text: str) -> list[str]:
        """Returns the pieces of a text's words, which are separated by spaces."""
        return [piece for word in text.split() for piece in self._split(word)]

    def join(self, pieces: Iterable[str]) -> str:
        """Returns the text of pieces."""
        return (" ".join(pieces) + " ").replace(f"{self.separator} ", "").strip()

    def _split_word(self, word: str) -> tuple[str, ...]:
        symbols = [*word[:-1], word[-1] + END_OF_WORD]
        if self.end_is_apart:
            symbols = [*word, END_OF_WORD]
        while len(symbols) > 1:
            pairs = set(itertools.pairwise(symbols))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            symbols = _merged(symbols, best)
        if symbols[-1] == END_OF_WORD:
            symbols.pop()
        symbols[-1] = symbols[-1].removesuffix(END_OF_WORD)
        return (*(one + self.separator for one in symbols[:-1]), symbols[-1])


def _merged(symbols: Sequence[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    i = 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            merged.append("".join(pair))
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


class SentencePieces:
    """Splits texts by a sentencepiece model of any kind, with its normalization.

    Args:
      model: content of the model's file.

    Raises:
      DataError: it is no such model.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.processor = sentencepiece.SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
        except RuntimeError:
            raise DataError("this is no sentencepiece model. Copy the file again.") from None

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The model's own id of each piece."""
        size = self.processor.get_piece_size()
        return {self.processor.id_to_piece(number): number for number in range(size)}

    def split(self, text: str) -> list[str]:
        """Returns the pieces of a text."""
        return list(self.processor.encode(text, out_type=str))

    def join(self, pieces: Iterable[str]) -> str:
        """Returns the text of pieces."""
        return str(self.processor.decode_pieces(list(pieces)))


class HuggingFacePieces:
    """Splits texts by a tokenizer of Hugging Face: WordPiece, byte-level BPE and others.

    Args:
      tokenizer: content of its file, `tokenizer.json`.

    Attributes:
      config: the same as an object.

    Raises:
      DataError: it is no such tokenizer, or the package tokenizers is missing.
    """

    def __init__(self, tokenizer: str) -> None:
        purpose = "this vocabulary is read by the package tokenizers"
        tokenizers = require("tokenizers", "hf", purpose, DataError)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer)
        except Exception as error:  # its errors have no class of their own
            raise DataError(f"this is no tokenizer of Hugging Face: {error}.") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # The names of special tokens in a text are text: a user's text ends no example.
        self._tokenizer.encode_special_tokens = True
        # Its scores are as that package reads them, which may differ in the last bit.
        self.config: dict[str, Any] = json.loads(self._tokenizer.to_str())

    def split(self, text: str) -> list[str]:
        """Returns the pieces of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).tokens)

    @functools.cached_property
    def word_prefix(self) -> str:
        """Text before a word that follows another one: a space if pieces keep it."""
        first, *_, last = self.split("a a") if len(self.split("a a")) > 1 else ("", "")
        return "" if first == last else " "

    def words(self, text: str) -> list[str]:
        """Returns the normalized words of a text, which are then split into pieces."""
        splitter = self._tokenizer.pre_tokenizer
        return [word for word, _ in splitter.pre_tokenize_str(self.normalize(text))]

    def normalize(self, text: str) -> str:
        """Returns the normalized text."""
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def join(self, pieces: Iterable[str]) -> str:
        """Returns the text of pieces."""
        decoder = self._tokenizer.decoder
        return " ".join(pieces) if decoder is None else str(decoder.decode(list(pieces)))


class SpaceSplitter:
    """Splits texts at spaces."""

    def split(self, text: str) -> list[str]:
        """Returns the words of a text."""
        return text.split()

    def join(self, pieces: Iterable[str]) -> str:
        """Returns words separated by spaces."""
        return " ".join(pieces)


class PieceEncoder(TextEncoder):
    """Encodes the pieces of a text by their position in a list of tokens.

    Its file, `vocab.NAME.pieces`, is JSON: {"tokens": [...], "unknown": 3, "silent": [2],
    "add_eos": true, "strip": false, "sentencepiece": model in base64}, or in place of
    the last "bpe": codes, "separator": "@@", or "tokenizer": content of a tokenizer.json.

    Args:
      tokens: the tokens by id; those of padding and of the end come first.
      unknown: id of all other pieces; None: they are left out.
      pieces: splits texts, and joins pieces to texts.
      silent: ids without a text, such as the start symbol.
      add_eos: False if texts of the data have no end symbol.
      strip: True to remove spaces around a decoded text.

    Attributes:
      sha256: that of its file; "" if it has none.

    Raises:
      DataError: there is no such id.
    """

    sha256 = ""

    def __init__(
        self,
        tokens: Sequence[str],
        unknown: int | None,
        pieces: BytePairEncoding | SentencePieces | HuggingFacePieces | SpaceSplitter,
        *,
        silent: Iterable[int] = (),
        add_eos: bool = True,
        strip: bool = False,
    ) -> None:
        self.strip = strip
        self.tokens = tuple(tokens)
        self.unknown = unknown
        self.pieces = pieces
        self.silent = frozenset(silent)
        self.add_eos = add_eos
        if unknown is not None and not NUM_RESERVED <= unknown < len(self.tokens):
            raise DataError(f"the id of unknown pieces is {unknown}, of {len(self.tokens)} tokens.")
        known = reversed(list(enumerate(self.tokens))[NUM_RESERVED:])
        self._ids = {token: number for number, token in known if number not in self.silent}

    @classmethod
    def load(cls, path: Path) -> PieceEncoder:
        """Reads a vocabulary file; DataError if it is missing or malformed."""
        kind = "vocabulary of pieces, as t2t-import writes it"
        with vocabulary_errors(path, " Import the run again.", kind):
            encoder = cls._of(read_json(path, max_bytes=MAX_VOCABULARY))
        encoder.sha256 = hashlib.sha256(read_bytes(path, max_bytes=MAX_VOCABULARY)).hexdigest()
        return encoder

    @classmethod
    def _of(cls, content: dict[str, Any]) -> PieceEncoder:
        pieces: BytePairEncoding | SentencePieces | HuggingFacePieces | SpaceSplitter = (
            SpaceSplitter()
        )
        if "sentencepiece" in content:
            pieces = SentencePieces(base64.b64decode(content["sentencepiece"], validate=True))
        elif "bpe" in content:
            pieces = BytePairEncoding(content["bpe"], content["separator"])
        elif "tokenizer" in content:
            pieces = HuggingFacePieces(content["tokenizer"])
        tokens, silent = [str(token) for token in content["tokens"]], content["silent"]
        switches = {name: bool(content[name]) for name in ("add_eos", "strip")}
        if content.get("first"):
            raise DataError("it has ids before each text, which earlier versions wrote.")
        unknown = None if content["unknown"] is None else int(content["unknown"])
        return cls(tokens, unknown, pieces, silent=silent, **switches)

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of unknown pieces."""
        return frozenset() if self.unknown is None else frozenset({self.unknown})

    def encode(self, text: str) -> list[int]:
        """Returns one id per piece; DataError if the text holds a lone surrogate."""
        try:
            pieces = self.pieces.split(text)
        except (RuntimeError, TypeError, UnicodeEncodeError):
            check_unicode(text)
            raise
        ids = (self._ids.get(piece, self.unknown) for piece in pieces)
        return [number for number in ids if number is not None]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word, as if it were a text; of one without ids the unknown one.

        Pieces that keep the space before a word have it here.
        """
        prefix = getattr(self.pieces, "word_prefix", "")
        texts = [word if i == 0 else f"{prefix}{word}" for i, word in enumerate(words)]
        given = self.encode_batch(texts)
        empty = [word for word, ids in zip(words, given, strict=True) if not ids]
        if empty and self.unknown is None:
            raise DataError(f"the vocabulary has no piece of the word {empty[0]!r}. Remove it.")
        return [ids or [int(self.unknown or 0)] for ids in given]

    def _decode(self, ids: list[int]) -> str:
        kept = (i for i in ids if i < len(self.tokens) and i not in self.silent)
        text = self.pieces.join(self.tokens[i] for i in kept)
        return text.strip() if self.strip else text


def vocabulary_file(
    subwords: tuple[Literal["sentencepiece", "bpe", "tokenizer"], bytes] | None, **content: Any
) -> bytes:
    """Returns the content of a vocabulary file.

    Args:
      subwords: kind and file of the subword model; None: texts are split at spaces.
      content: arguments of `PieceEncoder` besides `pieces`, as lists, numbers and booleans.

    Raises:
      DataError: the subword model is invalid.
    """
    if subwords is not None and subwords[0] == "sentencepiece":
        content["sentencepiece"] = base64.b64encode(subwords[1]).decode()
    elif subwords is not None:
        try:
            content |= {subwords[0]: subwords[1].decode(), "separator": "@@"}
        except UnicodeDecodeError:
            raise DataError(f"the {subwords[0]} file is not UTF-8. Copy it again.") from None
    PieceEncoder._of(content)  # raises for what cannot be read back
    return json.dumps(content, ensure_ascii=False).encode()


_MERGE = re.compile(rb"\S+ \S+( \d+)?")


def kind_of_subwords(content: bytes) -> Literal["sentencepiece", "bpe"] | None:
    """Returns the kind of a subword model by its content; None if it is none."""
    first = content[:1000].split(b"\n")[0]
    if first.startswith(b"#version:") or _MERGE.fullmatch(first.strip()):
        return "bpe"
    try:
        SentencePieces(content)
    except DataError:
        return None
    return "sentencepiece"
