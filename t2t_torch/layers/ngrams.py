"""Hashed features from ids, in a graph: n-grams of `text/ngrams.py`, and features of words."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Feature, Features, Gazetteer, WordCharacters, WordLabel
from t2t_torch.features.feature import find_alignments
from t2t_torch.layers.tokens import ModelInputs, WordPlaces
from t2t_torch.text import ngrams
from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text.ngrams import CHARACTER_ORDERS, FACTOR, LONGEST_WORD, MODULUS, SPACE, pair_hash


class HashedNGrams(NamedTuple):
    """N-grams of one kind.

    Attributes:
      hashes: [B, N] int64.
      there: True where there is one, [B, N] bool.
    """

    hashes: Tensor
    there: Tensor


class TextNGrams(nn.Module):
    """Hashes of the n-grams of a text.  [B, S] ids -> `HashedNGrams` by kind.

    Args:
      codes: codes of each id, from `codes_of_ids`.
    """

    def __init__(self, codes: ngrams.TokenRows) -> None:
        super().__init__()
        lengths = np.diff(codes.offsets)
        table = np.zeros((len(codes), max(1, int(lengths.max(initial=1)))), np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = codes.columns
        self.register_buffer("codes", torch.from_numpy(table), persistent=False)
        self.register_buffer("powers", torch.from_numpy(ngrams.powers()), persistent=False)
        self.codes: Tensor
        self.powers: Tensor

    def forward(self, ids: Tensor, mask: Tensor) -> dict[int, HashedNGrams]:
        """Returns the n-grams of texts.

        Args:
          ids: [B, S].
          mask: True where there are ids, [B, S] bool; padding is on the right.
        """
        found = (self.codes[ids] * mask[..., None]).flatten(1)
        found = _compact(F.pad(found, (1, 1), value=SPACE), found.new_ones([]).bool())
        again = (found == SPACE) & F.pad(found[:, :-1] == SPACE, (1, 0))
        codes = F.pad(_compact(found, ~again), (0, max(CHARACTER_ORDERS)))
        words = self._words(codes)
        after = HashedNGrams(words.hashes[:, 1:], words.there[:, 1:])
        pairs = ngrams.pair_hash(words.hashes[:, :-1], after.hashes)
        kinds = {ngrams.WORD: words, ngrams.WORDS: HashedNGrams(pairs, after.there)}
        for order, hashes, there in ngrams.character_ngrams(codes, codes == SPACE):
            kinds[order] = HashedNGrams(hashes, there & (codes[:, order - 1 :] > 0))
        return kinds

    def _words(self, codes: Tensor) -> HashedNGrams:
        """Returns the words, at the left."""
        space = codes <= SPACE
        letter = (codes % 2 == 1) & ~space
        start = ~space & ~(letter & F.pad(letter[:, :-1], (1, 0)))
        number = (start.long().cumsum(1) - 1).clamp(min=0)  # of each character's word
        positions = torch.arange(codes.size(1), device=codes.device).expand_as(codes)
        first = torch.zeros_like(codes).scatter_add(1, number, positions * start)
        within = positions - first.gather(1, number)
        read = ~space & (within < LONGEST_WORD)
        factors = self.powers[within.clamp(0, LONGEST_WORD - 1)]
        terms = codes * factors % MODULUS * read
        hashes = torch.zeros_like(codes).scatter_add(1, number, terms) % MODULUS
        return _trimmed(HashedNGrams(hashes, positions < start.sum(1, keepdim=True)))


def _compact(codes: Tensor, kept: Tensor) -> Tensor:
    """Moves the codes that are kept and not 0 to the left, zeros to the right.  [B, L]."""
    kept = kept & (codes > 0)
    places = (kept.long().cumsum(1) - 1).clamp(min=0)
    found = torch.zeros_like(codes).scatter_add(1, places, codes * kept)
    return _trimmed(HashedNGrams(found, found > 0)).hashes


def _trimmed(found: HashedNGrams) -> HashedNGrams:
    """Cuts off the columns at the right without any; not in a graph, nor where a GPU would wait."""
    if torch.compiler.is_exporting() or found.there.device.type != "cpu":
        return found
    size = max(1, int(found.there.sum(1).max()))
    return HashedNGrams(found.hashes[:, :size], found.there[:, :size])


def columns_of(texts: Sequence[dict[int, HashedNGrams]], buckets: int) -> Tensor:
    """Returns the column of each n-gram of one or two texts, `buckets` where there is none.

    [B, N]; see `text.ngrams.count_ngrams`.
    """
    found = [
        torch.where(one.there, ngrams.bucket(one.hashes, kind + ngrams.KINDS * i, buckets), buckets)
        for i, text in enumerate(texts)
        for kind, one in text.items()
    ]
    if len(texts) > 1:
        for kind in (ngrams.WORD, ngrams.WORDS):
            own = texts[0][kind]
            column = ngrams.bucket(own.hashes, ngrams.SHARED + kind, buckets)
            found.append(torch.where(_shared(own, texts[1][kind]), column, buckets))
    return torch.cat(found, 1)


def _shared(own: HashedNGrams, other: HashedNGrams) -> Tensor:
    """Returns where an n-gram of the first text is in the second.  [B, N] bool."""
    equal = own.hashes[:, :, None] == other.hashes[:, None]
    return (equal & other.there[:, None]).any(2) & own.there


def overlaps(texts: Sequence[dict[int, HashedNGrams]]) -> Tensor:
    """Returns `text.ngrams.overlaps` of two texts, [B, NUM_OVERLAPS]."""
    found = []
    for kind in ngrams.COMPARED:
        pair = [text[kind] for text in texts]
        shares = [
            _shared(own, other).sum(1) / own.there.sum(1).clamp(min=1)
            for own, other in (pair, pair[::-1])
        ]
        found += [*shares, (shares[0] * shares[1]).sqrt()]
    lengths = [(text[ngrams.WORD].there.sum(1) + 1.0).log() for text in texts]
    return torch.stack([*found, (lengths[0] - lengths[1]).abs()], 1)


def weigh(columns: Tensor, idf: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the distinct columns of each row and `text.linear.weigh` of them.

    Args:
      columns: [B, N], `len(idf)` where there is none.
      idf: [buckets].

    Returns:
      [B, N], ascending, each column once beside others with value 0; the values, [B, N].
    """
    buckets = len(idf)
    ranked, _ = columns.sort(1)
    first = F.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
    run = first.long().cumsum(1) - 1
    ones = torch.ones_like(ranked, dtype=idf.dtype)
    counts = torch.zeros_like(ones).scatter_add(1, run, ones).gather(1, run)
    there = first & (ranked < buckets)
    ranked = ranked.clamp(max=buckets - 1)
    values = (1.0 + counts.log()) * idf[ranked] * there
    words = ranked < buckets // 4
    squares = values**2
    own, others = ((squares * one).sum(1, keepdim=True) for one in (words, ~words))
    norms = torch.where(words, own, others).clamp(min=1e-24).sqrt()
    return ranked, values / norms


_PIECES = 6  # of a word, that are read
_AFFIXES = (1, 2, 3, 4)
_REACH = 2  # words to each side
_OUTSIDE = 1  # hash beside a sentence
_LOWER, _UPPER, _DIGIT, _OTHERS = 1, 2, 3, 4


class WordSpelling(nn.Module):
    """Characters of ids.  [..., N] -> [3, ..., L]: lower-case and as written, and their kinds.

    Args:
      encoder: vocabulary of the ids.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        texts = [text.strip()[: ngrams.LONGEST_TOKEN] for text in ngrams.texts_of_ids(encoder)]
        table = torch.zeros(3, len(texts), max(1, *map(len, texts)), dtype=torch.int64)
        for i, text in enumerate(texts):
            if text:
                table[:, i, : len(text)] = torch.tensor([_described(one) for one in text]).T
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the characters, 0 where there is none."""
        return self.table[:, ids].flatten(-2)


def _described(character: str) -> tuple[int, int, int]:
    """Returns the lower-case character, the character and its kind."""
    lower = ord(character.lower()[0])
    kind = _OTHERS + lower
    if character.isdigit():
        kind = _DIGIT
    elif ngrams.is_letter(character):
        kind = _UPPER if lower != ord(character) else _LOWER
    return lower, ord(character), kind


class WordFeatures(nn.Module):
    """Columns of the features of each word in a table that they share by hashing.

    Args:
      features: the problem's.
      text: name of the input with the words.
      buckets: columns, from 1; 0 stands for no feature.
    """

    def __init__(self, features: Features, text: str, buckets: int) -> None:
        super().__init__()
        inputs: Any = features.inputs
        self._text, self._buckets = text, buckets
        self._places, self._starts = WordPlaces(features), features.word_starts.get(text)
        self._features = features.inputs
        self._parts = [name for name, of in find_alignments(inputs).items() if of == text]
        spellings = {n: own for n in self._parts if (own := _spelling_of(inputs[n])) is not None}
        encoder = inputs[text].encoder
        self.spelling = WordSpelling(encoder)
        unknown = torch.zeros(encoder.vocab_size, dtype=torch.bool)
        unknown[list(encoder.unknown_ids)] = True
        self.register_buffer("unknown", unknown, persistent=False)
        self.register_buffer("powers", torch.from_numpy(ngrams.powers()), persistent=False)
        self.unknown: Tensor
        self.powers: Tensor
        self._characters = None if self._starts else next(iter(spellings), None)
        if self._characters:
            self.characters = spellings[self._characters]

    def forward(self, features: ModelInputs) -> Tensor:
        """Returns the columns, [B, W, features]."""
        mask = self._places.mask(self._text, features)
        lower, written, kinds = self._spelled(features, mask)
        columns = []
        for number, (hashes, there) in enumerate(self._all(features, lower, written, kinds, mask)):
            mixed = (hashes + number * FACTOR) % MODULUS * FACTOR % MODULUS
            column = mixed % (self._buckets - 1) + 1
            columns.append(torch.where(there & mask, column, 0))
        return torch.stack(columns, -1)

    def _spelled(self, features: ModelInputs, mask: Tensor) -> Tensor:
        """Returns the characters of each word at the left, [3, B, W, L]."""
        ids = features[self._text].values * features[self._text].mask
        if self._starts:
            starts = features[self._starts].values
            after = F.pad(starts[:, 1:], (0, 1))
            ends = torch.where(after > starts, after, (ids > 0).sum(1, keepdim=True))
            places = starts[..., None] + torch.arange(_PIECES, device=ids.device)
            inside = (places < ends[..., None]) & mask[..., None]
            found = ids.gather(1, (places * inside).flatten(1)).view(places.shape) * inside
            return _left(self.spelling(found))
        own: Tensor = self.spelling(ids[..., None])
        if not self._characters:
            return own
        other: Tensor = self.characters(features[self._characters].values)
        size = max(own.size(-1), other.size(-1))
        own, other = (F.pad(one, (0, size - one.size(-1))) for one in (own, other))
        return torch.where(self.unknown[ids][..., None], other, own)

    def _all(
        self, features: ModelInputs, lower: Tensor, written: Tensor, kinds: Tensor, mask: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the hash of each feature, [B, W], and where it exists."""
        every = torch.ones_like(mask)
        yield torch.zeros_like(lower[..., 0]), every
        yield self._hash(written), every
        words, shapes = self._hash(lower), self._shape(kinds)
        for hashes, reach in ((words, _REACH), (shapes, 1)):
            near = _window(hashes, mask)
            for place in range(_REACH - reach, _REACH + reach + 1):
                yield near[place], every
            yield pair_hash(near[_REACH - 1], near[_REACH]), every
            yield pair_hash(near[_REACH], near[_REACH + 1]), every
        length = (lower > 0).sum(-1)
        for size in _AFFIXES:
            yield self._hash(lower[..., :size]), length >= size
            first = (length - size).clamp(min=0)[..., None]
            places = first + torch.arange(size, device=lower.device)
            last = lower.gather(-1, places.clamp(max=lower.size(-1) - 1))
            yield self._hash(last), length >= size
        for name in self._parts:
            yield from _hashes_of(self._features[name], features[name].values, mask)

    def _hash(self, characters: Tensor) -> Tensor:
        """Returns the hash of words.  [B, W, L] -> [B, W]."""
        size = min(characters.size(-1), ngrams.LONGEST_WORD)
        terms = characters[..., :size] * self.powers[:size] % MODULUS
        return terms.sum(-1) % MODULUS

    def _shape(self, kinds: Tensor) -> Tensor:
        """Returns the hash of the kinds of characters, of a run of equal ones only the first."""
        new = (kinds != F.pad(kinds[..., :-1], (1, 0))) & (kinds > 0)
        place = (new.long().cumsum(-1) - 1).clamp(0, ngrams.LONGEST_WORD - 1)
        return (kinds * new * self.powers[place] % MODULUS).sum(-1) % MODULUS


@functools.singledispatch
def _spelling_of(feature: Feature) -> WordSpelling | None:
    """Returns the characters of a feature of words, if it has those of unknown words."""
    return None


_spelling_of.register(WordCharacters, lambda feature: WordSpelling(feature.encoder))


@functools.singledispatch
def _hashes_of(feature: Feature, values: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields hashes of a feature of words, [B, W], and where they exist; of most kinds none.

    Args:
      feature: the feature.
      values: from the batch.
      mask: True where there is a word, [B, W].
    """
    return iter(())


@_hashes_of.register
def _(feature: WordLabel, values: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    near = _window(values, mask)
    pairs = [pair_hash(a, b) for a, b in itertools.pairwise(near)]
    for one in (*near, *pairs, pair_hash(pairs[_REACH - 1], near[_REACH + 1])):
        yield one, torch.ones_like(mask)


@_hashes_of.register
def _(feature: Gazetteer, values: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    yield from ((one, one > 0) for one in values.unbind(-1))


def _left(characters: Tensor) -> Tensor:
    """Moves characters to the left.  [3, B, W, L]."""
    there = characters[:1] > 0
    places = (there.long().cumsum(-1) - 1).clamp(min=0).expand_as(characters)
    return torch.zeros_like(characters).scatter_add(-1, places, characters * there)


def _window(hashes: Tensor, mask: Tensor) -> list[Tensor]:
    """Returns the hashes of the words from `_REACH` before to `_REACH` after each, [B, W] each."""
    around = F.pad(torch.where(mask, hashes, _OUTSIDE), (_REACH, _REACH), value=_OUTSIDE)
    size = hashes.size(1)
    return [around[:, place : place + size] for place in range(2 * _REACH + 1)]
