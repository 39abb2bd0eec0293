"""How good answers are: what `t2t-eval` reports, of answers that a model or an artifact gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.data.ragged import Ragged, value_dtype
from t2t_torch.data.shards import Shards
from t2t_torch.export.row_values import text_of
from t2t_torch.export.verification import stored
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    Features,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
    Words,
)
from t2t_torch.loss import Loss
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.mode import Split
from t2t_torch.model import Output
from t2t_torch.pipeline.collate import padded

if TYPE_CHECKING:
    from t2t_torch.artifact.answer import Answer
    from t2t_torch.decode.label_predictor import LabelPredictor

_CERTAIN = 30.0  # a logit beside which the others, 0, are nothing
_LEAST = 1e-30  # a probability that has a logarithm
_OF_ALL_PROBABILITIES = ("neg_log_perplexity",)
"""Metrics that read more than which label is the likeliest."""


def metrics_of(
    predictor: LabelPredictor,
    data_dir: Path,
    numbers: Sequence[int],
    answers: Sequence[Answer],
    split: Split = Split.EVAL,
) -> dict[str, float]:
    """Returns the problem's metrics over some rows, by the names that `t2t-eval` has for them.

    Those that read the probability of every label are left out: an answer does not have it of tags.

    Args:
      predictor: knows the problem and its features.
      data_dir: of the generated data.
      numbers: of rows of the split; they rise.
      answers: as many.
      split: whose rows.
    """
    features, problem = predictor.features, predictor.problem
    shards = Shards.open(data_dir, problem.dataset_name, split)
    batch = {
        name: _right(feature, stored(shards, features.columns[name], numbers))
        for name, feature in {**features.targets, **features.notes}.items()
    }
    logits = {
        name: _of_spans(
            _contexts(features, feature, shards, numbers),
            [answer.values[name] for answer in answers],
            batch[name].tolist(),
        )
        if isinstance(feature, Span)
        else _logits(feature, [answer.values[name] for answer in answers],
                      [answer.scores.get(name) for answer in answers], batch[name])
        for name, feature in features.targets.items()
    }  # fmt: skip
    metrics = {
        name: [one for one in problem.metrics_of(name) if one not in _OF_ALL_PROBABILITIES]
        for name in features.targets
    }
    evaluation = Evaluation(features.targets, metrics, problem.full_name, features.notes)
    nothing = Loss(torch.zeros(()), torch.zeros(()))
    evaluation.update(Output(logits, dict.fromkeys(features.targets, nothing)), batch)
    found = evaluation.result()
    del found["loss"]
    return found


def _right(feature: Feature, rows: Sequence[Any]) -> Tensor:
    ragged = Ragged.from_lists(rows, value_dtype(feature.arrow_type))
    return torch.from_numpy(padded(feature, ragged))


def _logits(feature: Any, values: Sequence[Any], scores: Sequence[Any], right: Tensor) -> Tensor:
    """Returns logits that stand for answers, of the shape that metrics read."""
    if isinstance(feature, Real):
        return torch.tensor([feature.encode(value) for value in values])
    if isinstance(feature, Tags):
        return _of_tags(feature, values, right)
    rows: Sequence[Mapping[str, float]] = values if isinstance(feature, SoftLabel) else scores
    labels = feature.candidates if isinstance(feature, Choice) else feature.encoder.labels
    found = np.array([[row[label] for label in labels] for row in rows], np.float64)
    logits = np.log(np.maximum(found, _LEAST))
    if isinstance(feature, MultiLabel):
        logits -= np.log(np.maximum(1.0 - found, _LEAST))
    else:
        assert isinstance(feature, ClassLabel | SoftLabel | Choice)
    return torch.from_numpy(logits).float()


def _of_tags(feature: Tags, values: Sequence[Sequence[str]], right: Tensor) -> Tensor:
    logits = torch.zeros(*right.shape, feature.vocab_size)
    for row, tags in enumerate(values):
        for place, tag in enumerate(tags[: right.size(1)]):
            logits[row, place, feature.encoder.encode(tag)] = _CERTAIN
    return logits


def _contexts(
    features: Features, feature: Span, shards: Shards, numbers: Sequence[int]
) -> list[list[str]]:
    """Returns the words of the texts of which parts are answers."""
    words = features.all[feature.of]
    assert isinstance(words, Words)
    rows = stored(shards, features.columns[feature.of], numbers)
    return [text_of(words, ids).split(" ") for ids in rows]


def _of_spans(
    contexts: Sequence[Sequence[str]], values: Sequence[str], right: Sequence[Sequence[int]]
) -> Tensor:
    """Returns logits of the words that answers are of.  [B, 1 + W, 2].

    Of the places where an answer's text stands it is the one nearest to the right answer, as texts
    are what is measured (Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1).

    Args:
      contexts: of each row the words, which were given with spaces between.
      values: the answers, parts of these texts.
      right: of each row the first and last word of the right answer; -1 of none.
    """
    logits = torch.zeros(len(contexts), 1 + max(map(len, contexts)), 2)
    for row, (words, value) in enumerate(zip(contexts, values, strict=True)):
        first, last = _span_of(words, value, right[row][0]) if value else (-1, -1)
        logits[row, 1 + first, 0] = logits[row, 1 + last, 1] = _CERTAIN
    return logits


def _span_of(words: Sequence[str], value: str, near: int) -> tuple[int, int]:
    """Returns the first and the last word of a part of a text, of several that nearest to a word.

    Whole words go before parts of words.
    """
    text = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    found, place = [], text.find(value)
    while place >= 0:
        ends = np.searchsorted(starts, [place, place + len(value) - 1], side="right") - 1
        first, last = (int(end) for end in ends)
        is_part = " ".join(words[first : last + 1]) != value
        found.append((is_part, abs(first - near), first, last))
        place = text.find(value, place + 1)
    return min(found)[2:]
