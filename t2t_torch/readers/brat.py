"""Reader of BRAT's standoff annotations: texts with files of spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.spans import Span, records_of_spans
from t2t_torch.readers.text_file import BadRecords, Place, Record, TextFile, without_end
from t2t_torch.registry import register_reader

_SPAN = re.compile(r"T\d+\t(\S+) (\d+) (?:\d+;\d+ )*(\d+)(?:\t.*)?")
_LINES = re.compile(r"(?:[TREAMN#*][^\t]*\t.*)")


def _match_brat(head: Head) -> Match | None:
    if head.is_folder:
        return Match(1.0) if _texts(head.path) else None
    is_text = head.has_ending(".txt") and head.path.with_suffix(".ann").is_file()
    return Match(0.95) if is_text or (head.has_ending(".ann") and _texts(head.path)) else None


@register_reader("brat", matches=_match_brat)
def read_brat(path: Path, bad: BadRecords, *, encoding: str = "") -> Iterator[Record]:
    """Yields {"text", "words", "tags", "spans", "cut"} for each line of the texts.

    A text NAME.txt has the annotations NAME.ann, of which the text-bound ones (T) are read.  Words
    and tags are those of the format "spans".  A span over several lines ends with its first line,
    and one in several parts extends from the first to the last.  Texts without annotations, and
    blank lines, are skipped.  A line is bad if a span is not within the text, or its annotation
    cannot be read; an undecodable line ends its text.

    BRAT standoff format, brat.nlplab.org/standoff.html.

    Args:
      path: a folder with the files, or one of a text and its annotations.
      bad: policy for bad lines.
      encoding: the files', empty for UTF-8.

    Raises:
      DataError: a file cannot be read, or there is no text with annotations.
    """
    texts = _texts(path)
    if not texts:
        raise DataError(f"{path} has no texts with annotations: NAME.txt beside NAME.ann.")
    for text in texts:
        yield from _lines(text, _spans(text.with_suffix(".ann"), bad, encoding), bad, encoding)


def _texts(path: Path) -> list[Path]:
    """Returns the texts that have annotations, in a folder or by one of the two files."""
    texts = sorted(path.glob("*.txt")) if path.is_dir() else [path.with_suffix(".txt")]
    return [one for one in texts if one.is_file() and one.with_suffix(".ann").is_file()]


def _spans(path: Path, bad: BadRecords, encoding: str) -> list[Span]:
    """Returns the spans of a file of annotations, in order of their starts."""
    spans = []
    for number, line in TextFile(path, bad, encoding):
        text = without_end(line or "")
        if found := _SPAN.fullmatch(text):
            spans.append((int(found[2]), int(found[3]), found[1]))
        elif text.startswith("T") or (text.strip() and not _LINES.fullmatch(text)):
            bad.report(Place(path, number), "no annotation, such as T1, a tab and PER 0 5")
    return sorted(spans)


def _lines(path: Path, spans: list[Span], bad: BadRecords, encoding: str) -> Iterator[Record]:
    start, waiting = 0, spans
    for number, line in TextFile(path, bad, encoding):
        if line is None:
            why = "the rest of the text is not read: the places of its spans are unknown"
            bad.report(Place(path, number), why)
            return
        end, text = start + len(line), without_end(line)
        held = [one for one in waiting if one[0] < end]
        waiting = waiting[len(held) :]
        inside = [(a - start, min(b - start, len(text)), kind) for a, b, kind in held]
        if text.strip():
            yield from records_of_spans(Place(path, number), text, inside, bad)
        start = end
    for span in waiting:
        bad.report(Place(path, 1), f"the span {span} is not within {start} characters")
