"""Whether an artifact's words look where the model's do that it was made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from t2t_torch.artifact.prediction import Attention, Prediction

if TYPE_CHECKING:
    from t2t_torch.decode.predictor import Predictor

TIE = 1e-5
"""Weights that are no further apart are equal: sums of rounded numbers differ by as much."""


class Looked(NamedTuple):
    """How far two attentions are apart.

    Attributes:
      gap: the greatest difference of a weight; infinity if the words or an alignment differ.
      ties: words that are aligned otherwise, with words of equal weights.
    """

    gap: float
    ties: int


class AttentionVerification:
    """Compares the attention of an artifact with that of its model.

    Args:
      predictor: the model; computes in float32.

    Raises:
      HParamsError: it attends to nothing.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._aligner = predictor.aligner()

    def attended(self, text: str, prediction: Prediction) -> Prediction:
        """Returns what the model has found for a text, with the best hypothesis's attention."""
        (ids,) = self._predictor.encode([text])
        return self._aligner.attend(ids, prediction)

    def compared(self, text: str, expected: Prediction, found: Prediction) -> Looked:
        """Returns how far what the artifact tells is from what the model does.

        Args:
          text: the input.
          expected: of the model, with its attention.
          found: of the artifact: the same texts.
        """
        assert expected.attention is not None
        gap, ties = _gap(expected.attention, found.attention), 0
        for one, other in zip(expected.hypotheses, found.hypotheses, strict=True):
            if one.alignment == other.alignment:
                continue
            whole = self.attended(text, Prediction((one,))).attention
            assert whole is not None
            if not _are_equal(whole, one.alignment, other.alignment):
                return Looked(math.inf, ties)
            ties += sum(a != b for a, b in zip(one.alignment, other.alignment, strict=True))
        return Looked(gap, ties)


def _gap(expected: Attention, found: Attention | None) -> float:
    """Returns the greatest difference of a weight; infinity if the words differ."""
    if found is None or (expected.read, expected.written) != (found.read, found.written):
        return math.inf
    gaps = [
        abs(a - b)
        for one, other in zip(expected.weights, found.weights, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    return math.inf if any(map(math.isnan, gaps)) else max(gaps, default=0.0)


def _are_equal(
    attention: Attention, one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]
) -> bool:
    """Whether two alignments differ in words alone that are looked at as much."""
    if len(one) != len(other):
        return False
    weights = attention.weights
    return all(
        j == k and abs(weights[j][i] - weights[j][h]) <= TIE
        for (i, j), (h, k) in zip(one, other, strict=True)
    )
