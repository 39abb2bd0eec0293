"""Files of word vectors: GloVe, word2vec, fastText."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.text import fasttext_model
from t2t_torch.text.fasttext_model import FasttextModel
from t2t_torch.text.lines import open_bytes

_ZIP = b"PK\x03\x04"
_CHUNK = 1 << 20  # bytes of a binary file that are looked at together
_LINES = 100  # of a file without a header, that its width is found from
_LONGEST_WORD = 10_000  # bytes; a binary word without an end is none


@dataclass(frozen=True)
class WordVectors:
    """The vectors of some words, of a file with those of many.

    Attributes:
      rows: for each word that was found, its row in
      values: [found, width] float32.
      in_file: vectors in the file.
      duplicates: lines left out as their word had been found before.
      composed: words of which the file has pieces alone; fastText's models.
    """

    rows: dict[str, int]
    values: npt.NDArray[np.float32]
    in_file: int
    duplicates: int
    composed: int = 0

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self.values.shape[1])


def read_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    r"""Reads the vectors of some words; only theirs are kept in memory.

    What the file is, is seen from its beginning, packed with gzip or not:

    - GloVe text: "word 0.1 -0.2 ..." on every line.  A word may hold spaces.
    - word2vec text, which is fastText's .vec too: the same after a line "count width".
    - word2vec binary: the same line, then each word, a space, and float32 numbers.
    - fastText's models, .bin: `text/fasttext_model.py`.

    Of a word that is there twice the first vector counts.  Words are compared as bytes of UTF-8, so
    those that are none are passed over.

    Args:
      path: of the file.
      wanted: the words.

    Raises:
      DataError: the file cannot be read, is of another format, damaged, or has a malformed line,
        which is named.
    """
    found = _Found(path, wanted)
    with _opened(path) as file:
        if _is_model(file):
            model = FasttextModel(file, path)
            made = model.vectors(wanted)
            return WordVectors(made.rows, made.values, model.words, 0, made.composed)
        first = file.readline()
        header = _header(first)
        if header is None:
            start = _first_lines(first, file)
            found.read_text(itertools.chain(start, file), 1, width=_width(start))
        elif _is_text(file.peek(_LONGEST_WORD), header[1]):
            found.read_text(file, 2, width=header[1], count=header[0])
        else:
            found.read_binary(file, width=header[1], count=header[0])
    return found.vectors()


def width_of_vectors(path: Path) -> int:
    """Returns how many numbers the vectors of a file have, from its first lines.

    Raises:
      DataError: as `read_vectors`, of what is seen there.
    """
    with _opened(path) as file:
        if _is_model(file):
            return FasttextModel(file, path).width
        first = file.readline()
        header = _header(first)
        if header is not None:
            return header[1]
        lines = _first_lines(first, file)
    _check_numbers(path, lines)
    return _width(lines)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a file of a format that is read; tells what is wrong with it while it is."""
    try:
        with open_bytes(path) as raw, io.BufferedReader(cast("Any", raw), _CHUNK) as file:
            _check_format(path, file.peek(len(_ZIP))[: len(_ZIP)])
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}. Remove it and fetch it again.") from None
    except OSError as error:
        raise DataError(
            f"Cannot read the word vectors {path}: {error.strerror or error}. Give the path of a "
            "file of GloVe, word2vec or fastText."
        ) from None


class _Found:
    """The vectors that are found while a file is read.

    Args:
      path: of the file, for messages.
      wanted: words.
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
        """Returns all of them."""
        values = np.stack(self._values) if self._values else np.zeros((0, self._width), np.float32)
        return WordVectors(self._rows, values, self._count, self._duplicates)

    def read_text(self, lines: Iterable[bytes], first: int, width: int = 0, count: int = 0) -> None:
        """Reads lines, the first of which has a number; width and count 0 are not known."""
        number, blank, separator = first, 0, b""
        for number, raw in enumerate(lines, first):
            line = raw.rstrip(b" \r\n\t")
            if not line:
                blank = blank or number
                continue
            if blank:
                self._refuse_line(blank, "it is empty")
            separator = separator or _separator(line)
            # Counted in all lines, but numbers are read of those that are wanted alone.
            there = line.count(separator)
            self._width = width = width or there
            if not there or there < width:
                self._refuse_line(number, f"it has {_told(there)}, not {width or 'some'}")
            self._count += 1
            if there > width:  # spaces in the word
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
        """Reads words and float32 numbers, those of a small-endian machine."""
        self._width, size = width, 4 * width
        held, start = file.read(_CHUNK), 0
        for number in range(1, count + 1):
            end = held.find(b" ", start)
            if end < 0 or end + 1 + size > len(held):
                held, start = held[start:] + file.read(_CHUNK + size), 0
                end = held.find(b" ", 0, _LONGEST_WORD)
                if end < 0 or end + 1 + size > len(held):
                    raise DataError(
                        f"{self._path} ends in vector {number:,} of {count:,}, or is no word2vec "
                        "file. Fetch it again."
                    )
            word = held[start:end].lstrip(b"\n")  # some writers end a vector with it, some do not
            start = end + 1 + size
            self._count += 1
            if word in self._wanted:
                values = np.frombuffer(held, "<f4", width, end + 1).astype(np.float32)
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


def _check_format(path: Path, magic: bytes) -> None:
    if magic.startswith(_ZIP):
        raise DataError(f"{path} is a zip archive. Unpack it first:  unzip {path}")


def _is_model(file: io.BufferedReader) -> bool:
    magic = fasttext_model.MAGIC
    return file.peek(len(magic))[: len(magic)] == magic


def _header(line: bytes) -> tuple[int, int] | None:
    """Returns (count, width) if the first line tells them."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        return None
    count, width = map(int, fields)
    return (count, width) if count and width else None


def _first_lines(first: bytes, file: io.BufferedReader) -> list[bytes]:
    """Returns the first line and some after it, which are read."""
    return [first, *itertools.islice(file, _LINES - 1)]


def _separator(line: bytes) -> bytes:
    return b"\t" if b"\t" in line else b" "


def _width(lines: list[bytes]) -> int:
    """Returns how many numbers the lines of a file without a header have; 0 if that is not seen.

    A word may hold spaces, also the first: of the counts of fields that is taken with which most
    lines begin with a word and go on with numbers alone.
    """
    bare = [line for line in (raw.rstrip(b" \r\n\t") for raw in lines) if line]
    rows = [line.split(_separator(bare[0])) for line in bare]
    counts = Counter(len(row) - 1 for row in rows)
    whole = Counter(map(_numbers_at_the_end, rows))
    return max(counts, key=lambda width: (whole[width], counts[width], width), default=0)


def _check_numbers(path: Path, lines: list[bytes]) -> None:
    """Checks that some of the first lines have numbers.

    Raises:
      DataError: none has; tells of the first.
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
    fault = f"{_shown(row[1])} is no number" if len(row) > 1 else "no number follows the word"
    raise DataError(
        f"{path}, line {number:,}: {fault}. A line is a word and its numbers, separated by spaces."
    )


def _told(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"


def _shown(field: bytes) -> str:
    return repr(field[:40].decode("utf-8", "replace"))


def _numbers_at_the_end(fields: list[bytes]) -> int:
    """Returns how many fields after the first are numbers, from the last one on."""
    count = 0
    for field in reversed(fields[1:]):
        try:
            float(field)
        except ValueError:
            break
        count += 1
    return count


def _is_text(start: bytes, width: int) -> bool:
    """Whether what follows the header begins with a word and numbers that can be read."""
    line, whole, _ = start.partition(b"\n")
    words = line.split()
    # A word may hold spaces; of a line that is not whole the last number may be cut.
    fields = words[-width:] if whole and len(words) > width else words[1:]
    try:
        [float(field) for field in (fields if whole else fields[:-1])]
    except ValueError:
        return False
    return bool(fields) and b"\0" not in line
