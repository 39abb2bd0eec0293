"""Detection of a file's format: the matches of all readers, ranked."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.errors import DataError, UsageError
from t2t_torch.files import read_raw_lines
from t2t_torch.readers.formats import FORMATS, open_records, usual_format_of
from t2t_torch.readers.head import NOT_IN_TEXT, SURE, Head, Match
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.reporter import message

_OF_ENDING = 0.97  # confidence in the extension of a reader that does not recognize its files
_BONUS = 0.04  # of the reader whose extension a file has


@dataclass(frozen=True)
class DetectedFormat:
    """Detected format of a file.

    Attributes:
      format: the format's name.
      options: format options that differ from the defaults.
      doubts: warnings about uncertain results, as sentences.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    doubts: Sequence[str] = ()


class RankedFormat(NamedTuple):
    """A format that a file may have.

    Attributes:
      score: the confidence of its reader, with a bonus for its file extension.
      format: the format's name; "" for a refused one that no reader has.
      match: the match.
    """

    score: float
    format: str
    match: Match


def rank_formats(head: Head) -> list[RankedFormat]:
    """Returns the formats that a file may have, the most likely first.

    Raises:
      DataError: it is a text of an encoding that cannot be inferred.
    """
    quoted = shlex.quote(str(head.path))
    found = [
        RankedFormat(one, "", Match(one, refusal=f"{head.path} is {what.replace('FILE', quoted)}"))
        for one, what in _refused(head)
    ]
    for name, of in FORMATS.items():
        is_named = bool(of.endings) and head.has_ending(*(one.lower() for one in of.endings))
        if of.matches is None:
            match = Match(_OF_ENDING) if is_named and not head.is_folder else None
        else:
            match = of.matches(head)
        if match is not None:
            score = match.confidence + _BONUS * (is_named and match.confidence > 0.1)
            found.append(RankedFormat(score, name, match))
    return sorted(found, key=lambda one: -one.score)


def detect_format(path: Path) -> DetectedFormat:
    """Detects the format of a file or folder.

    Raises:
      DataError: it cannot be read, or the format is unknown or not read.
    """
    if not path.exists():
        raise DataError(f"There is no {path}.")
    head = Head(path)
    ranked = rank_formats(head)
    if not ranked:
        raise DataError(_why_none(head))
    _, name, match = ranked[0]
    if match.refusal:
        raise DataError(match.refusal)
    if not head.encoding:
        return DetectedFormat(name, match.options, match.doubts)
    if "encoding" not in FORMATS[name].options:
        raise DataError(
            f"{path} has the encoding {head.encoding}, which the format {name} does not read. "
            f"Convert it:  iconv -f {head.encoding} -t UTF-8 {shlex.quote(str(path))} > NEW"
        )
    options = {**match.options, "encoding": head.encoding}
    return DetectedFormat(name, options, [*head.inferred_encoding[1], *match.doubts])


_SAMPLE = 200  # rows by which ways of reading are compared


def fitting_format(
    path: Path,
    declared: tuple[str, Mapping[str, Any]] | None,
    fits: Callable[[str, Mapping[str, Any]], bool],
) -> tuple[str, dict[str, Any]]:
    """Returns the format and options with which most rows of a file have some columns.

    The declaration, or the file's extension, comes first, with the encoding of the file if none is
    declared.  If half of the rows or more do not fit, or nothing is declared, the format is
    detected.  A table is no plain text, whose lines would always fit.

    Args:
      path: the file.
      declared: format and options of a declaration, which hold unless they do not fit.
      fits: returns whether a format's row has the columns.

    Raises:
      DataError: neither the extension nor the content is of a known format.
    """
    name, options = declared or (usual_format_of(path), {})
    ways = [(name, {**_encoding_of(Head(path), name), **options})] if name else []
    share = _share(path, ways[0], fits) if ways else 0.0
    if not declared or share <= 0.5:
        try:
            found = _detected_ways(path, options.get("columns", ()))
        except DataError:
            if not ways:
                raise
            found = []
        if found and (found[0][0] != "lines" or name in ("", "lines")):
            is_first = found[0][0] == name and share > 0.5  # but for options
            ways = [*found, *ways] if is_first else [*ways, *found]
    best = max(ways, key=lambda way: _share(path, way, fits)) if len(ways) > 1 else ways[0]
    if best != (name, options):
        how = ", ".join(f"{key} {value!r}" for key, value in best[1].items())
        message(f"{path} is read as {best[0]}{how and ' with '}{how}.")
    return best


def _detected_ways(path: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the detected format and its options; the same with a header, and with columns."""
    found = detect_format(path)
    ways = [(found.format, dict(found.options))]
    if not found.options.get("header", True):
        ways.append((found.format, {**found.options, "header": True}))
    if columns and "columns" in FORMATS[found.format].options:
        ways.append((found.format, {**found.options, "columns": columns}))
    return ways


def _encoding_of(head: Head, format: str) -> dict[str, Any]:
    """Returns the option of a file's encoding; empty for UTF-8, or if it is not clear."""
    try:
        is_option = not head.is_folder and "encoding" in FORMATS[format].options
        return {"encoding": head.encoding} if is_option and head.encoding else {}
    except DataError:
        return {}


def _share(
    path: Path, way: tuple[str, Mapping[str, Any]], fits: Callable[[str, Mapping[str, Any]], bool]
) -> float:
    """Returns the fraction of a file's first rows that can be read and fit."""
    bad, good, count = BadRecords("skip"), 0, 0
    try:
        records = open_records(path, format=way[0], bad=bad, options=way[1])
        for record in itertools.islice(records, _SAMPLE):
            count += 1
            good += fits(way[0], record.values)
    except (DataError, UsageError):
        return 0.0
    return good / max(1, count + bad.count)


def _why_none(head: Head) -> str:
    """Returns why a file or folder has no format.

    Raises:
      DataError: the file cannot be read, or is damaged.
    """
    if head.is_folder:
        names = ", ".join(head.names[:10]) or "nothing"
        return f"{head.path} is a folder of {names}, which no format reads as a whole."
    if not head.start.strip():
        for _ in read_raw_lines(head.path):
            pass  # a damaged or unreadable file raises DataError
        return f"{head.path} is empty; there is nothing to inspect."
    found = NOT_IN_TEXT.search(head.start) or re.search(rb"[\x80-\xff]", head.start)
    place = found.start() if found else 0
    line = head.start.count(b"\n", 0, place) + 1
    binary = [name for name, of in FORMATS.items() if of.endings and "encoding" not in of.options]
    named = [f", {name} included" for name in binary if head.has_ending(*FORMATS[name].endings)]
    return (
        f"{head.path} is no text, and no format that is read{''.join(named)}: its byte "
        f"{place + 1}, on line {line}, is 0x{head.start[place]:02x}."
    )


_MAGIC = {
    b"%PDF": "a PDF document. Extract its text, or save its table as CSV.",
    rb"\{\\rtf": "a document in Rich Text Format. Save it as plain text.",
    b"SQLite format 3\0": "an SQLite database. Export a table:  sqlite3 -header -csv FILE 'SELECT "
    "* FROM TABLE' > NEW.csv",
    b"\x89HDF": "an HDF5 file. Export its table as CSV or Parquet.",
    b"\x93NUMPY": "an array of numpy. Save texts and labels as CSV.",
    b"ARROW1|FEA1": "an Arrow or Feather file. Save it as Parquet.",
    b"Obj\x01": "an Avro file. Save it as Parquet.",
    b"\x80\x04\x95": "a pickle of Python, which is not loaded. Save its data as CSV or JSON.",
    b"RIFF": "a sound or a video, no data set. Give a list with the columns path and text, or a "
    "folder for each class.",
    b"PK\x03\x04": "a zip archive. Unpack it, and give what comes out:  unzip FILE",
    b"PK\x05\x06": "an empty zip archive.",
    b"\xd0\xcf\x11\xe0": "a workbook of an old Excel. Save it as .xlsx:  soffice --convert-to xlsx "
    "FILE",
    b".{257}ustar": "a tar archive. Unpack it, and give what comes out:  tar xf FILE",
    rb"\(\xb5/\xfd": "packed with zstd. Unpack it:  unzstd FILE",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive. Unpack it, and give what comes out:  7z x FILE",
    b"\x89PNG|\xff\xd8\xff": "one picture, no data set. Give a folder with a subfolder for each "
    "class.",
}
_HTML = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_ROOT = re.compile(
    r"\s*(?:<\?xml[^>]*>|<!doctype\b[^>]*>|<!--.*?-->|\s)*<([A-Za-z][\w:.-]*)", re.I | re.S
)
_TAGGED_LINE = re.compile(r"\s*</?[A-Za-z][^<>]*>.*|.*</[A-Za-z][^<>]*>\s*|.*<[A-Za-z][^<>]*/>\s*")
_YAML_LINE = re.compile(r"\s*(?:- )*(?:[\w\"'./-]+:(?:\s.*)?|- .*)|\s*#.*|---|\s{2,}.*")
_YAML_KEY = re.compile(r"[\w-]+:(?:\s.*)?")
_CODE_LINE = re.compile(
    r"\s*(?:import \w|from \w+ import|def \w+\(|class \w+|#include|INSERT INTO|CREATE TABLE|DROP )"
)


def _refused(head: Head) -> Iterator[tuple[float, str]]:
    """Yields what a file is that is recognized but not read, with the confidence in it."""
    for magic, what in _MAGIC.items():
        if re.match(magic, head.start, re.DOTALL):
            yield 0.99, what
    text = "\n".join(head.full_lines[:50])
    if _HTML.match(text):
        yield 0.98, "a page of HTML, which is markup. Extract its text, or save its table as CSV."
    elif (root := _ROOT.match(text)) and (
        text.lstrip()[:5] == "<?xml" or _count(_TAGGED_LINE.match, head) * 2 > len(head.full_lines)
    ):
        what = f"markup (XML or SGML, with the root element <{root[1]}>), which no reader of this "
        yield 0.97, f"{what}name reads. Extract its texts to CSV, JSON or plain text."
    if _is_yaml(head):
        yield 0.85, "YAML, which no reader of its kind reads. Write its rows as JSON or CSV."
    if _count(_CODE_LINE.match, head) > 3 and head.has_ending(".py", ".sql", ".c", ".h", ".cpp"):
        yield 0.85, "source code. Give a file of data; export a table of a database as CSV."


def _count(fits: Callable[[str], Any], head: Head) -> int:
    """Returns the number of lines that fit."""
    return sum(bool(fits(line)) for line in head.full_lines)


def _is_yaml(head: Head) -> bool:
    """Returns whether all lines may be YAML's, with keys, and lists or blocks below them."""
    lines = head.full_lines
    is_named = head.has_ending(".yml", ".yaml")
    if not lines or not (is_named or lines[0].startswith(("---", "version"))):
        return False
    keys = _count(_YAML_KEY.fullmatch, head)
    nested = sum(line.startswith((" ", "- ")) for line in lines)
    good = _count(_YAML_LINE.fullmatch, head)
    return bool(keys) and nested * 2 > len(lines) and good >= SURE * len(lines)
