"""Text files: lines, labelled lines, parallel files, segments, and bad records."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from xml.sax.saxutils import unescape

from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import read_raw_lines

# Where a record stands in its file, and what becomes of bad ones.


MAX_LISTED = 1000
"""So many bad records are remembered; all are counted."""

Policy = Literal["fail", "skip"]


class Place(NamedTuple):
    """A place in a file.

    Attributes:
      path: the file.
      line: from 1, where the record starts; in formats without lines the number of the `unit`.
      column: from 1, the character of the line (not the byte, and not the field); None for all of
        the line.
      unit: what `line` counts.
    """

    path: Path
    line: int
    column: int | None = None
    unit: str = "line"

    def __str__(self) -> str:
        place = f"{self.path}, {self.unit} {self.line}"
        return place if self.column is None else f"{place}, column {self.column}"


class Record(NamedTuple):
    """What one row, sentence, tree, question or picture of a file holds.

    Attributes:
      place: where it starts.
      values: by the name of the field.
    """

    place: Place
    values: dict[str, Any]


class BadRecords:
    """What becomes of records that cannot be read or used.

    Attributes:
      policy: "fail" ends the reading at the first; "skip" leaves them out.
      count: how many were left out.
      listed: the place and the fault of the first `MAX_LISTED` of them.

    Raises:
      UsageError: there is no such policy.
    """

    def __init__(self, policy: Policy = "fail") -> None:
        if policy not in get_args(Policy):
            raise UsageError(
                f"{policy!r} is nothing that can be done with bad records; choose one of "
                f"{', '.join(get_args(Policy))}."
            )
        self.policy: Policy = policy
        self.count = 0
        self.listed: list[str] = []

    def report(self, place: Place, why: str) -> None:
        """Leaves a record out; DataError with the place under "fail"."""
        told = f"{place}: {why}"
        if self.policy == "fail":
            raise DataError(
                f"{told.rstrip('.')}. Mend it, or leave bad records out:  --on_bad_record=skip"
            )
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(told)


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


# Plain text, lines that begin with labels, and files whose lines belong together.


def read_plain(path: Path, bad: BadRecords) -> Iterator[Record]:
    r"""Yields the lines of a file, also blank ones, as {"text": line}.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of lines that are no text.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad):
        if line is not None:
            yield Record(Place(path, number), {"text": without_end(line)})


def read_labelled(path: Path, bad: BadRecords, *, prefix: str = "") -> Iterator[Record]:
    """Yields {"label", "coarse", "labels", "text"} of lines that begin with labels.

    Without a prefix, the first word of a line is its label: `DESC:manner How do bees fly ?`, as in
    TREC (Li and Roth 2002). With one, all first words that have it are, as in fastText:
    `__label__bread __label__baking How long does dough rise?`. "label" is the first of "labels",
    "coarse" its part before the first colon. A blank line is no row. Bad is a line without a label
    or without a text.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad lines.
      prefix: of every label; it is left out.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad):
        rest = (line or "").strip()
        if not rest:
            continue
        labels: list[str] = []
        while rest.startswith(prefix) and (prefix or not labels):
            label, *after = rest.split(None, 1)
            labels.append(label[len(prefix) :])
            rest = after[0] if after else ""
        if not rest or not labels or not all(labels):
            good = labels and all(labels)
            fault = "no text after the label" if good else f"no label: {prefix}LABEL was expected"
            bad.report(Place(path, number), fault)
            continue
        coarse = labels[0].partition(":")[0]
        values = {"label": labels[0], "coarse": coarse, "labels": labels, "text": rest}
        yield Record(Place(path, number), values)


def read_parallel(
    path: Path, bad: BadRecords, *, files: Mapping[str, str] = {}
) -> Iterator[Record]:
    """Yields the lines of several files that belong together, by the names of the files' roles.

    If a line is no text in one of the files, those of the other files are left out with it.  Places
    are those of the first file.

    Args:
      path: the folder of the files, or a file in it.
      bad: what becomes of lines that are no text.
      files: by role, such as "inputs" and "targets", the file's path from the folder.

    Raises:
      DataError: a file cannot be read; or, when the shortest ends, they have different numbers of
        lines, for then nobody knows which line is missing.
      UsageError: there are no files.
    """
    if not files:
        raise UsageError(
            f"{path}: parallel files are given by the option files, such as "
            '{"inputs": "train.en", "targets": "train.de"}.'
        )
    folder = path if path.is_dir() else path.parent
    return _rows({role: folder / name for role, name in files.items()}, bad)


def _rows(paths: Mapping[str, Path], bad: BadRecords) -> Iterator[Record]:
    first = next(iter(paths.values()))
    for number, lines in aligned(list(paths.values()), bad):
        yield Record(Place(first, number), dict(zip(paths, lines, strict=True)))


def aligned(
    paths: list[Path],
    bad: BadRecords,
    read: Callable[[Path, BadRecords], Iterator[Numbered]] = TextFile,
    unit: str = "lines",
) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the lines of files that belong together, without line ends.

    Args:
      paths: the files.
      bad: what becomes of lines that are no text.
      read: what reads a file; what it yields is taken for lines.
      unit: what it yields.

    Raises:
      DataError: a file cannot be read, or they have different numbers of lines.
    """
    files = [read(path, bad) for path in paths]
    for number, lines in enumerate(zip_longest(*files), 1):
        if None in lines:
            _refuse_unequal(paths, [line is not None for line in lines], number - 1, unit)
        texts = [without_end(line) for _, line in lines if line is not None]
        if len(texts) == len(paths):
            yield number, texts


def _refuse_unequal(paths: list[Path], going_on: list[bool], count: int, unit: str) -> None:
    ended = ", ".join(str(path) for path, on in zip(paths, going_on, strict=True) if not on)
    others = ", ".join(str(path) for path, on in zip(paths, going_on, strict=True) if on)
    raise DataError(
        f"{ended} ends after {count:,} {unit}, where {others} goes on; those of the same number "
        "belong together. Make the files parallel."
    )


# Sentences that are marked up, one a line: evaluation sets in SGML or XML, and talks.


_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
_OPENING = re.compile(r"<seg\b", re.IGNORECASE)
_ENTITIES = {"&quot;": '"', "&apos;": "'"}  # beside &amp; &lt; &gt;, which `unescape` knows
_TALK_TEXT = re.compile(r"\s*<(title|description)>(.*)</\1>\s*")
_TALK_MARK = re.compile(r"\s*</?(?:url|talkid|keywords|speaker|reviewer|translator|doc)\b")


def read_segments(path: Path, bad: BadRecords) -> Iterator[Numbered]:
    """Yields the sentences between <seg> and </seg>, in WMT's and IWSLT's evaluation sets.

    Each is told with the number of its line, entities resolved and blanks around it left out.  Bad
    is a segment that does not end on its line; its text is None, so that those of a translation
    stay beside theirs.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad segments.
    """
    for number, line in TextFile(path, bad):
        if line is None:
            yield number, None
            continue
        end = 0
        for match in _SEGMENT.finditer(line):
            yield number, unescape(match[1], _ENTITIES).strip()
            end = match.end()
        opening = _OPENING.search(line, end)
        if opening is not None:
            place = Place(path, number, opening.start() + 1)
            bad.report(place, "a <seg> without a </seg> on its line")
            yield number, None


def read_talk(path: Path, bad: BadRecords) -> Iterator[Numbered]:
    """Yields the lines of IWSLT's `train.tags`: of talks, with their titles and descriptions.

    Lines with other marks (address, key words, speaker, translators ...) are left out.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of lines that are no text; that of a text is None.
    """
    for number, line in TextFile(path, bad):
        if line is None:
            yield number, None
        elif not _TALK_MARK.match(line):
            match = _TALK_TEXT.fullmatch(line)
            yield number, (match[2] if match else line).strip()
