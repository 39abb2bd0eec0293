"""Readers of text files: lines, labelled lines, parallel files; and bad records."""

from __future__ import annotations

import codecs
import functools
import io
import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import DAMAGED, open_bytes, read_raw_lines
from t2t_torch.readers.head import SURE, Head, Match, has_returns_alone
from t2t_torch.registry import register_reader

CONVERT_RETURNS = "only line feeds, or both together, end lines. Convert the file:  tr '\\r' '\\n'"
"""Error message for a file whose lines end with carriage returns only."""

MAX_LISTED = 1000
"""Maximum number of bad records that are listed; all are counted."""

Policy = Literal["fail", "skip"]


class Place(NamedTuple):
    """A place in a file.

    Attributes:
      path: the file.
      line: line number from 1 where the record starts; in formats without lines the number of the
        `unit`.
      column: character of the line, from 1 (not byte or field); None for the whole line.
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
    """A record of a file, such as a row, sentence, tree, question or image.

    Attributes:
      place: where it starts.
      values: by the name of the field.
    """

    place: Place
    values: dict[str, Any]


class BadRecords:
    """Policy for records that cannot be read or used.

    Args:
      policy: see the attribute.
      advice: what the error of "fail" advises; only `t2t-datagen` has a flag of the policy.

    Attributes:
      policy: "fail" raises an error at the first; "skip" skips them.
      count: number of skipped records.
      listed: place and error of the first `MAX_LISTED` of them.

    Raises:
      UsageError: the policy is unknown.
    """

    def __init__(
        self,
        policy: Policy = "fail",
        advice: str = "Fix it, or skip bad records:  --on_bad_record=skip",
    ) -> None:
        if policy not in get_args(Policy):
            raise UsageError(
                f"{policy!r} is nothing that can be done with bad records; choose one of "
                f"{', '.join(get_args(Policy))}."
            )
        self.policy: Policy = policy
        self._advice = advice
        self.count = 0
        self.listed: list[str] = []

    def report(self, place: Place, why: str) -> None:
        """Skips a record; under "fail", raises DataError with the place."""
        message = f"{place}: {why}"
        if self.policy == "fail":
            raise DataError(f"{message.rstrip('.')}. {self._advice}")
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(message)


Numbered = tuple[int, str | None]
"""A line number, from 1, and the line with its end; None for a bad line already reported."""

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextFile:
    r"""The lines of a text file, compressed or not, with their numbers.

    Only "\n" ends a line; a carriage return, U+0085, U+2028 and similar are ordinary characters.  A
    byte order mark at the start of the file is removed.  A line that is not UTF-8, or contains a
    NUL byte, is reported and yields None.  An empty file has no lines.

    Args:
      path: the file.
      bad: policy for bad lines.
      encoding: name of the encoding, as of Python's codecs; empty for UTF-8.

    Raises:
      DataError: while lines are read: the file cannot be read, is damaged, or is not of the
        encoding.
      UsageError: the encoding is unknown.
    """

    def __init__(self, path: Path, bad: BadRecords, encoding: str = "") -> None:
        self.path = path
        self._bad = bad
        self._raw = enumerate(raw_lines(path, encoding), 1)
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
        """Pushes lines back, to be returned again in the same order."""
        self._back.extendleft(reversed(lines))


def known_encoding(path: Path, encoding: str) -> str:
    """Returns the name of an encoding as in Python's codecs; empty for UTF-8.

    Raises:
      UsageError: there is no such encoding of texts.
    """
    try:
        name = codecs.lookup(encoding or "utf-8").name
        "".encode(name)
    except LookupError:
        raise UsageError(
            f"{path}: {encoding!r} is no encoding. Name one of Python's, such as utf-8, utf-16, "
            "cp1252 (Western Europe), cp1251 (Cyrillic), gb18030 or shift_jis."
        ) from None
    return "" if name in ("utf-8", "utf-8-sig", "ascii") else name


def raw_lines(path: Path, encoding: str) -> Iterator[bytes]:
    """Yields the lines of a file with their ends, those of another encoding in UTF-8.

    Lines that end with carriage returns alone, as in files of old Macs, end with line feeds.

    Raises:
      DataError: see `TextFile`.
      UsageError: the encoding is unknown.
    """
    encoding = known_encoding(path, encoding)
    lines = _encoded_lines(path, encoding) if encoding else read_raw_lines(path)
    for number, line in enumerate(lines):
        if not number and has_returns_alone(line):
            yield from line.replace(b"\r", b"\n").splitlines(keepends=True)
        else:
            yield line


def read_whole(path: Path, encoding: str) -> str:
    """Returns the text of a file, compressed or not.

    Raises:
      DataError: the file cannot be read, or is not of the encoding.
      UsageError: the encoding is unknown.
    """
    raw = b"".join(read_raw_lines(path, whole=True))
    try:
        return raw.decode(known_encoding(path, encoding) or "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: byte {error.start + 1} is not {encoding or 'UTF-8'} ({error.reason})."
        ) from None


def _encoded_lines(path: Path, encoding: str) -> Iterator[bytes]:
    """Yields the lines of a file of another encoding, in UTF-8."""
    try:
        with io.TextIOWrapper(cast("Any", open_bytes(path)), encoding, newline="\n") as file:
            for line in file:
                yield line.encode("utf-8", "surrogatepass")
    except UnicodeError as error:
        raise DataError(
            f'{path} is not of the encoding {encoding} ("options": {{"encoding": ...}}): {error}. '
            "Name the right one, or convert the file:  iconv -f ITS_ENCODING -t UTF-8"
        ) from None
    except (*DAMAGED, OSError) as error:
        raise DataError(f"Cannot read {path}: {error}.") from None


def without_end(line: str) -> str:
    r"""Returns a line without its "\n" or "\r\n"."""
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def blocks_of(lines: Iterable[Numbered]) -> Iterator[list[tuple[int, str]]]:
    """Yields the lines between lines of only spaces and tabs, without their ends.

    Blocks with an undecodable line are skipped.
    """
    is_blank = re.compile(r"[ \t\r\n]*").fullmatch
    for is_full, held in itertools.groupby(lines, lambda n: n[1] is None or not is_blank(n[1])):
        block = [(number, line and without_end(line)) for number, line in held]
        if is_full and all(line is not None for _, line in block):
            yield cast("list[tuple[int, str]]", block)


def split_at_blanks(line: str) -> list[str]:
    """Returns the parts between spaces and tabs; other whitespace is part of words."""
    pieces = line.replace("\t", " ").split(" ")
    return [piece for piece in pieces if piece] if "" in pieces else pieces


def duplicates(names: Iterable[str]) -> list[str]:
    """Returns the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def column_of_field(fields: Sequence[str], number: int, between: str) -> int:
    """Returns the start column, from 1, of a field; or the end of a line that has fewer fields."""
    start = len(between.join(fields[:number])) + 1
    return start + len(between) * (0 < number < len(fields))


def _match_plain(head: Head) -> Match | None:
    if not head.full_lines:
        return None
    doubts = [f"{head.path.name} is taken for plain text, one text on each line."]
    doubts = [] if head.has_ending(".txt", ".text") else doubts
    marked = [match[0] for line in head.full_lines if (match := _MARK.search(line))]
    if len(marked) * 10 > len(head.full_lines):
        shown = f"{len(marked)} of {len(head.full_lines)} lines hold {marked[0]!r}"
        doubts.append(f"{shown}: if it is markup of a format, convert it to one that is read.")
    return Match(0.1, doubts=doubts)


_MARK = re.compile(
    r"\t|^[^\W\d_]{1,12}: |#{3,}|\{\{\w+|</?[A-Za-z]\w*>|\w/[A-Z]{1,4}(?= )|(?:\w+[:/|=]\S+ ){2}"
    r"|\S [BI]-\w+$"
)


@register_reader("lines", endings=(".txt", ".text"), matches=_match_plain)
def read_plain(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    r"""Yields the lines of a file, including blank ones, as {"text": line}.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for undecodable lines.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad, encoding):
        if line is not None:
            yield Record(Place(path, number), {"text": without_end(line)})


_LABEL = re.compile(r"[^\W\d]\w*:\w+|-?\d")
_FASTTEXT = "__label__"
_MAX_LABELS = 200


def _match_labelled(head: Head) -> Match | None:
    """Recognizes lines that begin with fastText's labels, TREC's LABEL:fine, or small integers."""
    words = [line.split(None, 1) for line in head.full_lines]
    firsts = [first for first, *rest in words if rest]
    marked = sum(first.startswith(_FASTTEXT) for first in firsts)
    kinds = {first for first in firsts if _LABEL.fullmatch(first)}
    is_few = 2 <= len(kinds) <= _MAX_LABELS and len(kinds) * 2 <= len(firsts)
    if firsts and marked >= SURE * len(words):
        labels, doubts = set(firsts), []
        if len(labels) * 2 > len(firsts) > _FEW_LINES:
            doubts.append(
                f"nearly each line has a label of its own, such as {firsts[0]!r}: a space has to "
                "stand between label and text."
            )
        return Match(1.0, {"prefix": _FASTTEXT}, doubts)
    if is_few and sum(first in kinds for first in firsts) >= SURE * len(words):
        doubt = "the first word of each line is used as its label"
        doubt += "; 'coarse' is its part before the colon" * any(":" in kind for kind in kinds)
        return Match(0.85, doubts=[f"{doubt}."])
    return None


_FEW_LINES = 10


@register_reader("labelled", matches=_match_labelled)
def read_labelled(
    path: Path, bad: BadRecords, *, prefix: str = "", encoding: str = ""
) -> Iterator[Record]:
    """Yields {"label", "coarse", "labels", "text"} for lines that begin with labels.

    Without a prefix, the first word of a line is its label: `DESC:manner How do bees fly ?`, as in
    TREC (Li and Roth 2002).  With one, all leading words that have it are, as in fastText:
    `__label__bread __label__baking How long does dough rise?`.  "label" is the first of "labels",
    "coarse" its part before the first colon.  Blank lines are skipped.  A line without a label or
    without a text is bad.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad lines.
      prefix: prefix of every label, which is removed.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad, encoding):
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


@register_reader("parallel")
def read_parallel(
    path: Path,
    bad: BadRecords,
    *,
    files: Mapping[str, str] = {},
    talks: bool = False,
    encoding: str = "",
) -> Iterator[Record]:
    """Yields the corresponding lines of several files, by the roles of the files.

    A line that is undecodable in one of the files is skipped in all.  Places refer to the first
    file.

    Args:
      path: the folder of the files, or a file in it.
      bad: policy for undecodable lines.
      files: by role, such as "inputs" and "targets", the file's path relative to the folder.
      talks: leave out the markup of IWSLT's `train.tags`; see `read_talk`.
      encoding: of all files, empty for UTF-8.

    Raises:
      DataError: a file cannot be read; or, at the end of the shortest, the numbers of lines differ,
        in which case the missing line is unknown.
      UsageError: there are no files.
    """
    if not files:
        raise UsageError(
            f"{path}: parallel files are given by the option files, such as "
            '{"inputs": "train.en", "targets": "train.de"}.'
        )
    folder = path if path.is_dir() else path.parent
    read = read_talk if talks else TextFile
    paths = [folder / name for name in files.values()]
    rows = aligned(paths, bad, functools.partial(read, encoding=encoding))
    return (Record(Place(paths[0], n), dict(zip(files, row, strict=True))) for n, row in rows)


@register_reader("class_files")
def read_class_files(
    path: Path, bad: BadRecords, *, files: Mapping[str, str] = {}, encoding: str = ""
) -> Iterator[Record]:
    """Yields {"text", "label"} for the lines of a file for each class; the files take turns.

    Blank lines are skipped.

    Args:
      path: the folder of the files.
      bad: policy for undecodable lines.
      files: by label, the file's path relative to the folder.
      encoding: of all files, empty for UTF-8.

    Raises:
      DataError: a file cannot be read.
      UsageError: there are no files.
    """
    if not files:
        raise UsageError(f'{path}: the option files, {{"LABEL": "FILE", ...}}, is missing.')
    by_label = [TextFile(path / name, bad, encoding) for name in files.values()]
    for row in itertools.zip_longest(*by_label, fillvalue=(0, None)):
        for (label, name), (number, line) in zip(files.items(), row, strict=True):
            if line and line.strip():
                place = Place(path / name, number)
                yield Record(place, {"text": without_end(line), "label": label})


def aligned(
    paths: list[Path],
    bad: BadRecords,
    read: Callable[[Path, BadRecords], Iterator[Numbered]] = TextFile,
    unit: str = "lines",
) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the corresponding lines of parallel files, without line ends.

    Args:
      paths: the files.
      bad: policy for undecodable lines.
      read: reader of a file; its items are treated as lines.
      unit: name of its items.

    Raises:
      DataError: a file cannot be read, or the numbers of lines differ.
    """
    for number, lines in enumerate(itertools.zip_longest(*[read(path, bad) for path in paths]), 1):
        if None in lines:
            on = {str(p): line is not None for p, line in zip(paths, lines, strict=True)}
            ended, others = (", ".join(p for p in on if on[p] is goes) for goes in (False, True))
            raise DataError(
                f"{ended} ends after {number - 1:,} {unit}, but {others} has more; those of the "
                "same number belong together. Make the files parallel."
            )
        texts = [without_end(line) for _, line in lines if line is not None]
        if len(texts) == len(paths):
            yield number, texts


_TALK_TEXT = re.compile(r"\s*<(title|description)>(.*)</\1>\s*")
_TALK_MARK = re.compile(r"\s*</?(?:url|talkid|keywords|speaker|reviewer|translator|doc)\b")


def read_talk(path: Path, bad: BadRecords, encoding: str = "") -> Iterator[Numbered]:
    """Yields the lines of IWSLT's `train.tags`: talks, with their titles and descriptions.

    Lines with other tags (address, key words, speaker, translators ...) are skipped.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for undecodable lines; a text of this kind yields None.
      encoding: the file's, empty for UTF-8.
    """
    for number, line in TextFile(path, bad, encoding):
        if line is None:
            yield number, None
        elif not _TALK_MARK.match(line):
            match = _TALK_TEXT.fullmatch(line)
            yield number, (match[2] if match else line).strip()
