"""Reader of tables with a word on each row, as Kaggle's NER data."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.errors import UsageError
from t2t_torch.readers.delimited import first_rows, read_csv
from t2t_torch.readers.head import SURE, Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader
from t2t_torch.text.tags import scheme_of

_DELIMITERS = (",", "\t", ";", "|")
_WORD_NAMES = frozenset("word words token tokens form".split())
_TAG_NAMES = frozenset("tag tags ner label labels iob bio entity pos".split())
_MAX_TAGS = 200
_USUAL_LENGTHS = (2, 200)  # of sentences, on average
_FULL_STOPS = tuple(".?!…。？！।۔؟።")


def table_with_header(
    head: Head, *, quoting: bool = False
) -> tuple[str, dict[str, tuple[str, ...]]]:
    """Returns the delimiter and the columns of a table with a header; no columns if it is none.

    Args:
      head: first part of the file.
      quoting: also interpret quotes between tabs.
    """
    delimiter = max(_DELIMITERS, key=head.full_lines[0].count)
    rows, bad = first_rows(head, delimiter, {"quoting": quoting or delimiter != "\t"})
    names, held = (rows or [[]])[0], rows[1:]
    is_table = len(held) >= SURE * (len(held) + bad) > 0 and len(set(names)) == len(names) > 1
    columns = zip(names, zip(*held, strict=True), strict=True) if is_table else ()
    return delimiter, dict(columns)


def check_columns(names: set[str], record: Record) -> None:
    """Raises UsageError if a row lacks a column."""
    if missing := names - record.values.keys():
        known = ", ".join(record.values)
        raise UsageError(f"There is no column {min(missing)!r}; the columns are {known}.")


def _match_word_rows(head: Head) -> Match | None:
    if len(head.full_lines) < 10:
        return None
    delimiter, columns = table_with_header(head)
    names = list(columns)
    tags = [name for name in names if _are_tags(name, columns[name])]
    words = [name for name in names if name not in tags and _are_words(columns[name])]
    ids = [name for name in names if name not in (*tags, *words) and _number(columns[name])]
    ids.sort(key=lambda name: -len(set(columns[name])))  # sentences before documents
    blank = words and any(not word for word in columns[words[0]])
    if not words or not tags:
        return None
    word = next((name for name in words if name.lower() in _WORD_NAMES), words[0])
    if not (ids or blank or _has_marks(columns[word])):
        return None
    is_scheme = any(_is_scheme(columns[name]) for name in tags)
    if not is_scheme and (word.lower() not in _WORD_NAMES or not _has_marks(columns[word])):
        return None
    tag = next((name for name in tags if _is_scheme(columns[name])), tags[-1])
    options: dict[str, Any] = {"word": word, "tag": tag}
    options |= {"sentence": ids[0]} if ids else {}
    options |= {"delimiter": delimiter} if delimiter != "," else {}
    doubts = [f"each row is one word ({word!r}); the rows of a sentence are joined."]
    if not ids and not blank:
        options["full_stops"] = True
        doubts.append("no column numbers the sentences, so each ends with a full stop, '?' or '!'.")
    if others := [repr(name) for name in tags if name != tag]:
        doubts.append(f'the tags are {tag!r}; the option "tag" may name {" or ".join(others)}.')
    return Match(0.98, options, doubts)


@register_reader("word_rows", matches=_match_word_rows)
def read_word_rows(
    path: Path,
    bad: BadRecords,
    *,
    word: str = "word",
    tag: str = "tag",
    sentence: str = "",
    full_stops: bool = False,
    delimiter: str = ",",
    encoding: str = "",
) -> Iterator[Record]:
    """Yields {"words", "tags"} for each sentence of a table with one word on each row.

    A row begins a sentence if its value in the column `sentence` is neither empty nor that of the
    row before.  Without that column, rows without a word separate sentences.  A sentence with a bad
    row, or with a word and no tag, is bad.

    Args:
      path: the file, compressed or not, with a header.
      bad: policy for bad rows and sentences.
      word: column of the words.
      tag: column of the tags.
      sentence: column that numbers the sentences.
      full_stops: without that column, "." and the like also end a sentence.
      delimiter: one character; a file with tabs has no quotes.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
      UsageError: there is no such column.
    """
    quoting = delimiter != "\t"
    rows = read_csv(path, bad, delimiter=delimiter, quoting=quoting, encoding=encoding)
    ends = _FULL_STOPS if full_stops else ()
    for place, held in _sentences(rows, sentence, word, ends, bad):
        words, tags = ([str(row[name]).strip() for row in held] for name in (word, tag))
        if all(words) and all(tags):
            yield Record(place, {"words": words, "tags": tags})
        else:
            fault = (words if not all(words) else tags).index("") + 1
            bad.report(place, f"word {fault} of the sentence is empty, or has no tag")


def _sentences(
    rows: Iterator[Record], sentence: str, word: str, ends: Sequence[str], bad: BadRecords
) -> Iterator[tuple[Place, list[Mapping[str, Any]]]]:
    """Yields the places and rows of sentences without bad rows."""
    held: list[Mapping[str, Any]] = []
    place, current, count, is_bad = Place(Path(), 0), "", bad.count, False
    for record in itertools.chain(rows, [None]):
        if record is not None:
            check_columns({word, sentence or word}, record)
        is_bad, count = is_bad or bad.count > count, bad.count
        values = {} if record is None else record.values
        name = str(values.get(sentence, "")).strip()
        is_blank = not sentence and not str(values.get(word, "")).strip()
        is_ended = bool(held) and held[-1][word] in ends
        if record is None or is_blank or is_ended or (name and name != current):
            if held and not is_bad:
                yield place, held
                count = bad.count  # the sentence may have been reported
            held, current, is_bad = [], name, False
        if record is not None and not is_blank:
            place = place if held else record.place
            held.append(values)


def _are_tags(name: str, values: Sequence[str]) -> bool:
    kinds = Counter(value for value in values if value)
    few = 1 < len(kinds) <= _MAX_TAGS and len(kinds) * 4 <= len(values)
    if not few or any(" " in kind or kind.isdecimal() for kind in kinds):
        return False
    return _is_scheme(values) or name.lower() in _TAG_NAMES


def _is_scheme(values: Sequence[str]) -> bool:
    kinds = {value for value in values if value}
    return "O" in kinds and len(kinds) <= _MAX_TAGS and bool(scheme_of(sorted(kinds)).letters)


def _are_words(values: Sequence[str]) -> bool:
    full = [value for value in values if value]
    single = sum(" " not in value.strip() for value in full)
    letters = sum(any(map(str.isalpha, value)) for value in full)
    return bool(full) and single >= SURE * len(full) and letters * 2 >= len(full)


def _has_marks(values: Sequence[str]) -> bool:
    """Returns whether some words are punctuation marks, as in texts."""
    marks = sum(value in (",", *_FULL_STOPS) for value in values)
    return marks * 100 >= len(values)


def _number(values: Sequence[str]) -> bool:
    """Returns whether the values number sentences: each stands on consecutive rows, or on one."""
    full = [value for value in values if value]
    runs = [name for name, _ in itertools.groupby(full)]
    low, high = _USUAL_LENGTHS
    usual = len(runs) >= 2 and low <= len(values) / len(runs) <= high
    return usual and bool(values[0]) and len(set(runs)) == len(runs)
