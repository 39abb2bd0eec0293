"""Readers of labelled words: CoNLL, CoNLL-U, folders of seq.in and seq.out, `The/DT dog/NN`."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.errors import UsageError
from t2t_torch.files import without_packing
from t2t_torch.readers.head import SURE, Head, Match
from t2t_torch.readers.text_file import (
    BadRecords,
    Place,
    Record,
    TextFile,
    aligned,
    blocks_of,
    column_of_field,
    split_at_blanks,
)
from t2t_torch.registry import register_reader
from t2t_torch.text.tags import SCHEME_TAG

DOCUMENT_START = "-DOCSTART-"
"""First word of a line that starts a document in CoNLL-2003."""

_SEPARATOR = "-"

Line = tuple[int, str]
"""A line number and the line."""


_COMMENT = re.compile(r"#[ \t]")
_MAX_TAGS = 200


def _match_conll(head: Head) -> Match | None:
    """Recognizes words with tags, one on each line, between blank lines."""
    least = Match(0.3) if head.has_ending(".conll", ".bio", ".iob") else None
    options: dict[str, Any] = {}
    blocks = [[line for _, line in block] for block in blocks_of(enumerate(head.lines))]
    starts = any(line.startswith(DOCUMENT_START) for line in head.full_lines)
    if starts or sum(len(b) == 1 and b[0].split()[:1] == [_SEPARATOR] for b in blocks) > 1:
        options["skip_docstart"] = True  # of CoNLL-2003, of CoNLL-2002
        numbered = itertools.chain.from_iterable(_between_marks(list(enumerate(b))) for b in blocks)
        blocks = [[line for _, line in block] for block in numbered]
    doubts = []
    heading = [itertools.takewhile(_COMMENT.match, block) for block in blocks]
    comments = [line for lines in heading for line in lines]
    words = [line for block in blocks for line in block]
    delimiter, width = _columns(words)
    odd = any(len(_fields(line, delimiter)) != width for line in comments)
    if odd or len(comments) * 2 > len(blocks):  # no word begins so many sentences
        options["comments"] = True
        doubts = [f"lines such as {comments[0][:60]!r} are left out as comments."]
        blocks = [list(itertools.dropwhile(_COMMENT.match, block)) for block in blocks]
        words = [line for block in blocks for line in block]
        delimiter, width = _columns(words)
    rows = [_fields(line, delimiter) for line in words]
    rows = [row for row in rows if len(row) == width]
    if len(blocks) < 2 or width < 2 or len(rows) < SURE * len(words):
        return least
    if delimiter:
        options["delimiter"] = delimiter
    columns = [Counter(row[n] for row in rows) for n in range(width)]
    few = [one for one in columns if len(one) <= min(_MAX_TAGS, len(rows) / 2)]
    if any(len(one) > 1 and all(map(SCHEME_TAG.fullmatch, one)) for one in columns):
        return Match(1.0, options, doubts)
    return Match(0.96 if few and not delimiter else 0.6 if few else 0.3, options, doubts)


def _columns(lines: Sequence[str]) -> tuple[str, int]:
    """Returns the delimiter of the columns, "" for blanks, and their usual number."""
    best: tuple[int, str, int] = (0, "", 0)
    for delimiter in ("", "\t"):
        widths = Counter(len(_fields(line, delimiter)) for line in lines)
        width, count = max(widths.items(), key=lambda one: one[1], default=(0, 0))
        if count > best[0]:
            best = count, delimiter, width
    return best[1:]


def _fields(line: str, delimiter: str) -> list[str]:
    return line.split(delimiter) if delimiter else split_at_blanks(line)


@register_reader("conll", endings=(".conll", ".bio", ".iob"), matches=_match_conll)
def read_conll(
    path: Path,
    bad: BadRecords,
    *,
    columns: Sequence[str] = (),
    delimiter: str = "",
    skip_docstart: bool = False,
    comments: bool = False,
    encoding: str = "",
) -> Iterator[Record]:
    """Yields sentences as one list of strings per column.

    A line of only spaces and tabs is blank, and blank lines separate sentences.  A sentence with a
    bad line is skipped as a whole; a line is bad if its number of columns differs from the names,
    or from the file's first line if there are no names.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad sentences.
      columns: names of the columns; by default "0", "1", ...
      delimiter: one character between columns, such as a tab if words contain spaces; "" means any
        spaces and tabs.
      skip_docstart: skip lines that begin with `DOCUMENT_START`, and sentences of a single "-",
        which separate texts in CoNLL-2002.
      comments: skip the lines before the first word of a sentence that begin with "# ".
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
      UsageError: an option is invalid.
    """
    if len(delimiter) > 1 or delimiter in ("\n", "\r"):
        raise UsageError(f"{delimiter!r} cannot delimit columns; one character can.")
    if len(set(columns)) != len(columns) or "" in columns:
        raise UsageError(f"The columns {', '.join(columns)} need a name each, none of them twice.")
    sentences = blocks_of(TextFile(path, bad, encoding))
    if skip_docstart:
        sentences = itertools.chain.from_iterable(map(_between_marks, sentences))
    if comments:
        sentences = (
            list(itertools.dropwhile(lambda one: _COMMENT.match(one[1]), block))
            for block in sentences
        )
    return _sentences(path, filter(None, sentences), bad, tuple(columns), delimiter)


def _between_marks(block: list[Line]) -> Iterator[list[Line]]:
    """Yields the lines of a sentence between those that separate documents."""
    for starts, lines in itertools.groupby(block, lambda one: one[1].startswith(DOCUMENT_START)):
        kept = list(lines)
        is_mark = len(kept) == 1 and split_at_blanks(kept[0][1])[0] == _SEPARATOR
        if not (starts or is_mark):
            yield kept


def _sentences(
    path: Path,
    sentences: Iterator[list[Line]],
    bad: BadRecords,
    names: tuple[str, ...],
    delimiter: str,
) -> Iterator[Record]:
    for block in sentences:
        rows = [(number, _fields(line, delimiter)) for number, line in block]
        names = names or tuple(map(str, range(len(rows[0][1]))))
        width = len(names)
        uneven = next((row for row in rows if len(row[1]) != width), None)
        if uneven is None:
            columns = map(list, zip(*(fields for _, fields in rows), strict=True))
            yield Record(Place(path, rows[0][0]), dict(zip(names, columns, strict=True)))
            continue
        number, fields = uneven
        why = f"{len(fields)} columns, where {width} were expected ({', '.join(names)})"
        bad.report(Place(path, number, column_of_field(fields, width, delimiter or " ")), why)


COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The ten columns of a word's line."""

NO_BREAK_SPACE = "\u00a0"
"""Replacement for a space in a word."""

_RANGE_OR_EMPTY = re.compile(r"[0-9]+[-.][0-9]+")


def _match_conllu(head: Head) -> Match | None:
    words = [line for line in head.full_lines if not line.startswith("#")]
    rows = [line.split("\t") for line in words]
    good = sum(
        len(row) == len(COLUMNS)
        and row[0][:1].isdecimal()
        and (row[6] + "0").strip("_").isdecimal()
        for row in rows
    )
    if good and good >= SURE * len(rows):
        return Match(1.0)
    return Match(0.3) if head.has_ending(".conllu") else None


@register_reader("conllu", endings=(".conllu",), matches=_match_conllu)
def read_conllu(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields sentences as one list of strings per entry of `COLUMNS`.

    Comments, multiword token ranges (3-4) and empty nodes (8.1) are skipped.  A space in a form or
    a lemma, as in "10 000", becomes a no-break space (U+00A0), since words are split at spaces
    elsewhere.  A sentence is bad and skipped as a whole if a line does not have ten tab-separated
    columns, a column is empty, or the words are not numbered from 1, which indicates a missing
    blank line or word.

    Universal Dependencies, universaldependencies.org/format.html.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad sentences.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
    """
    for block in blocks_of(TextFile(path, bad, encoding)):
        words: dict[int, list[str]] = {}  # by number of the line
        for number, line in block:
            fields = line.split("\t")
            if line.startswith("#"):
                continue
            if fault := _fault(fields, len(words) + 1):
                bad.report(Place(path, number, fault[0]), fault[1])
                break
            if fields[0].isdecimal():
                words[number] = fields
        else:
            if words:
                columns = map(list, zip(*words.values(), strict=True))
                values = dict(zip(COLUMNS, columns, strict=True))
                for name in ("form", "lemma"):
                    values[name] = [word.replace(" ", NO_BREAK_SPACE) for word in values[name]]
                yield Record(Place(path, min(words)), values)


def _fault(fields: list[str], expected: int) -> tuple[int, str] | None:
    """Returns the column and the error of a word's line, if any."""
    if len(fields) != len(COLUMNS):
        column = column_of_field(fields, len(COLUMNS), "\t")
        return column, f"{len(fields)} columns with tabs between, where 10 were expected"
    if "" in fields:
        empty = fields.index("")
        column = column_of_field(fields, empty, "\t")
        return column, f"nothing in the column {COLUMNS[empty]}, where at least _ was expected"
    if fields[0] != str(expected) and not _RANGE_OR_EMPTY.fullmatch(fields[0]):
        return 1, f"word {fields[0]!r}, where word {expected} was expected; is a line missing?"
    return None


FILES = {"words": "seq.in", "tags": "seq.out", "label": "label"}
"""File names in a folder; those of Goo et al. 2018, github.com/MiuLab/SlotGated-SLU."""


_WITHOUT_INTENT = ("words", "tags")


def _match_bio(head: Head) -> Match | None:
    entries = {without_packing(name): name for name in head.names}
    if not {FILES[role] for role in _WITHOUT_INTENT} <= entries.keys():
        return None
    encoding, doubts = Head(head.path / entries[FILES["words"]]).inferred_encoding
    options: dict[str, Any] = {"encoding": encoding} if encoding else {}
    if FILES["label"] not in entries:
        options["files"] = {role: entries[FILES[role]] for role in _WITHOUT_INTENT}
    return Match(1.0, options, doubts)


@register_reader("bio", matches=_match_bio)
def read_bio(
    path: Path, bad: BadRecords, *, files: Mapping[str, str] = {}, encoding: str = ""
) -> Iterator[Record]:
    """Yields {"words": list, "tags": list, "label": str} for each line of the files.

    Words and tags are separated by spaces or tabs; other whitespace is part of them.  A line is bad
    if the numbers of words and tags differ, or there is no word or label.  Places refer to the file
    of words; the column is the start of the first word without a tag, or of the first surplus tag.

    Args:
      path: a folder with the `FILES`, gzip-compressed (with ".gz" after their names) or not.
      bad: policy for bad lines.
      files: by the names in `FILES`, other paths, relative to the folder; "label" may be omitted,
        and records then have none.
      encoding: the files', empty for UTF-8.

    Raises:
      DataError: a file cannot be read, or the numbers of lines differ.
      UsageError: `files` has other names.
    """
    if files and not {"words", "tags"} <= files.keys() <= FILES.keys():
        raise UsageError(
            f"{path}: the option files is for {', '.join(FILES)}; it has {', '.join(files)}."
        )
    folder = path if path.is_dir() or not path.exists() else path.parent
    names = {role: (files or FILES)[role] for role in FILES if role in (files or FILES)}
    paths = {role: file_of(folder, name) or folder / name for role, name in names.items()}
    return _rows(paths, bad, encoding)


def file_of(folder: Path, name: str) -> Path | None:
    """Returns the file of a name in a folder, or the one with ".gz" behind it; None for none."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def _rows(paths: Mapping[str, Path], bad: BadRecords, encoding: str) -> Iterator[Record]:
    read = functools.partial(TextFile, encoding=encoding)
    for number, lines in aligned(list(paths.values()), bad, read):
        words, tags = split_at_blanks(lines[0]), split_at_blanks(lines[1])
        if not words and not tags:
            bad.report(Place(paths["words"], number), "no words")
        elif len(words) != len(tags):
            longer = "words" if len(words) > len(tags) else "tags"
            line = lines[0] if longer == "words" else lines[1]
            starts = [found.start() + 1 for found in re.finditer(r"[^ \t]+", line)]
            column = starts[min(len(words), len(tags))]
            why = f"{len(words)} words, but {len(tags)} tags in {paths['tags'].name}"
            bad.report(Place(paths[longer], number, column), why)
        elif not all(labels := [line.strip(" \t") for line in lines[2:]]):
            bad.report(Place(paths["label"], number), "no label")
        else:
            values = dict(zip(FILES, (words, tags, *labels), strict=False))
            yield Record(Place(paths["words"], number), values)


_TAGS = {
    "/": re.compile(r"[^\W\d]+\W?|\W+"),
    **dict.fromkeys("_|", re.compile(r"[A-Z]+(?:[+:-][A-Z]+)*\W?|\W+")),
}


def _match_tagged_words(head: Head) -> Match | None:
    """Recognizes lines of words with tags: few tags, and words that are mostly letters."""
    lines = [split_at_blanks(line) for line in head.full_lines if "\t" not in line]
    for mark, tag in _TAGS.items():
        pairs = [[word.rpartition(mark)[::2] for word in line] for line in lines]
        whole = [row for row in pairs if all(word and tag.fullmatch(kind) for word, kind in row)]
        words = Counter(word for row in whole for word, _ in row)
        tags = Counter(kind for row in whole for _, kind in row)
        few = 2 <= len(tags) <= min(_MAX_TAGS, words.total() / 3, len(words) / 2)
        letters = sum(one.isalpha() for word in words for one in word)
        are_words = letters * 2 > sum(map(len, words)) and words.total() > len(whole)
        if few and are_words and len(whole) >= SURE * len(head.full_lines):
            doubt = f"each word stands before {mark!r} and its tag, such as {next(iter(tags))!r}."
            return Match(0.95, {} if mark == "/" else {"mark": mark}, [doubt])
    return None


@register_reader("tagged_words", matches=_match_tagged_words)
def read_tagged_words(
    path: Path, bad: BadRecords, *, mark: str = "/", encoding: str = ""
) -> Iterator[Record]:
    """Yields {"words", "tags"} for each line of words with tags, as in the Brown corpus.

    Blank lines are skipped.  A line is bad if a word has no tag.

    Args:
      path: the file, compressed or not.
      bad: policy for bad lines.
      mark: what stands between a word and its tag; the last one in a word counts.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
    """
    for number, line in TextFile(path, bad, encoding):
        parts = [word.rpartition(mark) for word in split_at_blanks((line or "").strip())]
        untagged = [f"{word}{tag}" for word, _, tag in parts if not (word and tag)]
        if untagged:
            bad.report(Place(path, number), f"the word {untagged[0]!r} has no tag after {mark!r}")
        elif parts:
            words, _, tags = map(list, zip(*parts, strict=True))
            yield Record(Place(path, number), {"words": words, "tags": tags})
