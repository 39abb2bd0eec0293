"""fastText's models of word vectors, its `.bin` files.

Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information", arXiv:1607.04606: the
vector of a word is the mean of its own and of those of the pieces of it that are `minn` to `maxn`
characters long, which have their vectors by hash.  The format is that of fastText 0.9.2,
https://github.com/facebookresearch/fastText.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError

MAGIC = (793712314).to_bytes(4, "little")
"""What a model's file begins with."""

_VERSIONS = (11, 12)
_WITHOUT_PIECES = 11  # supervised models of this version have vectors of pieces, and read none
_SUPERVISED = 3
_LABEL = 1
_END = b"</s>"  # of a line: a word without pieces
_CHUNK = 1 << 20
_LONGEST_WORD = 1 << 20  # bytes; a word without an end is none


class Made(NamedTuple):
    """The vectors of some words.

    Attributes:
      rows: for each word that has a vector, its row in
      values: [found, width] float32.
      composed: of them those that the model has not seen, whose vectors are of their pieces alone.
    """

    rows: dict[str, int]
    values: npt.NDArray[np.float32]
    composed: int


class FasttextModel:
    """A model's file, read from its beginning.

    Args:
      file: of bytes, unpacked, at its beginning.
      path: of the file, for messages.

    Attributes:
      width: numbers of a vector.
      words: that the model has seen, once `vectors` was called.

    Raises:
      DataError: the file is none of a version that is read.
    """

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self._file, self._path = file, path
        self._held, self._at = b"", 0
        magic = self._take(len(MAGIC))
        (version,) = self._numbers("<i")
        if magic != MAGIC or version not in _VERSIONS:
            raise DataError(
                f"{path} is a fastText model of format {version}, where 11 or 12, those of "
                "fastText 0.1 to 0.9, was expected. Give its .vec file."
            )
        # dim ws epoch minCount neg wordNgrams loss model bucket minn maxn lrUpdateRate t
        settings = self._numbers("<12id")
        self.width, self._buckets = int(settings[0]), int(settings[8])
        self._shortest, self._longest = int(settings[9]), int(settings[10])
        if version == _WITHOUT_PIECES and settings[7] == _SUPERVISED:
            self._longest = 0
        if self.width < 1:
            self._refuse(f"its vectors would have {self.width} numbers")
        self.words = 0

    def vectors(self, wanted: Collection[str]) -> Made:
        """Returns the vectors of words, as fastText's `get_word_vector` does.

        A word that the model has not seen has a vector if it has pieces; none if it is wanted in
        small letters, too, and was seen so.

        Raises:
          DataError: the model is quantized, pruned or damaged.
        """
        names = {word.encode(errors="surrogatepass"): word for word in wanted}
        places = self._dictionary(names.keys())
        parts: dict[str, list[int]] = {}
        for name, word in names.items():
            own = [places[name]] if name in places else []
            if not own and word.lower().encode(errors="surrogatepass") in places:
                continue
            pieces = [self.words + piece for piece in self._pieces(name)]
            if own or pieces:
                parts[word] = own + pieces
        rows = self._matrix({row for own in parts.values() for row in own})
        values = np.zeros((len(parts), self.width), np.float32)
        for place, own in enumerate(parts.values()):
            values[place] = np.mean([rows[row] for row in own], 0, dtype=np.float64)
        composed = sum(own[0] >= self.words for own in parts.values())
        return Made({word: place for place, word in enumerate(parts)}, values, composed)

    def _pieces(self, word: bytes) -> Iterator[int]:
        """Yields the buckets of the pieces of a word."""
        if not self._longest or not self._buckets or word == _END:
            return
        word = b"<" + word + b">"
        starts = [i for i, byte in enumerate(word) if byte & 0xC0 != 0x80]  # of UTF-8's characters
        ends = [*starts[1:], len(word)]
        for first, start in enumerate(starts):
            for last in range(first, min(first + self._longest, len(starts))):
                length, end = last - first + 1, ends[last]
                if length == 1 and (first == 0 or end == len(word)):
                    continue  # the marks of beginning and end alone
                if length >= self._shortest:
                    yield _hash(word[start:end]) % self._buckets

    def _dictionary(self, wanted: Collection[bytes]) -> dict[bytes, int]:
        """Reads the words; returns the places of those that are wanted."""
        size, self.words, _, _, pruned = self._numbers("<iiiqq")
        found = {}
        for place in range(size):
            word = self._word()
            (kind,) = self._take(9)[8:]  # after the 8 bytes of its count
            if kind != _LABEL and word in wanted:
                found[word] = place
        if not self.words or self.words > size:
            self._refuse(f"it would have {self.words:,} words")
        (quantized,) = self._take(1)
        if quantized:
            raise DataError(
                f"{self._path} is a quantized fastText model (.ftz), which has no vectors but "
                "codes of them. Give the .bin or .vec file that it was made of."
            )
        if pruned >= 0:
            self._refuse("some of its vectors were left out, as only a quantized model's are")
        return found

    def _matrix(self, wanted: set[int]) -> dict[int, npt.NDArray[np.float32]]:
        """Reads some rows of the vectors."""
        count, width = self._numbers("<qq")
        if width != self.width or count < self.words + (self._buckets if self._longest else 0):
            self._refuse(f"it has {count:,} vectors of {width:,} numbers")
        found, at, size = {}, 0, 4 * self.width
        for row in sorted(wanted):
            self._skip((row - at) * size)
            found[row] = np.frombuffer(self._take(size), "<f4").astype(np.float32)
            at = row + 1
            if not np.isfinite(found[row]).all():
                self._refuse(f"a number of vector {row:,} is not finite")
        return found

    def _word(self) -> bytes:
        end = self._held.find(b"\0", self._at)
        while end < 0:
            self._held, self._at = self._held[self._at :] + self._file.read(_CHUNK), 0
            end = self._held.find(b"\0")
            if end < 0 and (len(self._held) < _CHUNK or len(self._held) > _LONGEST_WORD):
                self._refuse("it ends too early")
        word = self._held[self._at : end]
        self._at = end + 1
        return word

    def _numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, size: int) -> bytes:
        if len(self._held) - self._at < size:
            self._held, self._at = self._held[self._at :] + self._file.read(_CHUNK + size), 0
            if len(self._held) < size:
                self._refuse("it ends too early")
        self._at += size
        return self._held[self._at - size : self._at]

    def _skip(self, size: int) -> None:
        ahead = len(self._held) - self._at
        if size > ahead:
            self._file.seek(size - ahead, io.SEEK_CUR)
            self._held, self._at = b"", 0
        else:
            self._at += size

    def _refuse(self, fault: str) -> NoReturn:
        raise DataError(f"{self._path} is a damaged fastText model: {fault}. Fetch it again.")


def _hash(piece: bytes) -> int:
    """FNV-1a of 32 bits over signed bytes: fastText's src/dictionary.cc, `hash`."""
    value = 2166136261
    for byte in piece:
        value ^= byte | 0xFFFFFF00 if byte >= 0x80 else byte
        value = value * 16777619 & 0xFFFFFFFF
    return value
