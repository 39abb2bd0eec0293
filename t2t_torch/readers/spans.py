"""Reader of texts with labelled spans, as annotation tools export them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_torch.readers.head import MAX_HEAD_LINES, Head, Match
from t2t_torch.readers.jsonl import raw_rows, rows_in
from t2t_torch.readers.text_file import BadRecords, Place, Record
from t2t_torch.registry import register_reader
from t2t_torch.text.tokenizer import tokenize, word_expression

TOKENIZER = "punctuation"
"""Tokenizer of the texts, a name of `text/tokenizer.py`."""

TOKENIZED = frozenset("brat nlu rasa span_cells spans".split())
"""Formats whose words are those of `TOKENIZER`."""

_TEXTS = ("text", "content", "sentence", "document", "data")
_SPANS = ("spans", "entities", "label", "labels", "annotations", "annotation")
_STARTS = ("start", "start_offset", "begin")
_ENDS = ("end", "end_offset")
_LABELS = ("label", "labels", "tag", "type", "entity")

Span = tuple[int, int, str]
"""Start and end, as character offsets, and label."""


class Annotated(NamedTuple):
    """An annotated text.

    Attributes:
      text: the text.
      spans: its spans.
      choices: labels of the whole text.
      accepted: False if the annotator rejected or skipped it.
    """

    text: str
    spans: list[Span]
    choices: list[str]
    accepted: bool


def _match_spans(head: Head) -> Match | None:
    """Recognizes texts with spans, or with choices of Label Studio."""
    if not head.full_lines or not head.full_lines[0].lstrip("\ufeff \t").startswith(("{", "[")):
        return None
    rows, options = rows_in(head, lambda row: annotated(row) is not None)
    made = [one for one in map(annotated, rows[:MAX_HEAD_LINES]) if one is not None]
    if not rows:
        made = [one] if (one := annotated(head.json)) is not None else []
    if not any(one.spans or one.choices for one in made):
        return None
    doubts = [f"the rows are the array at the key {options['records']!r}."] if options else []
    spans = sum(len(one.spans) for one in made)
    if cut := sum(tagged(one.text, one.spans)[2] for one in made):
        doubts.append(
            f"{cut} of {spans} spans end within a word, and are extended to it, or overlap an "
            "earlier one, and are left out."
        )
    if spans:
        doubts.append("words are runs of letters and digits, and single other characters.")
    if left_out := sum(not one.accepted for one in made):
        doubts.append(
            f"{left_out} of {len(made)} texts are left out: their answer is not 'accept'."
        )
    return Match(1.0, options, doubts)


@register_reader("spans", matches=_match_spans)
def read_spans(
    path: Path, bad: BadRecords, *, records: str = "", encoding: str = ""
) -> Iterator[Record]:
    """Yields {"text", "words", "tags", "label", "spans", "cut"} of texts with spans.

    Reads Prodigy's, Doccano's and Dataturks' JSON Lines, Label Studio's JSON (full and minimal) and
    spaCy's `[text, {"entities": [[start, end, label], ...]}]`, in an array or one on each line.
    Offsets count characters.  Texts that the annotator did not accept are skipped.

    "words" are those of `TOKENIZER`: runs of letters and digits, single punctuation marks and
    single Chinese or Japanese characters; "tags" are IOB2.  A span that ends within a word is
    extended to the whole word; of overlapping spans the first is kept.  "spans" is the number of
    spans, "cut" that of extended or dropped ones.  "label" is the choice for the whole text in
    Label Studio, or None.  Other texts of the record, such as "intent", are values as well.

    Args:
      path: the file, compressed or not.
      bad: policy for records that are not of these forms, or whose spans exceed the text.
      records: the key of the array if it is in an object, such as "annotations".
      encoding: the file's, empty for UTF-8.

    Raises:
      DataError: the file cannot be read, or has no array.
    """
    for place, row in raw_rows(path, bad, records, encoding):
        one = annotated(row)
        if one is None:
            bad.report(place, "no text with spans: none of the known forms")
        elif one.accepted:
            label = one.choices[0] if len(one.choices) == 1 else None
            others = {key: v for key, v in row.items() if _is_text(v)} if type(row) is dict else {}
            for record in records_of_spans(place, one.text, one.spans, bad, label=label):
                yield Record(place, {**others, **record.values})


def records_of_spans(
    place: Place, text: str, spans: Sequence[Span], bad: BadRecords, **more: Any
) -> Iterator[Record]:
    """Yields the record of a text with spans; reports one whose spans exceed the text.

    Args:
      place: the text's.
      text: the text.
      spans: its spans.
      bad: policy for bad texts.
      **more: other values of the record.
    """
    outside = next((span for span in spans if not 0 <= span[0] < span[1] <= len(text)), None)
    if outside is not None:
        bad.report(place, f"the span {outside} is not within {len(text)} characters")
        return
    words, tags, cut = tagged(text, spans)
    values = {"words": words, "tags": tags, "text": text, **more}
    yield Record(place, {**values, "spans": len(spans), "cut": cut})


def annotated(row: Any) -> Annotated | None:
    """Returns the text and the spans of a record; None if it is of no known form."""
    if isinstance(row, list) and len(row) == 2 and isinstance(row[1], Mapping):
        row = {"text": row[0], "entities": row[1].get("entities")}
    if not isinstance(row, Mapping):
        return None
    data, done = row.get("data"), row.get("annotations", row.get("completions"))
    choices: list[str] = []
    if isinstance(data, Mapping) and isinstance(done, list):  # Label Studio
        texts = [data["text"]] if "text" in data else [v for v in data.values() if _is_text(v)]
        text = next(filter(_is_text, texts), None)
        kept = [one for one in done if isinstance(one, Mapping) and not one.get("was_cancelled")]
        results = kept[0].get("result", []) if kept else []
        values = [one.get("value", {}) for one in results if isinstance(one, Mapping)]
        choices = [choice for value in values for choice in value.get("choices", ())]
        held: Any = [value for value in values if "labels" in value]
    else:
        text = next((row[key] for key in _TEXTS if _is_text(row.get(key))), None)
        held = next((row[key] for key in _SPANS if isinstance(row.get(key), list)), None)
    if text is None or held is None:
        return None
    spans = [_span(one) for one in held]
    if None in spans:
        return None
    accepted = row.get("answer", "accept") == "accept"
    return Annotated(text, [one for one in spans if one is not None], choices, accepted)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _span(value: Any) -> Span | None:
    if isinstance(value, Mapping) and isinstance(value.get("points"), list):
        point = value["points"][0] if value["points"] else {}
        if not isinstance(point, Mapping) or type(point.get("end")) is not int:
            return None
        return _span({**point, "end": point["end"] + 1, "label": value.get("label")})
    if isinstance(value, Mapping):
        parts = [
            next((value[k] for k in keys if k in value), None) for keys in (_STARTS, _ENDS, _LABELS)
        ]
        label = parts[2]
        parts[2] = label[0] if isinstance(label, list) and label else label
    elif isinstance(value, list) and len(value) >= 3:
        parts = value[:3]
    else:
        return None
    start, end, label = parts
    if type(start) is not int or type(end) is not int or not _is_text(label):
        return None
    return start, end, re.sub(r"\s+", "_", str(label).strip())


def tagged(text: str, spans: Sequence[Span]) -> tuple[list[str], list[str], int]:
    """Returns the words of a text, their IOB2 tags, and the number of changed spans."""
    tokens = tokenize(text, word_expression(TOKENIZER))
    places = [(token.start, token.end) for token in tokens]
    tags = ["O"] * len(places)
    cut = 0
    for start, end, label in spans:
        within = [i for i, (first, last) in enumerate(places) if first < end and last > start]
        if not within or any(tags[i] != "O" for i in within):
            cut += 1  # blank, or it overlaps another
            continue
        cut += places[within[0]][0] < start or places[within[-1]][1] > end
        for i in within:
            tags[i] = f"{'B' if i == within[0] else 'I'}-{label}"
    return [text[first:last] for first, last in places], tags, cut
