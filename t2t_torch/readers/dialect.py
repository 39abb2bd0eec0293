"""Recognition of delimited tables: delimiter, quotes, escapes, header and decimal mark."""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_torch.readers.delimited_rows import BITEXT, COMMA_NUMBER, DelimitedRows, EscapedFile
from t2t_torch.readers.head import MAX_HEAD_LINES, SURE, Head, Match
from t2t_torch.readers.header import find_header
from t2t_torch.readers.text_file import CONVERT_RETURNS, BadRecords, TextFile

_FOR_SPREADSHEETS = re.compile(r"sep=.")
_ESCAPED_QUOTE = re.compile(r'(?<![\\",;\t])\\"')
_FEWEST_ROWS = 3  # of a table that no extension names


def match_csv(head: Head) -> Match | None:
    """Recognizes rows with commas, semicolons, bars or " ||| " between fields."""
    is_named = head.has_ending(".csv")
    best: tuple[tuple[int, float, int], Match] | None = None
    marks = (BITEXT, ",", ";", "|") if head.full_lines else ()
    for mark in marks:
        if mark == "|" and head.agreement(BITEXT) >= SURE:
            break
        if not any(mark in line for line in head.full_lines) and not (is_named and mark == ","):
            continue
        found = _match(head, mark, is_named=is_named)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    return best[1] if best else None


def match_tsv(head: Head) -> Match | None:
    """Recognizes rows with tabs between fields."""
    if not head.full_lines or not any("\t" in line for line in head.full_lines):
        return None
    found = _match(head, "\t", is_named=head.has_ending(".tsv", ".tab"))
    return found[1] if found else None


def _match(head: Head, mark: str, *, is_named: bool) -> tuple[tuple[int, float, int], Match] | None:
    """Returns how well a delimiter fits, to be compared with others, and the match."""
    lines = head.full_lines
    if is_named and mark in (",", "\t"):
        if "\r" in lines[0]:
            why = f"{head.path}: the header holds carriage returns; {CONVERT_RETURNS}"
            return (0, 0.0, 0), Match(0.3, refusal=why)
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
    rows, bad = _read(head, mark, options)
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
        doubts.append(header.reason)
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
        (plain, bad), (rows, others) = (
            _read(head, mark, {"quoting": True}),
            _read(head, mark, escaped),
        )
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


def _read(head: Head, mark: str, options: Mapping[str, Any]) -> tuple[list[list[str]], int]:
    """Returns the first rows, without a header, and the number of bad ones."""
    bad = BadRecords("skip")
    lines = (EscapedFile if options.get("escape") else TextFile)(head.path, bad, head.encoding)
    quoting = options.get("quoting", mark != "\t") and mark != BITEXT
    rows = DelimitedRows(head.path, bad, mark, lines, quoting=quoting)
    records = rows.records((), header=False)
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
