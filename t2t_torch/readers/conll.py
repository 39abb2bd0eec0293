"""Words with labels: CoNLL, CoNLL-U, and folders of seq.in, seq.out and label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t2t_torch.errors import UsageError
from t2t_torch.readers.text_file import (
    BadRecords,
    Place,
    Record,
    TextFile,
    aligned,
    column_of_piece,
    split_at_blanks,
    without_end,
)

DOCUMENT_START = "-DOCSTART-"
"""The word of a line that begins a document in CoNLL-2003."""

Row = tuple[int, list[str]]
"""The number of a line and its columns."""


def read_conll(
    path: Path,
    bad: BadRecords,
    *,
    columns: Sequence[str] = (),
    delimiter: str = "",
    skip_docstart: bool = False,
) -> Iterator[Record]:
    """Yields sentences as one list of strings for each column.

    A line of spaces and tabs alone is a blank one, and any number of them ends a sentence.  A
    sentence with a bad line is left out whole; bad is a line with another number of columns than
    the names, or than the file's first line if there are no names.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad sentences.
      columns: their names; "0", "1", ... if there are none.
      delimiter: one character between columns, such as a tab where words hold spaces; "" is any
        spaces and tabs.
      skip_docstart: whether lines that begin with `DOCUMENT_START` are left out.

    Raises:
      DataError: the file cannot be read.
      UsageError: an option makes no sense.
    """
    if len(delimiter) > 1 or delimiter in ("\n", "\r"):
        raise UsageError(f"{delimiter!r} cannot delimit columns; one character can.")
    if len(set(columns)) != len(columns) or "" in columns:
        raise UsageError(f"The columns {', '.join(columns)} need a name each, none of them twice.")
    return _sentences(path, bad, tuple(columns), delimiter, skip_docstart=skip_docstart)


def _sentences(
    path: Path, bad: BadRecords, names: tuple[str, ...], delimiter: str, *, skip_docstart: bool
) -> Iterator[Record]:
    for rows in _blocks(path, bad, delimiter, skip_docstart=skip_docstart):
        names = names or tuple(map(str, range(len(rows[0][1]))))
        width = len(names)
        uneven = next((row for row in rows if len(row[1]) != width), None)
        if uneven is None:
            number = rows[0][0]
            columns = map(list, zip(*(fields for _, fields in rows), strict=True))
            yield Record(Place(path, number), dict(zip(names, columns, strict=True)))
            continue
        number, fields = uneven
        why = f"{len(fields)} columns, where {width} were expected ({', '.join(names)})"
        between = delimiter or " "
        column = len(between.join(fields[:width])) + 1 + len(between) * (len(fields) > width)
        bad.report(Place(path, number, column), why)


def _blocks(
    path: Path, bad: BadRecords, delimiter: str, *, skip_docstart: bool
) -> Iterator[list[Row]]:
    """Yields the lines between blank ones; what holds a line that is no text is left out."""
    rows: list[Row] = []
    spoilt = False
    for number, line in TextFile(path, bad):
        if line is None:
            spoilt = True
        elif line.strip(" \t\r\n"):
            if not (skip_docstart and line.startswith(DOCUMENT_START)):
                text = without_end(line)
                rows.append((number, text.split(delimiter) if delimiter else split_at_blanks(text)))
        else:
            if rows and not spoilt:
                yield rows
            rows, spoilt = [], False
    if rows and not spoilt:
        yield rows


# Sentences of Universal Dependencies, universaldependencies.org/format.html.


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


# Utterances in three files: words, the tag of each, and the intent.


FILES = {"words": "seq.in", "tags": "seq.out", "label": "label"}
"""The names of the files in a folder; those of Goo et al. 2018, github.com/MiuLab/SlotGated-SLU."""


def read_bio(path: Path, bad: BadRecords, *, files: Mapping[str, str] = {}) -> Iterator[Record]:
    """Yields {"words": list, "tags": list, "label": str} of each line of the files.

    Words and tags stand between spaces or tabs; other whitespace is part of them.  Bad are lines
    with different numbers of words and tags, or with no word or label.  Places are those of the
    file of words; a column is where the first word without a tag, or the first tag without a word,
    begins.

    Args:
      path: a folder with the `FILES`, packed with gzip (and ".gz" after their names) or not.
      bad: what becomes of bad lines.
      files: by the names in `FILES`, other paths, from the folder; "label" may be left out, and
        then records have none.

    Raises:
      DataError: a file cannot be read, or they have different numbers of lines.
      UsageError: `files` has other names.
    """
    if files and not {"words", "tags"} <= files.keys() <= FILES.keys():
        raise UsageError(
            f"{path}: the option files is for {', '.join(FILES)}; it has {', '.join(files)}."
        )
    folder = path if path.is_dir() or not path.exists() else path.parent
    if files:
        paths = {role: folder / name for role, name in files.items()}
    else:
        paths = {role: _found(folder, name) for role, name in FILES.items()}
    roles = [role for role in FILES if role in paths]
    return _rows({role: paths[role] for role in roles}, bad)


def _found(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.exists() and not (folder / name).exists() else folder / name


def _rows(paths: Mapping[str, Path], bad: BadRecords) -> Iterator[Record]:
    for number, lines in aligned(list(paths.values()), bad):
        words, tags = split_at_blanks(lines[0]), split_at_blanks(lines[1])
        if not words and not tags:
            bad.report(Place(paths["words"], number), "no words")
        elif len(words) != len(tags):
            longer = "words" if len(words) > len(tags) else "tags"
            line = lines[0] if longer == "words" else lines[1]
            column = column_of_piece(line, min(len(words), len(tags)))
            why = f"{len(words)} words, but {len(tags)} tags in {paths['tags'].name}"
            bad.report(Place(paths[longer], number, column), why)
        elif len(lines) == 2:
            yield Record(Place(paths["words"], number), {"words": words, "tags": tags})
        elif label := lines[2].strip(" \t"):
            values = {"words": words, "tags": tags, "label": label}
            yield Record(Place(paths["words"], number), values)
        else:
            bad.report(Place(paths["label"], number), "no label")
