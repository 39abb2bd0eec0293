"""Whether an artifact writes what the model writes that it was made from, row by row."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_torch.artifact.prediction import Prediction
from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.verification import TOLERANCE, Row, Verified

if TYPE_CHECKING:
    from t2t_torch.artifact.session import Artifact
    from t2t_torch.decode.predictor import Predictor

_MOST_TIES = 0.05  # a share of the rows

TIE = 1e-5
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
    expected = _expected(predictor, asked)
    greatest, ties = 0.0, set()
    answers: dict[int, Prediction] = {}
    for place, row in enumerate(rows):
        one = _asked(artifact, asked[place])
        gap, tie = _compared(row, expected[place], one, "alone")
        greatest = max(greatest, gap)
        ties |= {place} if tie else set()
        if isinstance(one, Prediction):
            answers[place] = one
    together = artifact.predict([asked[place] for place in answers])
    for place, found in zip(answers, together, strict=True):
        assert isinstance(found, Prediction)
        how = f"in a batch of {len(answers)}"
        gap, tie = _compared(rows[place], expected[place], found, how)
        greatest = max(greatest, gap)
        ties |= {place} if tie else set()
    if len(ties) > _MOST_TIES * len(rows):
        first = min(ties)
        raise ExportError(
            f"the artifact writes other texts of equal scores for {len(ties)} of {len(rows)} rows, "
            f"where rounding changes a few; the first is {rows[first].name}: {asked[first]!r}. "
            "Nothing was written. Train longer: a model that has learnt nothing has many."
        )
    return Verified(rows, answers, greatest, len(ties))


def _expected(predictor: Predictor, asked: Sequence[str]) -> list[Prediction | DataError]:
    try:
        return [*predictor.predict(asked)]
    except DataError:
        return [_asked(predictor, text) for text in asked]


def _asked(answerer: Predictor | Artifact, text: str) -> Prediction | DataError:
    try:
        found = answerer.predict([text])[0]
    except DataError as error:
        return error
    assert isinstance(found, Prediction)
    return found


def _compared(
    row: Row, expected: Prediction | DataError, found: Prediction | DataError, how: str
) -> tuple[float, bool]:
    """Returns the greatest difference of a score, and whether two texts stand for one another.

    Raises:
      ExportError: texts differ whose scores do, or scores by more than `TOLERANCE`.
    """
    if isinstance(expected, DataError) and isinstance(found, DataError):
        return 0.0, False
    if isinstance(expected, Prediction) and isinstance(found, Prediction):
        pairs = list(zip(expected.hypotheses, found.hypotheses, strict=False))
        gaps = [abs(e.score - f.score) / max(1.0, abs(e.score)) for e, f in pairs]
        gap = math.inf if any(map(math.isnan, gaps)) else max(gaps, default=0.0)
        same = all(e.text == f.text and e.ids == f.ids for e, f in pairs)
        as_many = len(expected.hypotheses) == len(found.hypotheses)
        if as_many and gap <= (TOLERANCE if same else TIE):
            return gap, not same
    raise ExportError(
        f"the artifact does not write what the model writes, asked {how}: {row.name}\n"
        f"  input:    {json.dumps(row.sample, ensure_ascii=False)}\n"
        f"  model:    {_told(expected)}\n"
        f"  artifact: {_told(found)}\n"
        "Nothing was written. This is a fault of the export: please report it with the run."
    )


def _told(answer: Prediction | DataError) -> str:
    if isinstance(answer, DataError):
        return f"refused: {answer}"
    return "; ".join(f"{one.text!r} ({one.score:.6f})" for one in answer.hypotheses)
