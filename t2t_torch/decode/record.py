"""Answers as records: what JSON and tables say of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_torch.artifact.answer import Answer
from t2t_torch.artifact.record import (
    BEST,
    mark_spans,
    prediction_record,
    span_records,
    value_record,
    words_record,
)
from t2t_torch.features import Feature, Features, Real, SoftLabel, Span, Tags, Text, Words
from t2t_torch.features.text import words_of
from t2t_torch.problem import Found

__all__ = [
    "BEST",
    "answer_record",
    "cells_of",
    "columns_of",
    "found_record",
    "marks_spans",
    "prediction_record",
    "readable",
    "span_records",
    "tagged",
]


def answer_record(
    features: Features, sample: Mapping[str, Any], answer: Answer, best: int = BEST
) -> dict[str, Any]:
    """Returns what was found for one input, by target, as JSON has it; see `found_record`.

    Args:
      features: of the problem.
      sample: the input's fields.
      answer: what was found for it.
      best: labels of a class that are told.
    """
    record = {}
    for name, feature in features.targets.items():
        found = Found(answer.values[name], answer.probabilities.get(name), answer.scores.get(name))
        words = None
        if isinstance(feature, Tags):
            words = words_of(sample[features.sources[feature.of]])
        record[name] = found_record(feature, found, words, best)
    return record


def found_record(
    feature: Feature, found: Found, words: Sequence[str] | None = None, best: int = BEST
) -> dict[str, Any]:
    """Returns what was found for a target as JSON has it.

    Always its `value`, and its `probability` where it has one; `probabilities` of the best labels,
    or of tags each word's.  Tags have their `words`, and where they mark spans, as B-city does, the
    `spans`: `kind`, `first` and `last` word, counted from 0, and `text`.

    Args:
      feature: the target.
      found: what was found.
      words: that tags are of.
      best: labels of a class that are told.
    """
    record = value_record(found.value, found.probability, found.scores, best)
    if isinstance(feature, Tags) and words is not None:
        record |= words_record(found.value, words, feature.encoder.labels)
    return record


def marks_spans(feature: Tags) -> bool:
    """Whether tags mark spans, as B-city and I-city do, and parts of speech do not."""
    return mark_spans(feature.encoder.labels)


def tagged(words: Sequence[str], tags: Sequence[str | None]) -> str:
    """Returns words with their tags, as in "to/O new/B-city york/I-city"."""
    return " ".join(f"{word}/{tag or '?'}" for word, tag in zip(words, tags, strict=True))


def columns_of(name: str, feature: Feature) -> list[str]:
    """Returns the names of a table's columns for what is found of a target."""
    if isinstance(feature, Text):
        return [name, f"{name}_score"]
    if isinstance(feature, Real | SoftLabel):
        return [name]
    columns = [name, f"{name}_probability"]
    if not isinstance(feature, Span):
        columns.append(f"{name}_probabilities")
    return [*columns, f"{name}_tagged"] if isinstance(feature, Tags) else columns


def readable(feature: Feature | None, value: Any) -> Any:
    """Returns a value as a table has it: words, and tags without spaces, joined by spaces; a number
    alone, several to six digits.
    """
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(feature, Real):
        numbers = [float(f"{number:.6g}") for number in value]
        return numbers[0] if len(numbers) == 1 else numbers
    if isinstance(feature, Words):
        return " ".join(value)
    if isinstance(feature, Tags) and not any(" " in tag for tag in feature.encoder.labels):
        return " ".join(tag or "?" for tag in value)
    return value


def cells_of(feature: Feature, record: Mapping[str, Any]) -> list[Any]:
    """Returns the values of `columns_of` for a record of that target."""
    if isinstance(feature, Text):
        return [record["value"], record.get("score")]
    cells = [readable(feature, record["value"])]
    if isinstance(feature, Real | SoftLabel):
        return cells
    cells.append(record.get("probability"))
    if not isinstance(feature, Span):
        cells.append(record.get("probabilities"))
    if isinstance(feature, Tags):
        cells.append(tagged(record["words"], record["value"]))
    return cells
