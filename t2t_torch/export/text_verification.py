"""Verification of an artifact that generates texts against its model, row by row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.verification import (
    MOST_TIES,
    TOLERANCE,
    Comparison,
    Gap,
    VerificationRow,
    Verified,
    difference,
    prediction_of,
    verify_rows,
)
from t2t_torch.runtime.prediction import Attention, Prediction

if TYPE_CHECKING:
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.runtime.session import Artifact


WEIGHT_TIE = 1e-5
"""Tolerance of attention weights: sums of rounded numbers differ by as much."""


class AttentionGap(NamedTuple):
    """The difference of two attentions.

    Attributes:
      gap: maximum difference of a weight; infinity if the words or an alignment differ.
      ties: number of words with a different alignment because of equal weights.
    """

    gap: float
    ties: int


class AttentionVerification:
    """Compares the attention of an artifact with that of its model.

    Args:
      predictor: the model in float32.

    Raises:
      HParamsError: the model has no attention.
    """

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._aligner = predictor.aligner()

    def attended(self, text: str, prediction: Prediction) -> Prediction:
        """Returns the model's prediction for a text with the attention of the best hypothesis."""
        (ids,) = self._predictor.encode([text])
        return self._aligner.attend(ids, prediction)

    def compared(self, text: str, expected: Prediction, actual: Prediction) -> AttentionGap:
        """Returns the difference between the artifact's and the model's attention.

        Args:
          text: the input.
          expected: prediction of the model with attention.
          actual: prediction of the artifact with the same texts.
        """
        pair = (expected.attention, actual.attention)
        gap, ties = difference(*(one and dataclasses.astuple(one) for one in pair)), 0
        for one, other in zip(expected.hypotheses, actual.hypotheses, strict=True):
            if one.alignment == other.alignment:
                continue
            alone = dataclasses.replace(expected, hypotheses=(one,))
            whole = self.attended(text, alone).attention
            assert whole is not None
            if not _are_equal(whole, one.alignment, other.alignment):
                return AttentionGap(math.inf, ties)
            ties += sum(a != b for a, b in zip(one.alignment, other.alignment, strict=True))
        return AttentionGap(gap, ties)


def _are_equal(
    attention: Attention, one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]
) -> bool:
    """Returns True if two alignments differ only in words with equal attention weights."""
    if len(one) != len(other):
        return False
    weights = attention.weights
    return all(
        j == k and abs(weights[j][i] - weights[j][h]) <= WEIGHT_TIE
        for (i, j), (h, k) in zip(one, other, strict=True)
    )


SCORE_TIE = 1e-5
"""Relative tolerance of the scores of texts: sums of rounded numbers differ by as much."""


def verify_texts(
    predictor: Predictor, artifact: Artifact, rows: Sequence[VerificationRow]
) -> Verified:
    """Compares an artifact with its model, which generates texts; see `verify_rows`.

    Args:
      predictor: the model in float32.
      artifact: exported model.
      rows: rows whose samples have one field.
    """
    return verify_rows(_TextComparison(predictor), artifact, rows)


class _TextComparison(Comparison):
    """Compares texts, their scores, and their attention if it is exported."""

    fault = "write what the model writes"

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.attends = bool(predictor.hparams.write_alignments)
        self._attention = AttentionVerification(predictor) if self.attends else None

    def input_of(self, row: VerificationRow) -> str:
        """See `Comparison.input_of`."""
        (text,) = row.sample.values()
        return str(text)

    def expected(self, rows: Sequence[VerificationRow]) -> Sequence[Prediction | DataError]:
        """See `Comparison.expected`."""
        texts, predict = [self.input_of(row) for row in rows], self._predictor.predict
        predictions: Sequence[Prediction | DataError]
        try:
            predictions = [*predict(texts)]
        except DataError:
            predictions = [prediction_of(predict, text) for text in texts]
        attention = self._attention
        if attention is None:
            return predictions
        return [
            one if isinstance(one, DataError) else attention.attended(text, one)
            for text, one in zip(texts, predictions, strict=True)
        ]

    def gap(self, row: VerificationRow, expected: Prediction, actual: Prediction) -> Gap | str:
        """See `Comparison.gap`."""
        pairs = list(zip(expected.hypotheses, actual.hypotheses, strict=False))
        gaps = [abs(e.score - f.score) / max(1.0, abs(e.score)) for e, f in pairs]
        score = math.inf if any(map(math.isnan, gaps)) else max(gaps, default=0.0)
        same = all(e.text == f.text and e.ids == f.ids for e, f in pairs)
        as_many = len(expected.hypotheses) == len(actual.hypotheses)
        if not as_many or score > (TOLERANCE if same else SCORE_TIE):
            return self.fault
        if self._attention is None or not same:
            return Gap(score, not same)
        weight, ties = self._attention.compared(self.input_of(row), expected, actual)
        if weight > TOLERANCE:
            return "look where the model looks"
        return Gap(score, False, weight, ties)

    def check_ties(self, rows: Sequence[VerificationRow], ties: Set[int]) -> None:
        """See `Comparison.check_ties`."""
        if len(ties) > MOST_TIES * len(rows):
            first = rows[min(ties)]
            raise ExportError(
                f"the artifact writes other texts of equal scores for {len(ties)} of {len(rows)} "
                f"rows, where rounding changes a few; the first is {first.name}: "
                f"{first.shown}. Nothing was written. Train longer: a model that has "
                "learnt nothing has many."
            )

    def describe(self, prediction: Prediction) -> str:
        """See `Comparison.describe`."""
        texts = "; ".join(f"{one.text!r} ({one.score:.6f})" for one in prediction.hypotheses)
        attention = prediction.attention
        return texts if attention is None else f"{texts}; the first with {attention}"
