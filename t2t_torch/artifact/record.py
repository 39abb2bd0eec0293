"""Answers as records: what JSON says of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_torch.artifact.prediction import Attention, Prediction
from t2t_torch.text.spans import spans_of

BEST = 5
"""So many labels of a class are told with their probabilities."""

_DIGITS = 6  # of probabilities: float32 has no more
_SPAN_MARKS = ("B-", "I-", "E-", "S-")


def value_record(
    value: Any,
    probability: float | None,
    scores: Mapping[str, float] | Sequence[float] | None,
    best: int = BEST,
) -> dict[str, Any]:
    """Returns what was found for a target as JSON has it.

    Always its `value`, and its `probability` where it has one; `probabilities` of the best labels,
    or of tags each word's.

    Args:
      value: that was found.
      probability: of the value; None where there is none.
      scores: of each label, the likeliest first, or of each word's tag; None where there are none.
      best: labels of a class that are told.
    """
    record: dict[str, Any] = {"value": value}
    if probability is not None:
        record["probability"] = round(probability, _DIGITS)
    if isinstance(scores, Mapping):
        first = list(scores.items())[:best]
        record["probabilities"] = {label: round(score, _DIGITS) for label, score in first}
    elif scores is not None:
        record["probabilities"] = [round(score, _DIGITS) for score in scores]
    return record


def words_record(
    tags: Sequence[str], words: Sequence[str], labels: Sequence[str]
) -> dict[str, Any]:
    """Returns what is told of tags beside them: their `words`, and the `spans` that they mark.

    Args:
      tags: that were found.
      words: that they are of.
      labels: all that there are; if they mark no spans, none are told.
    """
    record: dict[str, Any] = {"words": list(words)}
    if mark_spans(labels):
        record["spans"] = span_records(tags, words)
    return record


def prediction_record(
    prediction: Prediction, *, ids: bool = False, alignments: bool = False
) -> dict[str, Any]:
    """Returns an output as JSON has it: `value` and `score`, and of several hypotheses each.

    Args:
      prediction: what was found.
      ids: whether the `ids` are told, too.
      alignments: whether the `alignment` is: pairs of words' numbers, the input's first.
    """
    records = []
    for hypothesis in prediction.hypotheses:
        record: dict[str, Any] = {"value": hypothesis.text, "score": hypothesis.score}
        if ids:
            record["ids"] = list(hypothesis.ids)
        if alignments:
            record["alignment"] = [list(pair) for pair in hypothesis.alignment]
        records.append(record)
    several = {"hypotheses": records} if len(records) > 1 else {}
    return {**records[0], **several}


def attention_record(attention: Attention) -> dict[str, Any]:
    """Returns what each word of an output looks at as JSON has it.

    The words that are `read` and `written`, and of each written one the `weights` of those read.
    """
    return {
        "read": list(attention.read),
        "written": list(attention.written),
        "weights": [[round(weight, _DIGITS) for weight in row] for row in attention.weights],
    }


def span_records(tags: Sequence[str], words: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the spans that tags mark: `kind`, `first` and `last` word, from 0, and `text`."""
    return [
        {
            "kind": span.kind,
            "first": span.first,
            "last": span.last,
            "text": " ".join(words[span.first : span.last + 1]),
        }
        for span in spans_of([tag or "O" for tag in tags])
    ]


def mark_spans(labels: Sequence[str]) -> bool:
    """Whether tags mark spans, as B-city and I-city do, and parts of speech do not."""
    return any(label.startswith(_SPAN_MARKS) for label in labels)
