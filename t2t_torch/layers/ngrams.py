"""The n-grams of `text/ngrams.py`, computed from ids by operations of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.text import ngrams
from t2t_torch.text.ngrams import CHARACTER_ORDERS, LONGEST_WORD, MODULUS, SPACE


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
        space = codes == SPACE
        hashes, there = codes, ~(space[:, :-1] & space[:, 1:])
        for order in CHARACTER_ORDERS:
            last = codes[:, order - 1 :]
            size = last.size(1)
            hashes = ngrams.pair_hash(hashes[:, :size], last)
            there = there[:, :size]
            if order > 2:
                there = there & ~space[:, order - 2 : order - 2 + size]
            kinds[order] = HashedNGrams(hashes, there & (last > 0))
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
    """Cuts off the columns at the right without any; a graph cannot, and keeps them."""
    if torch.compiler.is_exporting():
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
