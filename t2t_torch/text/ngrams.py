"""Hashed n-grams of the words and characters of texts, as a sparse matrix.

The n-grams are of one and two words, and of two to five characters without a space inside them
(scikit-learn's "char_wb").  `layers/ngrams.py` computes the same rows in a graph.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.text.encoder import EOS, PAD, TextEncoder

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

SPACE = 1
"""Code of what is between words; 0 is padding, codes of letters and digits are odd."""

MODULUS = 2**31 - 1  # a prime; products of two numbers below it fit in 64 bits
FACTOR = 1_103_515_245
CHARACTER_ORDERS = (2, 3, 4, 5)
LONGEST_TOKEN = 24
"""Characters of an id that are read."""

LONGEST_WORD = 32
"""Characters of a word that its hash reads."""

KINDS = 16
"""Kinds of n-grams of a text; a second text has other ones."""

WORD, WORDS = 0, 1
"""Kinds of words and of word bigrams; those of characters are their orders."""

SHARED = 2 * KINDS
"""Kind of a word that two texts share; that of a word bigram is the next."""

COMPARED = (WORD, WORDS, 3, 5)
"""Kinds whose overlap between two texts is measured."""

NUM_OVERLAPS = 3 * len(COMPARED) + 1

CHARACTER_KINDS = frozenset(n * KINDS + order for n in (0, 1) for order in CHARACTER_ORDERS)

_UNREADABLE = "\ufffd"
_PRIVATE = 0xF0000  # first of the characters that stand for single bytes
_BLOCK = 1 << 19  # ids whose n-grams are hashed at a time


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Ragged rows of numbers, or with values a sparse matrix.

    Attributes:
      columns: ids of the rows, or columns of a matrix, [total].
      offsets: row i is `columns[offsets[i]:offsets[i + 1]]`, [rows + 1].
      values: of a matrix, [total] float32.
    """

    columns: npt.NDArray[np.integer]
    offsets: Integers
    values: Floats = field(default_factory=lambda: np.zeros(0, np.float32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of_lists(cls, rows: Sequence[Sequence[int]]) -> TokenRows:
        """Packs lists of numbers."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = itertools.chain.from_iterable(rows)
        return cls(np.fromiter(flat, np.int64, int(lengths.sum())), _offsets(lengths))

    def take(self, rows: Integers) -> TokenRows:
        """Returns some rows, in their order."""
        starts, lengths = self.offsets[:-1][rows], np.diff(self.offsets)[rows]
        places = ranges(starts, lengths)
        values = self.values[places] if len(self.values) else self.values
        return TokenRows(self.columns[places], _offsets(lengths), values)


def _offsets(lengths: Integers) -> Any:
    return np.concatenate([[0], np.cumsum(lengths)])


def ranges(starts: Integers, lengths: Integers) -> Any:
    """Returns start, start + 1, ... of each range, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)


@functools.cache
def powers() -> Integers:
    """Returns the factor of each character of a word in the word's hash, [LONGEST_WORD]."""
    return np.array([pow(FACTOR, n, MODULUS) for n in range(LONGEST_WORD)])


def codes_of(text: str) -> list[int]:
    """Returns the code of each lower-case character of a text."""
    return [_code(character) for character in text.lower()]


@functools.lru_cache(1 << 16)
def _code(character: str) -> int:
    return SPACE if character.isspace() else 2 * ord(character) + 2 + is_letter(character)


def is_letter(character: str) -> bool:
    """Returns True for letters, digits, marks, and characters of single bytes."""
    is_mark = unicodedata.category(character).startswith("M")
    return character.isalnum() or is_mark or ord(character) >= _PRIVATE


def texts_of_ids(encoder: TextEncoder) -> list[str]:
    """Returns the text of each id of a vocabulary; a single byte has a private character."""
    found = [encoder.decode([i]) for i in range(encoder.vocab_size)]
    found[PAD] = found[EOS] = ""
    return [chr(_PRIVATE + i) if _UNREADABLE in text else text for i, text in enumerate(found)]


def codes_of_ids(encoder: TextEncoder) -> TokenRows:
    """Returns the codes of each id of a vocabulary, with a space where it starts or ends a word."""
    alone = texts_of_ids(encoder)
    lengths = [len(encoder.decode([i, i])) - 2 * len(text) for i, text in enumerate(alone)]
    pieces = [i for i, text in enumerate(alone) if text.isalnum() and not lengths[i]]
    words = [i for i, text in enumerate(alone) if text and lengths[i] > 0]
    starts = bool(pieces and words) and encoder.decode([pieces[-1], words[-1]]) != "".join(
        (alone[pieces[-1]], alone[words[-1]])
    )
    rows = []
    for i, text in enumerate(alone):
        spaces = [SPACE] * (i == EOS or bool(text and lengths[i] > 0))
        rows.append((spaces * starts + codes_of(text) + spaces * (not starts))[:LONGEST_TOKEN])
    return TokenRows.of_lists(rows)


def count_ngrams(texts: Sequence[TokenRows], codes: Sequence[TokenRows], buckets: int) -> TokenRows:
    """Returns the counts of the n-grams of each row, as a sparse matrix with ascending columns.

    Of two texts, the words and word bigrams of the first that are in the second count again.

    Args:
      texts: ids of the rows, for each of one or two texts.
      codes: `codes_of_ids` of each text.
      buckets: columns, shared by hashing.
    """
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float32))]
    for size, words in _blocks(texts, codes):
        keys = [
            row * buckets + bucket(hashes, kind + KINDS * number, buckets)
            for number, text in enumerate(words)
            for kind, hashes, row in text.ngrams()
        ]
        if len(words) > 1:
            for kind, hashes, row, other in _matched(words):
                if kind in (WORD, WORDS):
                    there = np.isin(row * MODULUS + hashes, other)
                    found = bucket(hashes[there], SHARED + kind, buckets)
                    keys.append(row[there] * buckets + found)
        ranked = np.sort(np.concatenate(keys))
        first = np.flatnonzero(np.diff(ranked, prepend=-1))
        counts = np.diff(first, append=len(ranked)).astype(np.float32)
        distinct = ranked[first]
        lengths = np.bincount(distinct // buckets, minlength=size)
        parts.append(((distinct % buckets).astype(np.int32), lengths, counts))
    columns, lengths, values = (np.concatenate(one) for one in zip(*parts, strict=True))
    return TokenRows(columns, _offsets(lengths), values)


def overlaps(texts: Sequence[TokenRows], codes: Sequence[TokenRows]) -> Floats:
    """Returns how much the n-grams of two texts agree, [rows, NUM_OVERLAPS]; see `count_ngrams`.

    For each of `COMPARED` the share of the first text's that are in the second, that of the
    second's in the first, and the root of their product; last the difference of the lengths.
    """
    parts = [np.zeros((0, NUM_OVERLAPS), np.float32)]
    for size, words in _blocks(texts, codes):
        found = []
        pairs = zip(_matched(words), _matched(words[::-1]), strict=True)
        for (_, *first), (_, *second) in pairs:
            shares = []
            for hashes, row, other in (first, second):
                there = np.isin(row * MODULUS + hashes, other)
                count = np.bincount(row, minlength=size)
                shares.append(np.bincount(row[there], minlength=size) / np.maximum(count, 1))
            found += [*shares, np.sqrt(shares[0] * shares[1])]
        lengths = [np.log(np.bincount(one.of, minlength=size) + 1.0) for one in words]
        parts.append(np.stack([*found, np.abs(lengths[0] - lengths[1])], 1).astype(np.float32))
    return np.concatenate(parts)


def _blocks(
    texts: Sequence[TokenRows], codes: Sequence[TokenRows]
) -> Iterator[tuple[int, list[_Words]]]:
    """Yields the number of consecutive rows and the words of each text."""
    total, start = len(texts[0]), 0
    before = np.sum([text.offsets for text in texts], 0)
    while start < total:
        stop = int(np.searchsorted(before, before[start] + _BLOCK, side="right")) - 1
        stop = min(max(stop, start + 1), total)
        own = np.arange(start, stop)
        pairs = zip(texts, codes, strict=True)
        yield stop - start, [_Words(text.take(own), table) for text, table in pairs]
        start = stop


def _matched(words: Sequence[_Words]) -> Iterator[tuple[int, Integers, Integers, Integers]]:
    """Yields kind, hashes and rows of the first text's n-grams, and the keys of the second's."""
    for (kind, hashes, row), (_, others, at) in zip(*(w.ngrams() for w in words), strict=True):
        if kind in COMPARED:
            yield kind, hashes, row, at * MODULUS + others


def bucket(hashes: Any, kind: int, buckets: int) -> Any:
    """Returns the column of each n-gram of a kind: the first quarter are of words.

    Of an array or a tensor.
    """
    mixed, words = (hashes + kind) % MODULUS * FACTOR % MODULUS, buckets // 4
    return words + mixed % (buckets - words) if kind in CHARACTER_KINDS else mixed % words


class _Words:
    """Characters and words of rows.

    Args:
      rows: ids.
      codes: codes of each id.

    Attributes:
      hashes: of each word, [words].
      of: row of each word, [words].
    """

    def __init__(self, rows: TokenRows, codes: TokenRows) -> None:
        lengths = np.diff(codes.offsets)[rows.columns]
        found = codes.columns[ranges(codes.offsets[:-1][rows.columns], lengths)]
        ends = _offsets(lengths)[rows.offsets]
        # A space before and behind each row; of several spaces the first is kept.
        found = np.insert(found, np.sort(np.concatenate([ends[:-1], ends[1:]])), SPACE)
        sizes = np.diff(ends) + 2
        row = np.repeat(np.arange(len(rows)), sizes)
        space = found == SPACE
        kept = ~(space[1:] & space[:-1] & (row[1:] == row[:-1]))
        kept = np.insert(kept, 0, True)
        self._codes, self._rows, self._space = found[kept], row[kept], space[kept]
        letter = (self._codes & 1).astype(bool) & ~self._space
        inside = letter & np.insert(letter[:-1], 0, False)
        start = ~self._space & ~inside
        places = np.flatnonzero(start)
        if not len(places):  # no text has a word
            self.of = self.hashes = places
            return
        within = np.arange(len(start)) - places[np.maximum(np.cumsum(start) - 1, 0)]
        read = ~self._space & (within < LONGEST_WORD)
        factors = powers()[np.clip(within, 0, LONGEST_WORD - 1)]
        terms = np.where(read, self._codes * factors % MODULUS, 0)
        self.of = self._rows[places]
        self.hashes = np.add.reduceat(terms, places) % MODULUS

    def ngrams(self) -> Iterator[tuple[int, Integers, Integers]]:
        """Yields the kind, and hash and row of each n-gram."""
        yield WORD, self.hashes, self.of
        there = self.of[1:] == self.of[:-1]
        yield WORDS, pair_hash(self.hashes[:-1], self.hashes[1:])[there], self.of[1:][there]
        for order, hashes, there in character_ngrams(self._codes, self._space):
            yield order, hashes[there], self._rows[: len(hashes)][there]


def character_ngrams(codes: Any, space: Any) -> Iterator[tuple[int, Any, Any]]:
    """Yields orders of n-grams of characters, the hash of each, and where one has no space inside.

    Args:
      codes: arrays or tensors with a place for each character, [..., L].
      space: where a code is a space, [..., L].
    """
    hashes, there = codes, ~(space[..., :-1] & space[..., 1:])
    for order in CHARACTER_ORDERS:
        last = codes[..., order - 1 :]
        size = last.shape[-1]
        hashes, there = pair_hash(hashes[..., :size], last), there[..., :size]
        if order > 2:
            there = there & ~space[..., order - 2 : order - 2 + size]
        yield order, hashes, there


def pair_hash(first: Any, second: Any) -> Any:
    """Returns the hash of two hashes, or of a hash and a code; of arrays or tensors."""
    return (first * FACTOR + second) % MODULUS
