"""Sentences of Universal Dependencies, universaldependencies.org/format.html."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.text_file import TextFile, without_end

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The ten columns of a word's line."""

NO_BREAK_SPACE = "\u00a0"
"""What stands for a space in a word."""

_RANGE_OR_EMPTY = re.compile(r"[0-9]+[-.][0-9]+")


def read_conllu(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields sentences as one list of strings for each of the `COLUMNS`.

    Comments are left out, also the lines of ranges of words (3-4) and of empty nodes (8.1).  A
    space in a form or a lemma, as in "10 000", becomes a no-break space (U+00A0), since words are
    cut at spaces elsewhere.  A sentence is bad, and left out whole, if a line has not ten columns
    with tabs between, a column is empty, or the words are not numbered from 1: then a blank line is
    missing, or a word.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad sentences.

    Raises:
      DataError: the file cannot be read.
    """
    words: list[list[str]] = []
    start, spoilt = 0, False
    for number, line in TextFile(path, bad):
        if line is None:
            spoilt = True
        elif not line.strip(" \t\r\n"):
            if words and not spoilt:
                yield _record(path, start, words)
            words, spoilt = [], False
        elif not line.startswith("#") and not spoilt:
            fields = without_end(line).split("\t")
            if fault := _fault(fields, len(words) + 1):
                column, why = fault
                spoilt = True
                bad.report(Place(path, number, column), why)
            elif fields[0].isdecimal():
                start = start if words else number
                words.append(fields)
    if words and not spoilt:
        yield _record(path, start, words)


def _record(path: Path, start: int, words: list[list[str]]) -> Record:
    columns = map(list, zip(*words, strict=True))
    values = dict(zip(COLUMNS, columns, strict=True))
    for name in ("form", "lemma"):
        values[name] = [word.replace(" ", NO_BREAK_SPACE) for word in values[name]]
    return Record(Place(path, start), values)


def _fault(fields: list[str], expected: int) -> tuple[int, str] | None:
    """Returns the column and what is wrong with a word's line, if anything is."""
    if len(fields) != len(COLUMNS):
        kept = "\t".join(fields[: len(COLUMNS)])
        column = len(kept) + 1 + (len(fields) > len(COLUMNS))
        return column, f"{len(fields)} columns with tabs between, where 10 were expected"
    if "" in fields:
        empty = fields.index("")
        column = len("\t".join(fields[:empty])) + 1 + (empty > 0)
        return column, f"nothing in the column {COLUMNS[empty]}, where at least _ was expected"
    if fields[0] != str(expected) and not _RANGE_OR_EMPTY.fullmatch(fields[0]):
        return 1, f"word {fields[0]!r}, where word {expected} was expected; is a line missing?"
    return None
