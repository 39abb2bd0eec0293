"""Parts of a text that a model takes for equally probable answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2t_torch.artifact.answer import Answer
from t2t_torch.families.spanqa import SpanQAProblem, Token, tokens_of
from t2t_torch.features import Span
from t2t_torch.modalities.span import MAX_WORDS

if TYPE_CHECKING:
    from t2t_torch.decode.label_predictor import LabelPredictor

TIE = 1e-4
"""Logarithms of probabilities that are no further apart are equal: sums of rounded numbers differ
by as much."""


def is_a_tie(
    predictor: LabelPredictor, sample: Mapping[str, Any], expected: Answer, found: Answer
) -> bool:
    """Whether answers differ in parts of a text alone that the model might find in each other's
    place.

    A text that is said over and over has them, and overlapping windows of one.

    Args:
      predictor: of the model.
      sample: that was asked.
      expected: what the model has found.
      found: what something else has found.
    """
    targets = predictor.features.targets
    spans = [name for name, feature in targets.items() if isinstance(feature, Span)]
    others = [name for name in targets if name not in spans]
    if not isinstance(predictor.problem, SpanQAProblem):
        return False
    if any(expected.values[name] != found.values[name] for name in others):
        return False
    return all(_is_one(predictor, name, sample, expected, found) for name in spans)


def likened(expected: Answer, found: Answer) -> Answer:
    """Returns what was expected, but of a tie the parts of texts that were found."""
    names = [name for name, value in expected.values.items() if value != found.values[name]]

    def of_both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, **{name: other[name] for name in names if name in other}}

    return Answer(
        of_both(expected.values, found.values),
        of_both(expected.probabilities, found.probabilities),
        of_both(expected.scores, found.scores),
    )


def _is_one(
    predictor: LabelPredictor,
    name: str,
    sample: Mapping[str, Any],
    expected: Answer,
    found: Answer,
) -> bool:
    texts = expected.values[name], found.values[name]
    if texts[0] == texts[1]:
        return True
    problem = predictor.problem
    assert isinstance(problem, SpanQAProblem)
    with torch.inference_mode():
        logits = predictor.model.logits(predictor.batch_of([sample]))[name]
        windows = [_Window(one) for one in logits.float().log_softmax(1)]
    tokens = tokens_of(sample["context"])
    cut = [tokens[number * problem.context_stride :] for number in range(len(windows))]
    parts = list(zip(windows, cut, strict=True))
    chances = [_chance(text, sample["context"], parts) for text in texts]
    if min(chances) == -math.inf:
        return False
    if all(texts) and abs(chances[0] - chances[1]) > TIE:
        return False
    return abs(math.exp(chances[1]) - found.probabilities[name]) <= TIE


def _chance(text: str, context: str, parts: Sequence[tuple[_Window, Sequence[Token]]]) -> float:
    """Returns the logarithm of the probability of an answer; -infinity if it may not be found.

    Args:
      text: of the answer; "" is none.
      context: the whole text.
      parts: its windows, with their words.
    """
    if not text:
        if any(window.best > window.none + TIE for window, _ in parts):
            return -math.inf
        return min(window.none for window, _ in parts)
    chances = [
        window.scores[first][last]
        for window, tokens in parts
        for first, last in _places(text, context, tokens)
        if last < len(window.scores) and _may_be_found(window, first, last)
    ]
    return max(chances, default=-math.inf)


def _may_be_found(window: _Window, first: int, last: int) -> bool:
    score = window.scores[first][last]
    return score >= max(window.best, window.none) - TIE


def _places(text: str, context: str, tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Returns the numbers of first and last words whose part of the context is a text."""
    return [
        (first, last)
        for first, token in enumerate(tokens)
        if context.startswith(text, token.start)
        for last in range(first, min(first + MAX_WORDS, len(tokens)))
        if tokens[last].end == token.start + len(text)
    ]


class _Window:
    """What a model finds in one window.

    Args:
      chances: [1 + W, 2], logarithms of the probabilities of first and last words.

    Attributes:
      none: of no answer.
      scores: of the answer from one word to another, W lists of W.
      best: the greatest of those that may be found.
    """

    def __init__(self, chances: Tensor) -> None:
        first, last = chances.unbind(-1)
        self.none = float(first[0] + last[0])
        scores = first[1:, None] + last[None, 1:]
        self.scores: list[list[float]] = scores.tolist()
        allowed = torch.ones_like(scores, dtype=torch.bool).triu().tril(MAX_WORDS - 1)
        self.best = float(scores.masked_fill(~allowed, -math.inf).max())
