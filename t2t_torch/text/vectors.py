"""Readers of word vector files: GloVe, word2vec, fastText."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.files import open_bytes

MAGIC = (793712314).to_bytes(4, "little")
"""Magic number at the start of a model file."""

_VERSIONS = (11, 12)
_WITHOUT_PIECES = 11  # supervised models of this version store n-gram vectors but do not use them
_SUPERVISED = 3
_LABEL = 1
_END = b"</s>"  # end of line: a word without n-grams
_MODEL_CHUNK = 1 << 20
_LONGEST_MODEL_WORD = 1 << 20  # bytes; limit for a word without a terminator


class FasttextModel:
    """A fastText model file, read sequentially.

    Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information", arXiv:1607.04606: the
    vector of a word is the mean of its own vector and those of its character n-grams of length
    `minn` to `maxn`, which are indexed by hash.  The format is that of fastText 0.9.2,
    https://github.com/facebookresearch/fastText.

    Args:
      file: uncompressed binary file, at its beginning.
      path: the file's path, for messages.

    Attributes:
      width: dimension of the vectors.
      words: number of words in the model, set by `vectors`.

    Raises:
      DataError: the file is not a supported fastText model.
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

    def vectors(self, wanted: Collection[str]) -> WordVectors:
        """Returns the vectors of words, as fastText's `get_word_vector` does.

        A word unseen in training has a vector if it has n-grams, unless its lower-case form is also
        requested and was seen.

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
        found = {word: place for place, word in enumerate(parts)}
        return WordVectors(found, values, self.words, 0, composed)

    def _pieces(self, word: bytes) -> Iterator[int]:
        """Yields the hash buckets of the n-grams of a word."""
        if not self._longest or not self._buckets or word == _END:
            return
        word = b"<" + word + b">"
        starts = [i for i, byte in enumerate(word) if byte & 0xC0 != 0x80]  # of UTF-8 characters
        ends = [*starts[1:], len(word)]
        for first, start in enumerate(starts):
            for last in range(first, min(first + self._longest, len(starts))):
                length, end = last - first + 1, ends[last]
                if length == 1 and (first == 0 or end == len(word)):
                    continue  # skips the boundary markers alone
                if length >= self._shortest:
                    yield _hash(word[start:end]) % self._buckets

    def _dictionary(self, wanted: Collection[bytes]) -> dict[bytes, int]:
        """Reads the dictionary; returns the indices of the requested words."""
        size, self.words, _, _, pruned = self._numbers("<iiiqq")
        words = {}
        for place in range(size):
            word = self._word()
            (kind,) = self._take(9)[8:]  # skips the 8-byte count
            if kind != _LABEL and word in wanted:
                words[word] = place
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
        return words

    def _matrix(self, wanted: set[int]) -> dict[int, npt.NDArray[np.float32]]:
        """Reads the requested rows of the vector matrix."""
        count, width = self._numbers("<qq")
        if width != self.width or count < self.words + (self._buckets if self._longest else 0):
            self._refuse(f"it has {count:,} vectors of {width:,} numbers")
        rows, at, size = {}, 0, 4 * self.width
        for row in sorted(wanted):
            self._skip((row - at) * size)
            rows[row] = np.frombuffer(self._take(size), "<f4").astype(np.float32)
            at = row + 1
            if not np.isfinite(rows[row]).all():
                self._refuse(f"a number of vector {row:,} is not finite")
        return rows

    def _word(self) -> bytes:
        end = self._held.find(b"\0", self._at)
        while end < 0:
            self._held, self._at = self._held[self._at :] + self._file.read(_MODEL_CHUNK), 0
            end = self._held.find(b"\0")
            if end < 0 and (
                len(self._held) < _MODEL_CHUNK or len(self._held) > _LONGEST_MODEL_WORD
            ):
                self._refuse("it ends too early")
        word = self._held[self._at : end]
        self._at = end + 1
        return word

    def _numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, size: int) -> bytes:
        if len(self._held) - self._at < size:
            self._held, self._at = self._held[self._at :] + self._file.read(_MODEL_CHUNK + size), 0
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
    """32-bit FNV-1a over signed bytes: fastText's src/dictionary.cc, `hash`."""
    value = 2166136261
    for byte in piece:
        value ^= byte | 0xFFFFFF00 if byte >= 0x80 else byte
        value = value * 16777619 & 0xFFFFFFFF
    return value


_ZIP = b"PK\x03\x04"
_CHUNK = 1 << 20  # bytes read at a time from a binary file
_LINES = 100  # lines used to infer the width of a file without a header
_LONGEST_WORD = 10_000  # bytes; limit for a binary word without a terminator


@dataclass(frozen=True)
class WordVectors:
    """Vectors of the requested words of a file.

    Attributes:
      rows: the row in `values` of each word in the file.
      values: [found, width] float32.
      in_file: number of vectors in the file.
      duplicates: number of lines skipped because their word occurred before.
      composed: number of words with n-gram vectors only; fastText models.
    """

    rows: dict[str, int]
    values: npt.NDArray[np.float32]
    in_file: int
    duplicates: int
    composed: int = 0

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return int(self.values.shape[1])


def read_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    r"""Reads the vectors of the requested words; only these are kept in memory.

    The format is detected from the start of the file, gzip-compressed or not:

    - GloVe text: "word 0.1 -0.2 ..." on every line.  A word may contain spaces.
    - word2vec text, including fastText's .vec: the same after a line "count width".
    - word2vec binary: the same header line, then each word, a space, and float32 numbers.
    - fastText models, .bin: `text/vectors.py`.

    The first vector of a duplicate word counts.  Words are compared as UTF-8 bytes; words that are
    not valid UTF-8 are skipped.

    Args:
      path: the file.
      wanted: the requested words.

    Raises:
      DataError: the file cannot be read, has an unknown format, is damaged, or has a malformed
        line, which the message names.
    """
    result = _WantedVectors(path, wanted)
    with _opened(path) as file:
        if _is_model(file):
            return FasttextModel(file, path).vectors(wanted)
        first = _first_line(file, path)
        header = _header(first)
        if header is None:
            start = _first_lines(first, file)
            result.read_text(itertools.chain(start, file), 1, width=_width(start))
        elif _is_text(file.peek(_LONGEST_WORD), header[1]):
            result.read_text(file, 2, width=header[1], count=header[0])
        else:
            result.read_binary(file, width=header[1], count=header[0])
    return result.vectors()


def width_of_vectors(path: Path) -> int:
    """Returns the dimension of the vectors in a file, from its first lines.

    Raises:
      DataError: as in `read_vectors`, for the lines read.
    """
    with _opened(path) as file:
        if _is_model(file):
            return FasttextModel(file, path).width
        first = _first_line(file, path)
        if (header := _header(first)) is not None:
            return header[1]
        lines = _first_lines(first, file)
    _check_numbers(path, lines)
    return _width(lines)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a vector file; reports errors while reading it as DataError."""
    try:
        with open_bytes(path) as raw, io.BufferedReader(cast("Any", raw), _CHUNK) as file:
            if file.peek(len(_ZIP)).startswith(_ZIP):
                raise DataError(f"{path} is a zip archive. Unpack it first:  unzip {path}")
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}. Remove it and fetch it again.") from None
    except OSError as error:
        raise DataError(
            f"Cannot read the word vectors {path}: {error.strerror or error}. Give the path of a "
            "file of GloVe, word2vec or fastText."
        ) from None


class _WantedVectors:
    """Collects the requested vectors while a file is read.

    Args:
      path: the file's path, for messages.
      wanted: the requested words.
    """

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        self._path = path
        self._wanted = {word.encode(errors="surrogatepass"): word for word in wanted}
        self._rows: dict[str, int] = {}
        self._values: list[npt.NDArray[np.float32]] = []
        self._width = 0
        self._count = 0
        self._duplicates = 0

    def vectors(self) -> WordVectors:
        """Returns the collected vectors."""
        values = np.stack(self._values) if self._values else np.zeros((0, self._width), np.float32)
        return WordVectors(self._rows, values, self._count, self._duplicates)

    def read_text(self, lines: Iterable[bytes], first: int, width: int = 0, count: int = 0) -> None:
        """Reads lines numbered from `first`; width and count are 0 if unknown."""
        number, blank, separator = first, 0, b""
        for number, raw in enumerate(lines, first):
            line = raw.rstrip(b" \r\n\t")
            if not line:
                blank = blank or number
                continue
            if blank:
                self._refuse_line(blank, "it is empty")
            separator = separator or _separator(line)
            # Every line is counted, but numbers are parsed only for requested words.
            columns = line.count(separator)
            self._width = width = width or columns
            if not columns or columns < width:
                numbers_of_line = "1 number" if columns == 1 else f"{columns} numbers"
                self._refuse_line(number, f"it has {numbers_of_line}, not {width or 'some'}")
            self._count += 1
            if columns > width:  # the word contains spaces
                word, *numbers = line.rsplit(separator, width)
                self._take(word, self._parsed(number, numbers))
                continue
            word, _, rest = line.partition(separator)
            if word in self._wanted:
                self._take(word, self._parsed(number, rest.split(separator)))
        self._check_count(count, f"line {number}")

    def _parsed(self, number: int, numbers: list[bytes]) -> npt.NDArray[np.float32]:
        try:
            values = np.array([float(field) for field in numbers], np.float32)
        except ValueError as error:
            self._refuse_line(number, str(error))
        if not np.isfinite(values).all():
            self._refuse_line(number, "a number is not finite")
        return values

    def read_binary(self, file: io.BufferedReader, *, width: int, count: int) -> None:
        """Reads words and little-endian float32 numbers."""
        self._width, size = width, 4 * width
        chunk, start = file.read(_CHUNK), 0
        for number in range(1, count + 1):
            end = chunk.find(b" ", start)
            if end < 0 or end + 1 + size > len(chunk):
                chunk, start = chunk[start:] + file.read(_CHUNK + size), 0
                end = chunk.find(b" ", 0, _LONGEST_WORD)
                if end < 0 or end + 1 + size > len(chunk):
                    raise DataError(
                        f"{self._path} ends in vector {number:,} of {count:,}, or is no word2vec "
                        "file. Fetch it again."
                    )
            word = chunk[start:end].lstrip(b"\n")  # some writers end a vector with a line break
            start = end + 1 + size
            self._count += 1
            if word in self._wanted:
                values = np.frombuffer(chunk, "<f4", width, end + 1).astype(np.float32)
                if not np.isfinite(values).all():
                    raise DataError(f"{self._path}: a number of vector {number:,} is not finite.")
                self._take(word, values)
        self._check_count(count, "the end")

    def _take(self, word: bytes, values: npt.NDArray[np.float32]) -> None:
        known = self._wanted.get(word)
        if known is None:
            return
        if known in self._rows:
            self._duplicates += 1
            return
        self._rows[known] = len(self._values)
        self._values.append(values)

    def _check_count(self, count: int, where: str) -> None:
        if not self._count:
            raise DataError(f"{self._path} has no word vectors.")
        if count > self._count:
            raise DataError(
                f"{self._path} says that it has {count:,} vectors, but has {self._count:,} up to "
                f"{where}. Fetch it again."
            )

    def _refuse_line(self, number: int, fault: str) -> NoReturn:
        raise DataError(
            f"{self._path}, line {number:,}: {fault}. A line is a word and its numbers, separated "
            "by spaces."
        )


def _is_model(file: io.BufferedReader) -> bool:
    return file.peek(len(MAGIC)).startswith(MAGIC)


def _header(line: bytes) -> tuple[int, int] | None:
    """Returns (count, width) if the first line is a header."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return None
    count, width = map(int, fields)
    return (count, width) if count and width else None


def _first_line(file: io.BufferedReader, path: Path) -> bytes:
    """Returns the first line; DataError if it is longer than any of vectors."""
    line = file.readline(_CHUNK)
    if len(line) == _CHUNK:
        raise DataError(f"{path} starts with a line of more than {_CHUNK:,} bytes: no vectors.")
    return line


def _first_lines(first: bytes, file: io.BufferedReader) -> list[bytes]:
    """Returns the first line and reads some of the following ones."""
    return [first, *itertools.islice(file, _LINES - 1)]


def _separator(line: bytes) -> bytes:
    return b"\t" if b"\t" in line else b" "


def _width(lines: list[bytes]) -> int:
    """Returns the dimension of a file without a header; 0 if it cannot be inferred.

    A word may contain spaces, even the first one, so this takes the field count for which most
    lines consist of a word followed by numbers only.
    """
    bare = [line for line in (raw.rstrip(b" \r\n\t") for raw in lines) if line]
    rows = [line.split(_separator(bare[0])) for line in bare]
    counts = Counter(len(row) - 1 for row in rows)
    whole = Counter(map(_numbers_at_the_end, rows))
    return max(counts, key=lambda width: (whole[width], counts[width], width), default=0)


def _check_numbers(path: Path, lines: list[bytes]) -> None:
    """Checks that some of the first lines contain numbers.

    Raises:
      DataError: none does; the message shows the first line.
    """
    rows = [
        (number, line.split(_separator(line)))
        for number, raw in enumerate(lines, 1)
        if (line := raw.rstrip(b" \r\n\t"))
    ]
    if not rows:
        raise DataError(f"{path} has no word vectors.")
    if any(_numbers_at_the_end(row) for _, row in rows):
        return
    number, row = rows[0]
    fault = "no number follows the word"
    if len(row) > 1:
        fault = f"{row[1][:40].decode('utf-8', 'replace')!r} is no number"
    raise DataError(
        f"{path}, line {number:,}: {fault}. A line is a word and its numbers, separated by spaces."
    )


def _numbers_at_the_end(fields: list[bytes]) -> int:
    """Returns how many fields at the end of the line, excluding the first field, are numbers."""
    count = 0
    for field in reversed(fields[1:]):
        try:
            float(field)
        except ValueError:
            break
        count += 1
    return count


def _is_text(start: bytes, width: int) -> bool:
    """Returns whether the data after the header starts with a word and parsable numbers."""
    line, whole, _ = start.partition(b"\n")
    words = line.split()
    # A word may contain spaces; the last number of an incomplete line may be truncated.
    fields = words[-width:] if whole and len(words) > width else words[1:]
    try:
        [float(field) for field in (fields if whole else fields[:-1])]
    except ValueError:
        return False
    return bool(fields) and b"\0" not in line
