"""Lines in, lines out, of a model that labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.decode.label_files import form_of, input_of, label_file
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.errors import DataError
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Feature,
    Features,
    MultiLabel,
    Real,
    Span,
    Tags,
    Text,
    Turns,
    Words,
)
from t2t_torch.hparam import DataHParams, HParams
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem
from t2t_torch.text.byte import ByteEncoder
from t2t_torch.text.label import ClassLabelEncoder

TEXT, WORDS, TURNS = Text(ByteEncoder()), Words(ByteEncoder()), Turns(ByteEncoder())
LABELS = ClassLabelEncoder(["x", "y"])


class NoModel:
    """What a predictor needs of a model to read and encode its inputs."""

    hparams = HParams()

    def eval(self) -> NoModel:
        return self


class AsItIs:
    """What a predictor needs of a problem for the same."""

    full_name = "a_problem"
    batch_size_means_tokens = True
    batch_size_multiplier = 1

    def split_length(self, hparams: DataHParams) -> int:
        return 0

    def max_length(self, hparams: DataHParams) -> int:
        return hparams.batch_size

    def inputs_of(self, sample: Any) -> Sequence[Any]:
        return [sample]


def predictor(targets: dict[str, Feature] | None = None, **inputs: Feature) -> LabelPredictor:
    features = Features(inputs, targets or {"targets": ClassLabel(LABELS)})
    model: T2TModel = NoModel()  # type: ignore[assignment]
    problem: Problem = AsItIs()  # type: ignore[assignment]
    return LabelPredictor(model, problem, features)


@pytest.mark.parametrize(
    ("feature", "line", "expected"),
    [
        (TEXT, "my bill", "my bill"),
        (TEXT, '["my", "bill"]', '["my", "bill"]'),
        (TEXT, '"my bill"', '"my bill"'),
        (TEXT, "{odd", "{odd"),
        (TEXT, '{"inputs": "a\\nb"}', {"inputs": "a\nb"}),
        (WORDS, "my bill", "my bill"),
        (WORDS, '["my", "bill"]', {"inputs": ["my", "bill"]}),
        (WORDS, "[ laughs ] no", "[ laughs ] no"),
        (TURNS, '["hello", "I am off"]', {"inputs": ["hello", "I am off"]}),
        (TURNS, '{"inputs": ["hello"], "id": 3}', {"inputs": ["hello"], "id": 3}),
    ],
)
def test_a_line_of_one_field(feature: Feature, line: str, expected: Any) -> None:
    assert input_of(predictor(inputs=feature), line, "f, line 1") == expected


def test_a_line_of_several_fields_is_an_object_of_all() -> None:
    made = predictor(first=TEXT, second=WORDS)
    whole = {"first": "a", "second": ["b"]}
    assert input_of(made, json.dumps(whole), "f, line 1") == whole
    told = r'f, line 7 is no JSON object. .* \{"first": "...", "second": \["...", "..."\]\}'
    with pytest.raises(DataError, match=told):
        input_of(made, "a b", "f, line 7")


def test_an_object_without_the_field_is_refused_with_the_line_and_the_keys() -> None:
    told = r'f, line 2: the JSON object has no inputs, but text, id.* \{"inputs": "..."\}'
    with pytest.raises(DataError, match=told):
        input_of(predictor(inputs=TEXT), '{"text": "a", "id": 1}', "f, line 2")


def test_a_line_that_cannot_be_encoded_is_named_counted_from_one(tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text('["hello"]\nhello\n')
    told = rf'{source}, line 2: .*one text, where a list .*Write a line as .*\["...", "..."\]'
    with pytest.raises(DataError, match=told):
        label_file(predictor(inputs=TURNS), source, None)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize(
    ("feature", "value", "line"),
    [
        (ClassLabel(LABELS), "x", "x"),
        (Choice(("positive", "negative")), "negative", "negative"),
        (Span("inputs"), "from\nhere", "from here"),
        (Span("inputs"), "", ""),
        (Tags(LABELS), ["x", "y"], "x y"),
        (Tags(LABELS), [], ""),
        (Tags(ClassLabelEncoder(["x", "y z"])), ["x"], '["x"]'),
        (MultiLabel(LABELS), ["x"], '["x"]'),
        (MultiLabel(LABELS), [], "[]"),
        (Real(2), [0.5, 1.0], "[0.5, 1.0]"),
    ],
)
def test_a_kind_of_target_has_one_form(feature: Feature, value: Any, line: str) -> None:
    assert form_of(predictor({"targets": feature}, inputs=WORDS))(value) == line


def test_several_targets_are_an_object() -> None:
    made = predictor({"intent": ClassLabel(LABELS), "slots": Tags(LABELS)}, inputs=WORDS)
    value = {"intent": "x", "slots": ["ü"]}
    assert form_of(made)(value) == '{"intent": "x", "slots": ["ü"]}'
