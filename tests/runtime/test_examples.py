"""When an artifact answers its examples as it did when it was exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import ArtifactError
from t2t_torch.features import OutputSpec
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.runtime.session import check_answers

LABELS = OutputSpec("t", "class", ("go", "stay"))
NUMBERS = OutputSpec("t", "numbers", size=1)


def _check(target: OutputSpec, before: Sequence[Any], now: Sequence[tuple[Any, Mapping[str, Any]]]):
    examples = [
        {"input": {}, "answer": {"values": {"t": value}, "probabilities": {"t": 0.5}}}
        for value in before
    ]
    found = [Prediction({"t": value}, {"t": 0.5}, {"t": scores}) for value, scores in now]
    check_answers(Path("artifact"), [target], examples, found)


def test_another_label_is_accepted_only_if_it_is_as_probable() -> None:
    _check(LABELS, ["go"], [("stay", {"go": 0.49998, "stay": 0.50002})])
    for scores in ({"go": 0.45, "stay": 0.55}, {"stay": 0.5}):
        with pytest.raises(ArtifactError, match="'t' is 'stay', and was 'go'"):
            _check(LABELS, ["go"], [("stay", scores)])


def test_numbers_near_zero_may_differ_as_their_scale_is_rounded() -> None:
    _check(NUMBERS, [[1e6], [0.5]], [([1e6], {}), ([0.75], {})])
    with pytest.raises(ArtifactError, match=r"was \[0\.5\]"):
        _check(NUMBERS, [[100.0], [0.5]], [([100.0], {}), ([0.75], {})])
    with pytest.raises(ArtifactError, match="was"):
        _check(NUMBERS, [[1e6], [0.5]], [([1e6], {}), ([100.0], {})])
