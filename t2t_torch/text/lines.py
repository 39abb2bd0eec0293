"""Text files, line by line."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from t2t_torch.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952; no UTF-8 text starts with it
_LONGEST_LINE = 1 << 28  # bytes of a line in a packed file
_MAX_RATIO = 500  # of a packed file's text to its size
_ALWAYS_ALLOWED = 1 << 32  # bytes of a packed file's text


def read_raw_lines(path: Path) -> Iterator[bytes]:
    r"""Yields the lines of a file, packed with gzip or not, as bytes, each with its "\n".

    Raises:
      DataError: the file cannot be read, or a packed file is damaged.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            lines = _unpacked(file, path) if isinstance(file, gzip.GzipFile) else file
            for number, line in enumerate(lines, 1):  # noqa: B007  the errors below name it
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        fault = f"is damaged after line {number}" if number else "is not a gzip file, or is damaged"
        raise DataError(f"{path} {fault}: {error}. Remove it and fetch it again.") from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def _unpacked(file: gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """Yields the lines of a packed file; DataError if it is a decompression bomb."""
    most = max(_ALWAYS_ALLOWED, _MAX_RATIO * path.stat().st_size)
    total = 0
    while line := file.readline(_LONGEST_LINE + 1):
        total += len(line)
        if len(line) > _LONGEST_LINE or total > most:
            what = f"a line of more than {_LONGEST_LINE:,}" if total <= most else f"{total:,}"
            raise DataError(
                f"{path} unpacks to {what} bytes, as decompression bombs do. If it is to be "
                "trusted, unpack it by hand:  gunzip"
            )
        yield line


def read_lines(path: Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, packed with gzip or not, without their "\n" or "\r\n".

    Only "\n" ends a line: other carriage returns, form feeds, U+0085, U+2028 and the like are kept
    as part of it, so that parallel files stay parallel.  One "\r" before the "\n" and a byte order
    mark at the file's start, which Windows' editors write, are no part of the text.

    Raises:
      DataError: there is no such file, it is not UTF-8 (names line and byte), or a packed file is
        damaged.
    """
    start = 0
    number = 0
    try:
        for line in read_raw_lines(path):
            number += 1
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                start = len(codecs.BOM_UTF8)
                line = line[start:]
            yield (line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")).decode()
            start += len(line)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {error.start + 1} of the line (byte "
            f"{start + error.start + 1} of the text) is 0x{error.object[error.start]:02x}, "
            "which is not UTF-8 there "
            f"({error.reason}). Convert the file:  iconv -f ITS_ENCODING -t UTF-8"
        ) from None


def read_parallel(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """Yields the pairs of lines of two files.

    Raises:
      DataError: the files have different numbers of lines (after all whole pairs), or `read_lines`
        refuses one of them.
    """
    counts = [0, 0]
    for pair in zip_longest(read_lines(first), read_lines(second)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if pair[0] is not None and pair[1] is not None:
            yield pair[0], pair[1]
    if counts[0] != counts[1]:
        raise DataError(
            f"{first} has {counts[0]:,} lines and {second} has {counts[1]:,}; line n of the one "
            "belongs to line n of the other. Make them parallel."
        )


def open_bytes(path: Path) -> io.BufferedIOBase:
    """Opens a file to be read; one that is packed with gzip is unpacked on the way."""
    with path.open("rb") as file:
        magic = file.read(len(_GZIP_MAGIC))
    return gzip.open(path, "rb") if magic == _GZIP_MAGIC else path.open("rb")
