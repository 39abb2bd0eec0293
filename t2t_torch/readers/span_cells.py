"""Reader of tables with spans in cells, as in Label Studio's CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.readers.delimited import read_csv
from t2t_torch.readers.head import SURE, Head, Match
from t2t_torch.readers.spans import annotated, records_of_spans
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.readers.word_rows import check_columns, table_with_header
from t2t_torch.registry import register_reader
from t2t_torch.runtime.prediction import WRITTEN_LIST, parts_of


def _match_span_cells(head: Head) -> Match | None:
    if len(head.full_lines) < 2 or "[" not in head.text:
        return None
    delimiter, columns = table_with_header(head, quoting=True)
    for spans, cells in columns.items():
        for text, texts in columns.items():
            if text != spans and _fit(cells, texts):
                options = {"text": text, "spans": spans}
                options |= {"delimiter": delimiter} if delimiter != "," else {}
                doubt = f"the tags are those of the spans in the column {spans!r}, of {text!r}."
                return Match(1.0, options, [doubt])
    return None


@register_reader("span_cells", matches=_match_span_cells)
def read_span_cells(
    path: Path,
    bad: BadRecords,
    *,
    text: str = "text",
    spans: str = "label",
    delimiter: str = ",",
    encoding: str = "",
) -> Iterator[Record]:
    """Yields {"text", "words", "tags", "spans", "cut"} for each row of a table.

    A cell of spans is a list in JSON or Python of objects or lists, such as `{"start": 0, "end": 4,
    "labels": ["PER"]}` or `[0, 4, "PER"]`; an empty one has no spans.  Words and tags are those of
    the format "spans".

    Args:
      path: the file, compressed or not, with a header.
      bad: policy for rows whose spans cannot be read, or exceed the text.
      text: column of the texts.
      spans: column of the spans.
      delimiter: one character.
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read.
      UsageError: there is no such column.
    """
    for record in read_csv(path, bad, delimiter=delimiter, encoding=encoding):
        place, values = record
        check_columns({text, spans}, record)
        one = annotated({"text": values[text], "spans": _list(values[spans])})
        if one is None:
            bad.report(place, f"no text with a list of spans in the column {spans!r}")
        else:
            yield from records_of_spans(place, one.text, one.spans, bad)


def _list(cell: str) -> list[Any] | None:
    try:
        parts = parts_of(cell, WRITTEN_LIST) if cell.strip() else []
    except ValueError:
        return None
    return [list(one) if isinstance(one, tuple) else one for one in parts]


def _fit(cells: Sequence[str], texts: Sequence[str]) -> bool:
    """Returns whether nearly all cells hold spans of the texts, and some are not empty."""
    full = [(cell, text) for cell, text in zip(cells, texts, strict=True) if cell.strip()]
    if not full or not all(cell.lstrip().startswith("[") for cell, _ in full):
        return False
    made = [annotated({"text": text, "spans": _list(cell)}) for cell, text in full]
    good = sum(
        one is not None and all(0 <= start < end <= len(one.text) for start, end, _ in one.spans)
        for one in made
    )
    return good >= SURE * len(full) and any(one.spans for one in made if one is not None)
