"""Delimited tables, CSV and TSV: recognition, rows following RFC 4180, headers of tables."""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.head import MAX_HEAD_LINES, SURE, Head, Match
from t2t_torch.readers.text_file import (
    CONVERT_RETURNS,
    BadRecords,
    Numbered,
    Place,
    Record,
    TextFile,
    column_of_field,
    duplicates,
    without_end,
)
from t2t_torch.registry import register_reader

_FOR_SPREADSHEETS = re.compile(r"sep=.")
_ESCAPED_QUOTE = re.compile(r'(?<![\\",;\t])\\"')
_FEWEST_ROWS = 3  # of a table that no extension names


def _match_csv(head: Head) -> Match | None:
    """Recognizes rows with commas, semicolons, bars or " ||| " between fields."""
    is_bitext = sum(BITEXT in line for line in head.full_lines) >= SURE * len(head.full_lines)
    return _best_match(head, (BITEXT, ",", ";") if is_bitext else (BITEXT, ",", ";", "|"), ".csv")


def _match_tsv(head: Head) -> Match | None:
    """Recognizes rows with tabs between fields."""
    return _best_match(head, ("\t",), ".tsv", ".tab")


def _best_match(head: Head, marks: Sequence[str], *endings: str) -> Match | None:
    lines, is_named = head.full_lines, head.has_ending(*endings)
    is_column = is_named and bool(lines)  # CSV of one column has no commas
    there = [m for m in marks if any(m in line for line in lines) or (is_column and m == ",")]
    found = [one for mark in there if (one := _match(head, mark, is_named=is_named))]
    return max(found, key=lambda one: one[0])[1] if found else None


def _match(head: Head, mark: str, *, is_named: bool) -> tuple[tuple[int, float, int], Match] | None:
    """Returns how well a delimiter fits, to be compared with others, and the match."""
    lines = head.full_lines
    if is_named and mark in (",", "\t"):
        if _FOR_SPREADSHEETS.fullmatch(lines[0]):
            why = f"{head.path}: its first line, {lines[0]}, is for spreadsheets. Delete it:"
            return (9, 0.0, 0), Match(0.95, refusal=f"{why}  tail -n +2")
        if skipped := _lines_before(head):
            why = (
                f"{head.path}: its first lines ({lines[0][:60]!r}) are no rows of the table below. "
                f"Delete them:  tail -n +{skipped + 1}"
            )
            return (9, 0.0, 0), Match(0.9, refusal=why)
    options, doubts = _quotes(head, mark)
    rows, bad = first_rows(head, mark, options)
    width = len(rows[0]) if rows else 0
    agreement = len(rows) / (len(rows) + bad) if rows else 0.0
    if not is_named and (agreement < SURE or len(rows) < _FEWEST_ROWS or width < 2):
        return None
    if mark not in (",", "\t"):
        options["delimiter"] = mark
    rank = (int(width > 1), agreement, width)
    if len(rows) <= 1 and not bad:
        if not is_named or width < 1:
            return None
        why = (
            f"{head.path} has no row but the first, which is taken for the names of its columns "
            f"({', '.join(rows[0])})."
        )
        return rank, Match(0.6, refusal=why)
    if not rows[1:]:
        return rank, Match(0.3, options)
    header = find_header(rows)
    if header.twice:
        why = (
            f"{head.path}: the first row names {header.twice!r} twice ({', '.join(rows[0])}). Give "
            "each column a name of its own; if the row is data, write the declaration by hand, "
            'with "options": {"header": false}.'
        )
        return rank, Match(0.6, refusal=why)
    if not header.is_header:
        options["header"] = False
    doubts += header.doubts
    if number := _decimal_comma(rows):
        options["decimal"] = ","
        doubts.append(f'numbers such as {number!r} are read with a decimal comma ("decimal").')
    confidence = 0.9 if agreement >= SURE else 0.6 if agreement >= 0.5 else 0.3
    if not is_named and mark not in ("\t", BITEXT):
        if not _is_table(head, mark, rows, header.evidence):
            return None
        confidence = 0.6
    return rank, Match(confidence if width > 1 else 0.3, options, doubts)


def _lines_before(head: Head) -> int:
    """Returns the number of lines before a table, such as a title; 0 if it is the first row."""
    starts: list[int] = []
    if any(mark in head.full_lines[0] for mark in ",;\t|"):
        return 0
    for mark in ",;\t|":
        rows = list(csv.reader(head.lines, delimiter=mark))
        widths = Counter(map(len, filter(None, rows)))
        usual, count = max(widths.items(), key=lambda one: one[1], default=(0, 0))
        if usual > 1 and count >= max(_FEWEST_ROWS, SURE * widths.total()):
            starts.append(next(n for n, row in enumerate(rows) if len(row) == usual))
    return min(starts, default=0)


def _is_table(head: Head, mark: str, rows: Sequence[Sequence[str]], evidence: float) -> bool:
    """Returns whether a mark of texts delimits fields in a file that no extension names."""
    spaced = sum(line.count(f"{mark} ") for line in head.full_lines)
    quoted = sum(line.count(f'{mark}"') + line.startswith('"') for line in head.full_lines)
    if spaced * 2 > sum(line.count(mark) for line in head.full_lines) and quoted < len(rows):
        return False  # a mark of punctuation
    few = any(2 * len({row[n] for row in rows}) <= len(rows) for n in range(len(rows[0])))
    return evidence > 1 or quoted >= len(rows) or few


def _quotes(head: Head, mark: str) -> tuple[dict[str, Any], list[str]]:
    """Returns the options of quotes and escapes, and warnings."""
    usual = mark != "\t"
    if mark == BITEXT or not any('"' in line for line in head.full_lines):
        return {}, []
    if any(_ESCAPED_QUOTE.search(line) for line in head.full_lines):
        escaped = {"quoting": True, "escape": "\\"}
        plain, bad = first_rows(head, mark, {"quoting": True})
        rows, others = first_rows(head, mark, escaped)
        if (len(rows), -others) > (len(plain), -bad):
            options = escaped if not usual else {"escape": "\\"}
            return options, [r'quotes in fields are marked by a backslash ("escape"): \" .']
    quoting = _encloses(head.lines, mark)
    if quoting is usual:
        return {}, []
    if quoting:
        return {"quoting": True}, []
    doubt = "quotes are read as ordinary characters, because some are not closed."
    return {"quoting": False}, [doubt]


def _encloses(lines: Sequence[str], delimiter: str) -> bool:
    """Returns whether quotes enclose fields: nearly all opened ones are closed, on any line."""
    text = "\n".join(lines)
    mark = re.escape(delimiter)
    begins = re.compile(f'(?:^|(?<={mark}))"', re.MULTILINE)
    whole = re.compile(f'"[^"]*(?:""[^"]*)*"(?={mark}|\\s*$)', re.MULTILINE)
    opened = closed = position = 0
    while start := begins.search(text, position):
        field = whole.match(text, start.start())
        position = field.end() if field else start.end()
        if field is None and len(lines) == MAX_HEAD_LINES and text.find('"', position) < 0:
            break  # it may be closed below the inspected lines
        opened += 1
        closed += field is not None
    if not opened:
        return delimiter != "\t"
    return closed >= SURE * opened or (delimiter != "\t" and closed * 2 >= opened)


def first_rows(head: Head, mark: str, options: Mapping[str, Any]) -> tuple[list[list[str]], int]:
    """Returns the first rows, without a header, and the number of bad ones."""
    bad, options = BadRecords("skip"), {"quoting": mark != "\t", **options}
    records = read_csv(
        head.path, bad, delimiter=mark, header=False, encoding=head.encoding, **options
    )
    taken = [list(one.values.values()) for one in itertools.islice(records, MAX_HEAD_LINES)]
    return taken, bad.count


def _decimal_comma(rows: Sequence[Sequence[str]]) -> str:
    """Returns a number with a decimal comma if a column has such numbers; otherwise "".

    Sorted numbers, such as "3,12" and "5,17", are rather lists of ids; and the digits after decimal
    commas are nearly always of one number.
    """
    for place in range(len(rows[0])):
        held = [row[place].strip() for row in rows[1:] if row[place].strip()]
        commas = [value for value in held if "," in value]
        if len(commas) * 2 <= len(held) or not all(map(COMMA_NUMBER.fullmatch, held)):
            continue
        digits = [len(value.rpartition(",")[2]) for value in commas]
        usual = max(set(digits), key=digits.count)
        pairs = [value.replace(".", "").split(",") for value in commas]
        is_sorted = all(int(first) < int(second) for first, second in pairs)
        if usual != 3 and digits.count(usual) >= SURE * len(digits) and not is_sorted:
            return commas[0]
    return ""


MAX_LINES = 10_000
"""Maximum number of lines of a quoted field; a longer one is treated as an error."""

UNNAMED = "Unnamed: "
"""Prefix of the name of a column that the header does not name."""

_LINE_ENDS = ("", "\n", "\r\n")


COMMA_NUMBER = re.compile(r"\s*[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?\s*")
"""A number with a decimal comma, perhaps with points between thousands."""


BITEXT = " ||| "
"""Delimiter of aligned texts; the only one of several characters."""

_ESCAPED = re.compile(r"\\(?:([\"\\nt])|(\r?\n)$)")
_UNESCAPED = {'"': '""', "\\": "\\", "n": "\n", "t": "\t"}


class EscapedFile(TextFile):
    r"""The lines of a file in which a backslash marks quotes, instead of a second quote.

    The escapes `\"`, `\\`, `\n`, `\t` and a backslash at the end of a line are resolved.
    """

    def __next__(self) -> Numbered:
        if self._back:
            return self._back.popleft()
        number, line = super().__next__()
        return number, line and _ESCAPED.sub(lambda m: _UNESCAPED.get(m[1], m[2]), line)


@dataclass
class DelimitedRows:
    """The rows of a file, read in one pass.

    Attributes:
      path: the file, for messages.
      bad: policy for bad rows.
      delimiter: delimiter of fields.
      lines: the lines of the file.
      quoting: interpret quotes.
      names: names of the columns; empty until the first row.
    """

    path: Path
    bad: BadRecords
    delimiter: str
    lines: TextFile
    quoting: bool
    names: tuple[str, ...] = ()

    def records(
        self, columns: Sequence[str], *, header: bool, blank_rows: bool = False
    ) -> Iterator[Record]:
        """Yields the rows."""
        path, rows = self.path, self._rows()
        if columns:
            self.names = self._checked(columns, UsageError)
        elif header:
            self.names = self._header(rows)
        names, width = self.names, len(self.names)
        repeated = list(names) if header and not columns and width > 1 else None
        for number, line, fields in rows:
            if fields is None or not (line or (blank_rows and width == 1)):
                continue
            if not width:
                names = self.names = tuple(map(str, range(len(fields))))
                width = len(names)
            if len(fields) != width:
                exact = not self.quoting or '"' not in line
                column = column_of_field(fields, width, self.delimiter) if exact else None
                self.bad.report(Place(path, number, column), self._wrong_width(len(fields)))
            elif fields == repeated:
                self.bad.report(Place(path, number), "this row repeats the header")
            else:
                yield Record(Place(path, number), dict(zip(names, fields, strict=True)))

    def _rows(self) -> Iterator[tuple[int, str, list[str] | None]]:
        """Yields numbers, lines without ends, and fields; None for a bad row, which is reported."""
        for number, line in self.lines:
            if line is None:
                yield number, "", None
            elif self.quoting and '"' in line:
                yield number, line, self._quoted(number, line)
            else:
                line = without_end(line)
                yield number, line, line.split(self.delimiter)

    def _header(self, rows: Iterator[tuple[int, str, list[str] | None]]) -> tuple[str, ...]:
        for _, line, fields in rows:
            if fields is None:
                raise DataError(f"The header is bad: {self.bad.listed[-1]}")
            if line:
                return self._checked(fields, DataError)
        raise DataError(
            f"{self.path} is empty; a first row that names the columns was expected. If there is "
            "none, give the option columns with their names."
        )

    def _checked(
        self, names: Sequence[str], error: type[DataError] | type[UsageError]
    ) -> tuple[str, ...]:
        if error is DataError and any("\r" in name for name in names):
            raise DataError(f"{self.path}: the header holds carriage returns; {CONVERT_RETURNS}")
        if error is DataError and any(names):
            names, known = list(names), set(names)
            for place, name in enumerate(names):
                made = name or f"{UNNAMED}{place}"
                while not name and made in known:  # the index of pandas, saved again
                    made += ".1"
                names[place] = made
        twice = duplicates(filter(None, names))
        unnamed = [str(i) for i, name in enumerate(names, 1) if not name]
        if twice or unnamed:
            faults = [f"name {', '.join(map(repr, twice))} more than once"] if twice else []
            faults += [f"have no name for column {', '.join(unnamed)}"] if unnamed else []
            raise error(
                f"{self.path}: the columns {' and '.join(faults)}. Each needs a name of its own: "
                "fix the first row, or give the option columns with the names if it is data."
            )
        return tuple(names)

    def _wrong_width(self, count: int, sign: str = "") -> str:
        names = ", ".join(self.names[:10]) + (", ..." if len(self.names) > 10 else "")
        fields = "field" if count == 1 else "fields"
        return f"{count}{sign} {fields}, where {len(self.names)} were expected ({names})"

    def _quoted(self, first: int, line: str) -> list[str] | None:
        """Returns the fields of a row with quotes; None if it is bad, which is reported."""
        taken: list[Numbered] = []
        fields: list[str] = []
        position, opened, fault = 0, 0, ""
        delimiter, width = self.delimiter, len(self.names)
        while not fault:
            opened = opened if taken else position
            if width and len(fields) == width:
                fault = self._wrong_width(width + 1, " or more")
            elif not line.startswith('"', position):
                end = line.find(delimiter, position)
                if end < 0:
                    return [*fields, without_end(line[position:])]
                fields.append(line[position:end])
                position = end + 1
            else:
                field, line, position, fault = self._quoted_field(line, position + 1, taken)
                if fault:
                    break
                fields.append(field)
                if line.startswith(delimiter, position):
                    position += 1
                elif line[position:] in _LINE_ENDS:
                    return fields
                else:
                    opened = opened if taken else position
                    fault = "text after the closing quote, where a delimiter was expected"
        if taken:
            fault = f"the quote that opens here has no fitting end ({fault})"
        self.lines.push_back(taken)
        self.bad.report(Place(self.path, first, opened + 1), fault)
        return None

    def _quoted_field(
        self, line: str, position: int, taken: list[Numbered]
    ) -> tuple[str, str, int, str]:
        """Reads a quoted field: returns the field, its last line, the next position, an error."""
        parts: list[str] = []
        while True:
            if (quote := line.find('"', position)) >= 0:
                if line.startswith('"', quote + 1):
                    parts.append(line[position : quote + 1])
                    position = quote + 2
                    continue
                parts.append(line[position:quote])
                return "".join(parts), line, quote + 1, ""
            parts.append(line[position:])
            following = next(self.lines, None)
            if following is None:
                return "", line, 0, "the file ends" if taken else "the quote is never closed"
            taken.append(following)
            if following[1] is None:
                return "", line, 0, f"line {following[0]} is bad"
            if len(taken) >= MAX_LINES:
                return "", line, 0, f"{MAX_LINES:,} lines without one"
            line, position = following[1], 0


@register_reader("csv", endings=(".csv",), matches=_match_csv)
def read_csv(
    path: Path,
    bad: BadRecords,
    *,
    delimiter: str = ",",
    quoting: bool = True,
    escape: str = "",
    header: bool = True,
    columns: Sequence[str] = (),
    decimal: str = ".",
    encoding: str = "",
    blank_rows: bool = False,
) -> Iterator[Record]:
    r"""Yields the rows of a CSV file, following RFC 4180; the values are strings.

    A line ends with "\n" or "\r\n" (never with "\r" alone) and blank lines are skipped.  A field
    that begins with a quote ends with the next single quote, and may contain the delimiter, line
    breaks, which are kept unchanged, and quotes, each written twice.  A quote elsewhere is an
    ordinary character, and so are spaces next to the delimiter.

    A column that the header does not name, like the index of a data frame, has the name "Unnamed: "
    and its number from 0, as in pandas.  A row that repeats the header is bad.

    A row whose number of fields differs from the header is bad, and so is one with text after the
    closing quote.  If such a row spans several lines, or its quote is still open after `MAX_LINES`,
    too many fields or at the end of the file, that quote is treated as an error: it is reported
    where it opened, and the next line is read as a new row.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad rows.
      delimiter: one character, or " ||| " (without quotes).
      quoting: interpret quotes.
      escape: "\\" if a backslash marks quotes in quoted fields, as MySQL writes them; `\\n` and
        `\\t` are then resolved, too.
      header: the first row names the columns; otherwise their names are "0", "1", ...
      columns: names of the columns; the first row is then data.
      decimal: decimal mark of numbers; with ",", a field "1.234,5" becomes "1234.5".
      encoding: the file's, empty for UTF-8.
      blank_rows: read a blank line of a table of one column as an empty field.

    Raises:
      DataError: the file cannot be read, or the header is missing, bad, or has duplicate names.
      UsageError: an option is invalid.
    """
    if delimiter == BITEXT:
        quoting = False
    elif len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(
            f"{delimiter!r} cannot delimit fields; one character, no quote and no line end, can."
        )
    if decimal not in (".", ","):
        raise UsageError(f"{decimal!r} is no decimal mark; '.' and ',' are.")
    if escape not in ("", "\\"):
        raise UsageError(f"{escape!r} cannot escape quotes; a backslash can.")
    lines = (EscapedFile if escape else TextFile)(path, bad, encoding)
    made = DelimitedRows(path, bad, delimiter, lines, quoting=quoting)
    rows = made.records(columns, header=header, blank_rows=blank_rows)
    return map(_with_points, rows) if decimal == "," else rows


_read_tabs = functools.partial(read_csv, delimiter="\t", quoting=False)


@register_reader("tsv", endings=(".tsv", ".tab"), matches=_match_tsv)
@functools.wraps(_read_tabs, assigned=(), updated=())  # its options
def read_tsv(path: Path, bad: BadRecords, **options: Any) -> Iterator[Record]:
    """Yields the rows of a tab-separated file, as `read_csv` does.

    Quotes are ordinary characters unless `quoting` is set: a field cannot contain a tab.
    """
    return _read_tabs(path, bad, **options)


def _with_points(record: Record) -> Record:
    """Returns a row whose numbers have a decimal point."""
    values = {
        name: value.replace(".", "").replace(",", ".") if COMMA_NUMBER.fullmatch(value) else value
        for name, value in record.values.items()
    }
    return Record(record.place, values)


USUAL_NAMES = frozenset(
    "answer body category class content context description document domain id intent judgment "
    "label language line message name query question rating review score sentence sentiment source "
    "split subject summary tag target text title tokens topic translation tree type utterance "
    "words".split()
)
"""Frequent names of columns, a small bonus."""

_NUMBER = re.compile(r"[^\w\s(\[]{0,2}\d+(?:[.,' ]\d+)*(?:e[+-]?\d+)?\s?%?", re.IGNORECASE)
_SHAPES = (
    ("a number", _NUMBER),
    ("a date or time", re.compile(r"\D{0,8}\d{1,4}[-/.:]\d{1,2}[-/.:]\d{1,4}\b.*")),
    ("a list or tree", re.compile(r"[\[({].*[\])}]", re.DOTALL)),
    ("a path or address", re.compile(r"\S*[/\\@]\S+|\S+\.\w{2,4}")),
    ("a code", re.compile(r"(?=\S*\d)\S+")),
    ("a sentence", re.compile(r".*\s.*[.!?…。।]\W*", re.DOTALL)),
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:[._:-]\w+)*")
_CLEAR = 1.5  # evidence from which a header is not doubted
_FEW = 5  # rows from which repetition is evidence


class Header(NamedTuple):
    """The inferred header.

    Attributes:
      is_header: True if the first row names the columns.
      evidence: sum of the evidence for it, negative against it.
      doubts: the strongest evidence against it, or a warning if the evidence for it is weak, as
        sentences.
      repeated: number of later rows that repeat it.
      twice: a name of two columns, which makes the header invalid; "" if there is none.
    """

    is_header: bool
    evidence: float
    doubts: Sequence[str]
    repeated: int = 0
    twice: str = ""


_SENTENCE = re.compile(r"\S+\s.*[.!?…。？！]\W*", re.DOTALL)


def find_header(rows: Sequence[Sequence[str]]) -> Header:
    """Returns whether the first row names the columns.

    A name does not look like the values below it: it is no number above numbers, does not occur
    among values that repeat, and is shorter than texts.

    Args:
      rows: the first rows, all cells as strings.
    """
    first = [cell.strip() for cell in rows[0]]
    below = [row for row in rows[1:] if [cell.strip() for cell in row] != first]
    repeated = len(rows) - 1 - len(below)
    found = [
        _of_column(cell, [row[n].strip() for row in below if len(row) == len(first)])
        for n, cell in enumerate(first)
    ]
    evidence = sum(one for one, _ in found)
    twice = next(iter(duplicates(filter(None, first))), "")
    if twice and evidence < _CLEAR:
        found.append((-2.0, f"two of its fields are {twice!r}"))
        evidence -= 2.0
    least, why = min(found)
    is_header = evidence > 0 and any(first)
    doubts = []
    if not is_header:
        why = why if least < 0 else "nothing in it differs from the rows below"
        doubts.append(f"the first row is read as data, not as column names: {why}.")
    elif evidence < _CLEAR:
        doubts.append(
            f"the first row is read as the column names ({', '.join(first)}); if it is data, write "
            '"options": {"header": false}.'
        )
    if repeated and is_header and len(first) > 1:
        doubts.append(f"the header is repeated in {repeated} rows, which are bad and left out.")
    return Header(is_header, evidence, doubts, repeated, twice if is_header else "")


def _of_column(cell: str, values: Sequence[str]) -> tuple[float, str]:
    """Returns the evidence that a cell names the column of some values, and a reason against it."""
    held = [value for value in values if value]
    if not cell:
        return 0.0, ""
    shown = repr(cell[:40])
    bonus = 0.0
    if not USUAL_NAMES.isdisjoint(re.split(r"[\W_\d]+", cell.lower())):
        bonus += 0.5
    if _IDENTIFIER.fullmatch(cell):
        bonus += 0.25
    if not held:
        return (bonus or -0.25), f"{shown} is no name"
    counts = Counter(held)
    if cell in counts:
        return -3.0, f"{shown} is in other rows of the column too"
    for shape, pattern in _SHAPES:
        fitting = sum(n for value, n in counts.items() if pattern.fullmatch(value))
        if fitting >= SURE * len(held):
            if not pattern.fullmatch(cell):
                return 2.0 + bonus, ""
            asked = cell.endswith("?") and sum("?" in value for value in held) * 2 < len(held)
            if asked:  # a question of a survey above its answers
                return 1.0, ""
            return (-0.5 if bonus else -1.5), f"{shown} is {shape} as those below"
    if len(held) >= _FEW and len(counts) * 3 <= len(held):
        return 1.5 + bonus, ""
    if _SENTENCE.fullmatch(cell) and sum(map(bool, map(_SENTENCE.fullmatch, held))) * 2 > len(held):
        return -1.5, f"{shown} is a sentence as those below"
    if _NUMBER.fullmatch(cell):
        return -1.0, f"{shown} is no name"
    lengths = sorted(len(value) for value in held)
    words = sorted(len(value.split()) for value in held)
    if len(cell.split()) < words[len(words) // 20] or len(cell) * 2 < lengths[len(lengths) // 20]:
        return 0.75 + bonus, ""
    if len(cell) >= lengths[len(lengths) // 4]:
        return bonus - 0.75, f"{shown} is as long as the values below"
    return bonus - 0.25, f"{shown} may be a value as those below"
