"""Reader of PyText's tab-separated files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.files import read_lines
from t2t_torch.readers.delimited import read_tsv
from t2t_torch.readers.spans import Span
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.registry import register_reader

_SLOT = re.compile(r"(\d+):(\d+):(.+)")


@register_reader("pytext")
def read_pytext(
    path: Path,
    bad: BadRecords,
    *,
    columns: Sequence[str] = (),
    lower_case: bool = True,
    quoted: bool = False,
) -> Iterator[Record]:
    """Yields the columns of a row, and "words" and "tags" of its texts and slots.

    A column "slots" has character spans of the column "text", "16:24:datetime,39:57:datetime"; the
    words are separated by spaces, and in lower case as PyText's tokenizer makes them.  Columns
    named "text_seq" are JSON lists.

    Args:
      path: the file, compressed or not, without a header.
      bad: policy for rows that cannot be read.
      columns: names of the columns, PyText's `field_names`; further ones are not read.
      lower_case: True for words in lower case.
      quoted: True if a field may be in quotes, as in CSV.

    Raises:
      DataError: the file cannot be read, or no columns are named.
    """
    if not columns:
        raise DataError(f'{path}: the format pytext needs "options": {{"columns": [...]}}.')
    width = next(iter(read_lines(path)), "").count("\t") + 1
    unnamed = [f"column {number}" for number in range(len(columns) + 1, width + 1)]
    for record in read_tsv(path, bad, header=False, columns=(*columns, *unnamed), quoting=quoted):
        values = {name: record.values[name] for name in columns}
        try:
            if "text_seq" in values:
                values["text_seq"] = json.loads(values["text_seq"])
            if "text" in values:
                text = values["text"].lower() if lower_case else values["text"]
                words, tags = _tagged(text, _spans(values.get("slots", "")))
                values |= {"words": words, "tags": tags}
        except ValueError as error:
            bad.report(record.place, str(error))
            continue
        yield Record(record.place, values)


def _spans(slots: str) -> list[Span]:
    """Returns the spans of a column of slots; ValueError if one is malformed."""
    spans = []
    for slot in filter(None, slots.split(",")):
        match = _SLOT.fullmatch(slot.strip())
        if match is None:
            raise ValueError(f"{slot!r} is no slot; expected START:END:LABEL")
        spans.append((int(match[1]), int(match[2]), match[3]))
    return sorted(spans)


def _tagged(text: str, spans: Sequence[Span]) -> tuple[list[str], list[str]]:
    """Returns the words of a text and their tags, as in IOB2."""
    words, tags = [], []
    inside: Span | None = None
    for match in re.finditer(r"\S+", text):
        start, end = match.span()
        span = next((one for one in spans if one[0] < end and start < one[1]), None)
        words.append(match[0])
        begins = "I" if span is not None and span == inside else "B"
        tags.append("O" if span is None else f"{begins}-{span[2]}")
        inside = span
    return words, tags
