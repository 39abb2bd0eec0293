"""Near-duplicate texts: equal but for case, punctuation and blanks, or of nearly the same pairs.

The similarity of two texts is the Jaccard index of their sets of pairs of neighbouring words.
Candidates share some of their smallest hashes (bottom-k sketches; Broder 1997), and are compared
whole: a text that is found is similar, and a similar one is rarely missed.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

SIMILARITY = 0.8
"""The least Jaccard index of near-duplicates."""

_SKETCH = 8  # smallest hashes by which texts are found
_SHARED = 3  # of them, by those of which the Jaccard index is computed
_MOST_IN_BUCKET = 64  # a pair that is in more texts finds no further ones
_LEAST_PAIRS = 5  # shorter texts are compared for equality alone
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")  # ideographs and kana stand alone
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


def normalized(text: str) -> str:
    """Returns the words of a text, without case and punctuation, with one blank between them."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def spellings(labels: Iterable[str]) -> list[list[str]]:
    """Returns the groups of labels that differ only by case or blanks."""
    same: defaultdict[str, list[str]] = defaultdict(list)
    for label in labels:
        same[" ".join(label.casefold().split())].append(label)
    return [names for names in same.values() if len(names) > 1]


class NearDuplicates:
    """An index of texts that finds near-duplicates of others."""

    def __init__(self) -> None:
        self._equal: defaultdict[str, list[int]] = defaultdict(list)
        self._buckets: defaultdict[int, list[int]] = defaultdict(list)
        self._pairs: list[npt.NDArray[np.uint64]] = []

    def add(self, text: str) -> None:
        """Adds a text; its number is that of the texts added before."""
        (words, pairs), number = _read(text), len(self._pairs)
        if words:
            self._equal[words].append(number)
        self._pairs.append(pairs)
        for one in pairs[:_SKETCH].tolist() if len(pairs) >= _LEAST_PAIRS else ():
            if len(bucket := self._buckets[one]) < _MOST_IN_BUCKET:
                bucket.append(number)

    def find(self, text: str) -> set[int]:
        """Returns the numbers of the added texts of which a text is a near-duplicate."""
        words, pairs = _read(text)
        found = {*self._equal.get(words, ())}
        if len(pairs) < _LEAST_PAIRS:
            return found
        shared = Counter[int]()
        for one in pairs[:_SKETCH].tolist():
            shared.update(self._buckets.get(one, ()))
        for number, count in shared.items():
            other = self._pairs[number]
            low, high = sorted((len(pairs), len(other)))
            if count >= _SHARED and low >= SIMILARITY * high:
                both = len(np.intersect1d(pairs, other, assume_unique=True))
                if both >= SIMILARITY * (low + high - both):
                    found.add(number)
        return found


@functools.lru_cache(maxsize=1)  # of a text that is looked for, and then added
def _read(text: str) -> tuple[str, npt.NDArray[np.uint64]]:
    """Returns the normalized text, and the different hashes of its pairs of words, ascending."""
    words = normalized(text)
    each = np.fromiter(map(zlib.crc32, words.encode().split()), np.uint64)
    pairs = each[:-1] * _FACTORS[0] + each[1:] * _FACTORS[1]
    return words, np.unique((pairs ^ (pairs >> np.uint64(29))) * _FACTORS[0])
