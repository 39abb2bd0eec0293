"""Files of text, line by line, with what cannot be text reported."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_torch.readers.bad_records import BadRecords, Place
from t2t_torch.text.lines import read_raw_lines

Numbered = tuple[int, str | None]
"""The number of a line, from 1, and the line with its end; None for one that was reported."""

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextFile:
    r"""The lines of a UTF-8 file, packed with gzip or not, each with its number.

    Only "\n" ends a line; a carriage return, U+0085, U+2028 and the like are characters.  A byte
    order mark at the file's start is no part of the text.  A line that is not UTF-8, or that holds
    a NUL byte, which no text has, is reported and its text is None.  An empty file has no lines.

    Args:
      path: the file.
      bad: what becomes of bad lines.

    Raises:
      DataError: while lines are taken: the file cannot be read, or is damaged.
    """

    def __init__(self, path: Path, bad: BadRecords) -> None:
        self.path = path
        self._bad = bad
        self._raw = enumerate(read_raw_lines(path), 1)
        self._back: deque[Numbered] = deque()

    def __iter__(self) -> Iterator[Numbered]:
        return self

    def __next__(self) -> Numbered:
        if self._back:
            return self._back.popleft()
        number, raw = next(self._raw)
        if number == 1 and raw.startswith(codecs.BOM_UTF8):
            raw = raw[len(codecs.BOM_UTF8) :]
        if b"\0" not in raw:
            try:
                return number, raw.decode()
            except UnicodeDecodeError as error:
                column = len(raw[: error.start].decode()) + 1
                byte = f"byte 0x{raw[error.start]:02x} is not UTF-8 there ({error.reason})"
                encoding = "UTF-16" if number == 1 and raw.startswith(_UTF16) else "ITS_ENCODING"
        else:
            before = raw[: raw.index(b"\0")]
            column = len(before.decode(errors="replace")) + 1
            byte, encoding = "a NUL byte, which is no text", "UTF-16"
        place = Place(self.path, number, column)
        self._bad.report(place, f"{byte}. Convert the file:  iconv -f {encoding} -t UTF-8")
        return number, None

    def push_back(self, lines: Sequence[Numbered]) -> None:
        """Makes lines that were taken come again, the first of them first."""
        self._back.extendleft(reversed(lines))


def without_end(line: str) -> str:
    r"""Returns a line without its "\n" or "\r\n"."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def split_at_blanks(line: str) -> list[str]:
    """Returns what stands between spaces and tabs; other whitespace is part of words."""
    pieces = line.replace("\t", " ").split(" ")
    return [piece for piece in pieces if piece] if "" in pieces else pieces


def column_of_piece(line: str, number: int) -> int:
    """Returns the column, from 1, where a piece of `split_at_blanks` begins; or the line's end."""
    position = 0
    for piece in split_at_blanks(line)[: number + 1]:
        start = line.index(piece, position)
        position = start + len(piece)
        number -= 1
    return start + 1 if number < 0 else len(line) + 1
