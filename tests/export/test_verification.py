"""When an artifact answers as its model does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from t2t_torch.errors import ExportError
from t2t_torch.export.verification import LabelComparison, VerificationRow, verify_rows
from t2t_torch.features import Features, Real
from t2t_torch.problem import Problem
from t2t_torch.runtime.prediction import Prediction


class _Answerer:
    """Answers anything in the same way."""

    features = Features({}, {})
    problem: Problem | None = None

    def __init__(self, values: Mapping[str, Any], scores: Mapping[str, Any]) -> None:
        self.answer = Prediction(values, {}, scores)

    def predict(self, inputs: Sequence[Any]) -> list[Prediction]:
        return [self.answer] * len(inputs)


def _difference(one: _Answerer, other: _Answerer) -> float:
    model: Any = one
    artifact: Any = other
    return verify_rows(
        LabelComparison(model), artifact, [VerificationRow("row 0", {"inputs": "go"}, 0)]
    ).difference


def test_labels_that_score_alike_may_change_places() -> None:
    go = _Answerer({"t": "go"}, {"t": {"go": 0.40003, "stay": 0.4, "wait": 0.19997}})
    stay = _Answerer({"t": "stay"}, {"t": {"stay": 0.40002, "go": 0.40001, "wait": 0.19997}})
    assert 0 < _difference(go, stay) < 1e-4
    apart = {"go": 0.40008, "stay": 0.39996, "wait": 0.19996}  # by 1.2e-4
    for one, other in (
        (go, _Answerer({"t": "wait"}, go.answer.scores)),
        (_Answerer({"t": "go"}, {"t": apart}), stay),
        (stay, _Answerer({"t": "go"}, {"t": apart})),
        (_Answerer({"t": "go"}, {}), _Answerer({"t": "stay"}, {})),
        (_Answerer({"t": ["go"]}, {"t": [0.5]}), _Answerer({"t": ["stay"]}, {"t": [0.5]})),
    ):
        with pytest.raises(ExportError, match="row 0"):
            _difference(one, other)


def test_numbers_near_zero_may_differ_as_others_of_their_scale_do() -> None:
    model, artifact = _Answerer({"t": [5.25]}, {}), _Answerer({"t": [5.0]}, {})
    with pytest.raises(ExportError, match="row 0"):
        _difference(model, artifact)
    model.features = Features({}, {"t": Real(1, (0.0,), (1e6,))})
    assert _difference(model, artifact) == pytest.approx(0.25e-6)
    model.features = Features({}, {"t": Real(1, (0.0,), (1e3,))})
    with pytest.raises(ExportError, match="row 0"):
        _difference(model, artifact)
