"""Whether an artifact writes what the model writes that it was made from, row by row."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.verification import MOST_TIES, TOLERANCE, Row, Verified
from t2t_torch.runtime.prediction import Attention, Prediction

if TYPE_CHECKING:
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.runtime.session import Artifact


# Whether an artifact's words look where the model's do that it was made from.


WEIGHT_TIE = 1e-5
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
            alone = dataclasses.replace(expected, hypotheses=(one,))
            whole = self.attended(text, alone).attention
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
        j == k and abs(weights[j][i] - weights[j][h]) <= WEIGHT_TIE
        for (i, j), (h, k) in zip(one, other, strict=True)
    )


SCORE_TIE = 1e-5
"""Scores of two texts that are no further apart, by their magnitude, are equal: sums of rounded
numbers differ by as much."""


def verify_texts(predictor: Predictor, artifact: Artifact, rows: Sequence[Row]) -> Verified:
    """Asks both each row; the artifact alone, and in batches with the others.

    Args:
      predictor: computes in float32.
      artifact: made of it.
      rows: their samples have one field.

    Raises:
      ExportError: they differ; tells the first row that does, and both answers.
    """
    asked = [str(text) for row in rows for text in row.sample.values()]
    looks = AttentionVerification(predictor) if predictor.hparams.write_alignments else None
    expected = _expected(predictor, asked)
    if looks is not None:
        pairs = zip(asked, expected, strict=True)
        expected = [e if isinstance(e, DataError) else looks.attended(t, e) for t, e in pairs]
    answers: dict[int, Prediction] = {}
    gaps: list[_Gap] = []
    for place, row in enumerate(rows):
        one = _asked(artifact, asked[place], attention=looks is not None)
        gaps.append(_compared(row, place, expected[place], one, looks, "alone"))
        if isinstance(one, Prediction):
            answers[place] = one
    several = [asked[place] for place in answers]
    together = artifact.predict(several) if looks is None else artifact.attend(several)
    for place, found in zip(answers, together, strict=True):
        assert isinstance(found, Prediction)
        how = f"in a batch of {len(answers)}"
        gaps.append(_compared(rows[place], place, expected[place], found, looks, how))
    ties = {gap.place for gap in gaps if gap.is_tie}
    if len(ties) > MOST_TIES * len(rows):
        first = min(ties)
        raise ExportError(
            f"the artifact writes other texts of equal scores for {len(ties)} of {len(rows)} rows, "
            f"where rounding changes a few; the first is {rows[first].name}: {asked[first]!r}. "
            "Nothing was written. Train longer: a model that has learnt nothing has many."
        )
    scores = max((gap.score for gap in gaps), default=0.0)
    if looks is None:
        return Verified(rows, answers, scores, len(ties))
    weights = max((gap.weight for gap in gaps), default=0.0)
    equal: dict[int, int] = {}  # by row: it is asked alone and with the others
    for gap in gaps:
        equal[gap.place] = max(equal.get(gap.place, 0), gap.looks)
    answers = {place: replace(found, attention=None) for place, found in answers.items()}
    return Verified(rows, answers, scores, len(ties), weights, sum(equal.values()))


def _expected(predictor: Predictor, asked: Sequence[str]) -> list[Prediction | DataError]:
    try:
        return [*predictor.predict(asked)]
    except DataError:
        return [_asked(predictor, text) for text in asked]


def _asked(
    answerer: Predictor | Artifact, text: str, *, attention: bool = False
) -> Prediction | DataError:
    try:
        told: Any = answerer
        found = (told.attend if attention else told.predict)([text])[0]
    except DataError as error:
        return error
    assert isinstance(found, Prediction)
    return found


class _Gap(NamedTuple):
    """How far an answer of the artifact is from the model's.

    Attributes:
      place: of the row.
      score: the greatest difference of a score.
      is_tie: whether two texts stand for one another.
      weight: the greatest difference of a weight of attention.
      looks: words that are aligned otherwise, with words of equal weights.
    """

    place: int
    score: float = 0.0
    is_tie: bool = False
    weight: float = 0.0
    looks: int = 0


def _compared(
    row: Row,
    place: int,
    expected: Prediction | DataError,
    found: Prediction | DataError,
    looks: AttentionVerification | None,
    how: str,
) -> _Gap:
    """Returns how far an answer is from the model's.

    Raises:
      ExportError: texts differ whose scores do, or scores or weights by more than `TOLERANCE`.
    """
    if isinstance(expected, DataError) and isinstance(found, DataError):
        return _Gap(place)
    what = "write what the model writes"
    if isinstance(expected, Prediction) and isinstance(found, Prediction):
        pairs = list(zip(expected.hypotheses, found.hypotheses, strict=False))
        gaps = [abs(e.score - f.score) / max(1.0, abs(e.score)) for e, f in pairs]
        gap = math.inf if any(map(math.isnan, gaps)) else max(gaps, default=0.0)
        same = all(e.text == f.text and e.ids == f.ids for e, f in pairs)
        as_many = len(expected.hypotheses) == len(found.hypotheses)
        if as_many and gap <= (TOLERANCE if same else SCORE_TIE):
            if looks is None or not same:
                return _Gap(place, gap, not same)
            (text,) = row.sample.values()
            weight, ties = looks.compared(str(text), expected, found)
            if weight <= TOLERANCE:
                return _Gap(place, gap, False, weight, ties)
            what = "look where the model looks"
    raise ExportError(
        f"the artifact does not {what}, asked {how}: {row.name}\n"
        f"  input:    {json.dumps(row.sample, ensure_ascii=False)}\n"
        f"  model:    {_told(expected)}\n"
        f"  artifact: {_told(found)}\n"
        "Nothing was written. This is a fault of the export: please report it with the run."
    )


def _told(answer: Prediction | DataError) -> str:
    if isinstance(answer, DataError):
        return f"refused: {answer}"
    told = "; ".join(f"{one.text!r} ({one.score:.6f})" for one in answer.hypotheses)
    return told if answer.attention is None else f"{told}; the first with {answer.attention}"
