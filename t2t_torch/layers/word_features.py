"""Hashed features of words for taggers: words, affixes, shapes and labels in a window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, Gazetteer, WordCharacters, WordLabel
from t2t_torch.features.feature import find_alignments
from t2t_torch.layers.tokens import ModelInputs, WordPlaces
from t2t_torch.text import ngrams
from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text.ngrams import FACTOR, MODULUS, pair_hash

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
        parts = [name for name, of in find_alignments(inputs).items() if of == text]
        self._labels = [name for name in parts if isinstance(inputs[name], WordLabel)]
        self._entries = [name for name in parts if isinstance(inputs[name], Gazetteer)]
        characters = [name for name in parts if isinstance(inputs[name], WordCharacters)][:1]
        encoder = inputs[text].encoder
        self.spelling = WordSpelling(encoder)
        unknown = torch.zeros(encoder.vocab_size, dtype=torch.bool)
        unknown[list(encoder.unknown_ids)] = True
        self.register_buffer("unknown", unknown, persistent=False)
        self.register_buffer("powers", torch.from_numpy(ngrams.powers()), persistent=False)
        self.unknown: Tensor
        self.powers: Tensor
        self._characters = characters[0] if characters and not self._starts else None
        if self._characters:
            self.characters = WordSpelling(inputs[self._characters].encoder)

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
        for name in self._labels:
            near = _window(features[name].values, mask)
            yield from ((one, every) for one in near)
            pairs = [pair_hash(a, b) for a, b in itertools.pairwise(near)]
            yield from ((one, every) for one in pairs)
            yield pair_hash(pairs[_REACH - 1], near[_REACH + 1]), every
        for name in self._entries:
            yield from ((one, one > 0) for one in features[name].values.unbind(-1))

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
