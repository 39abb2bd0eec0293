"""Reader of texts with labelled spans, as annotation tools export them."""

from __future__ import annotations

import itertools
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
_LONGEST_LABEL = 60
_LABELS = ("label", "labels", "tag", "type", "entity")

Span = tuple[int, int, str]
"""Start and end, as character offsets, and label; its blanks become "_" in tags."""


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
            others = {key: v for key, v in row.items() if _is_text(v)} if type(row) is dict else {}
            label = one.choices[0] if len(one.choices) == 1 else others.get("label")
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
    choices, is_named = list[str](), True
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
        lists = [row[key] for key in _SPANS if isinstance(row.get(key), list)]
        held, is_named = next(iter(lists or filter(_are_objects, row.values())), None), bool(lists)
    if text is None or held is None:
        return None
    spans = [_span(one, text, is_named=is_named) for one in held]
    if None in spans:
        return None
    accepted = row.get("answer", "accept") == "accept"
    return Annotated(text, [one for one in spans if one is not None], choices, accepted)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) for one in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _span(value: Any, text: str, *, is_named: bool) -> Span | None:
    """Returns the span of an object or a list.

    Start and end are numbers under usual keys, or two numbers between which the text of the span
    stands.  The label is the string under a usual key, or one that is not the text of the span.  An
    end is that of the last character if the text of the span says so.

    Args:
      value: the object or list.
      text: the annotated text.
      is_named: it is under one of `_SPANS`; if not, the text of the span must be there.
    """
    leaves = list(_leaves(value))
    words = {key: leaf for key, leaf in reversed(leaves) if _is_text(leaf)}
    held = {one.strip() for one in words.values()}
    numbers = [(key, leaf) for key, leaf in leaves if type(leaf) is int]
    named = [next((n for k, n in numbers if k in keys), None) for keys in (_STARTS, _ENDS)]
    pairs = [(a, b) for (_, a), (_, b) in itertools.pairwise(numbers)]
    shown = [(a, c) for a, b in pairs for c in (b, b + 1) if text[a:c].strip() in held]
    if shown or not is_named:
        pairs = shown
    elif None not in named:
        pairs = [(int(named[0] or 0), int(named[1] or 0))]
    elif isinstance(value, Mapping) or len(numbers) > 2:
        pairs = [(a, b) for a, b in pairs if 0 <= a < b <= len(text) and len(numbers) == 2]
    if not pairs or not words:
        return None
    start, end = pairs[0]
    names = [words[key] for key in _LABELS if key in words]
    names += [one for one in words.values() if one.strip() != text[start:end].strip()]
    return (start, end, names[0]) if names and len(names[0]) <= _LONGEST_LABEL else None


def _leaves(value: Any, key: Any = "") -> Iterator[tuple[Any, Any]]:
    """Yields the values within objects and lists, with their keys or places."""
    if isinstance(value, Mapping | list):
        for name, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(one, name if isinstance(name, str) else key or name)
    else:
        yield key, value


def tagged(text: str, spans: Sequence[Span]) -> tuple[list[str], list[str], int]:
    """Returns the words of a text, their IOB2 tags, and the number of changed spans."""
    places = [(token.start, token.end) for token in tokenize(text, word_expression(TOKENIZER))]
    tags = ["O"] * len(places)
    cut = 0
    for start, end, label in spans:
        within = [i for i, (first, last) in enumerate(places) if first < end and last > start]
        if not within or any(tags[i] != "O" for i in within):
            cut += 1  # blank, or it overlaps another
            continue
        cut += places[within[0]][0] < start or places[within[-1]][1] > end
        for i in within:
            tags[i] = f"{'B' if i == within[0] else 'I'}-{'_'.join(label.split())}"
    return [text[first:last] for first, last in places], tags, cut
