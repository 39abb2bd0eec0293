"""Answers as records, for JSON and for tables."""

from __future__ import annotations

from typing import Any

import pytest

from t2t_torch.decode.label_predictor import prediction_of
from t2t_torch.decode.outputs import (
    answer_record,
    table_cells,
    table_columns,
    table_value,
    tagged,
    target_record,
)
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
    Text,
    Words,
)
from t2t_torch.runtime.prediction import Hypothesis, Prediction, prediction_record
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.text.tags import scheme_of

LABELS = ClassLabelEncoder(["x", "y", "z"])
CITIES = Tags(ClassLabelEncoder(["O", "B-city", "I-city"]))


def test_labels_are_ranked_by_their_probability() -> None:
    scores = prediction_of("t", ClassLabel(LABELS), ([1], 0.6, [0.1, 0.6, 0.3])).scores["t"]
    assert scores == {"y": 0.6, "z": 0.3, "x": 0.1}
    assert list(scores) == ["y", "z", "x"]
    chosen = prediction_of("t", Choice(("a", "b")), ([0], 0.9, [0.9, 0.1]))
    assert (chosen.value, chosen.scores) == ("a", {"t": {"a": 0.9, "b": 0.1}})


def test_what_fills_up_a_sentence_is_no_word_of_it() -> None:
    found = prediction_of("t", CITIES, ([1, 2, 0, 0], None, [0.5, 0.6, 0.7, 0.8]), 3)
    assert found == Prediction.of_value("t", ["B-city", "I-city", "O"], None, [0.5, 0.6, 0.7])


def test_a_class_tells_its_best_labels() -> None:
    found = Prediction.of_value("t", "y", 0.6, {"y": 0.6, "z": 0.30000001, "x": 0.1})
    assert target_record("t", ClassLabel(LABELS), found, best=2) == {
        "value": "y",
        "probability": 0.6,
        "probabilities": {"y": 0.6, "z": 0.3},
    }


def test_tags_tell_their_words_and_the_spans_that_they_mark() -> None:
    features = Features({"inputs": Words(ByteEncoder())}, {"slots": CITIES})
    answer = Prediction({"slots": ["O", "B-city", "I-city"]}, {}, {"slots": [0.9, 0.8, 0.7]})
    record = answer_record(features, {"inputs": "to new york"}, answer)["slots"]
    assert record["words"] == ["to", "new", "york"]
    assert record["probabilities"] == [0.9, 0.8, 0.7]
    assert record["spans"] == [{"kind": "city", "first": 1, "last": 2, "text": "new york"}]
    assert tagged(record["words"], record["value"]) == "to/O new/B-city york/I-city"


def test_parts_of_speech_mark_no_spans() -> None:
    nouns = Tags(ClassLabelEncoder(["NN", "DT"]))
    assert scheme_of(CITIES.labels).letters and not scheme_of(nouns.labels).letters
    assert "spans" not in target_record("t", nouns, Prediction({"t": ["NN"]}), ["dog"])


def test_an_output_tells_its_score_and_the_other_hypotheses() -> None:
    best, other = Hypothesis("a", (5,), -1.0), Hypothesis("b", (6, 7), -2.0)
    assert prediction_record(Prediction.of_texts("targets", (best,))) == {
        "value": "a",
        "score": -1.0,
    }
    record = prediction_record(Prediction.of_texts("targets", (best, other)), ids=True)
    assert record["ids"] == [5]
    assert record["hypotheses"][1] == {"value": "b", "score": -2.0, "ids": [6, 7]}


@pytest.mark.parametrize(
    ("feature", "record", "cells"),
    [
        (
            ClassLabel(LABELS),
            {"value": "x", "probability": 0.5, "probabilities": {"x": 0.5}},
            ["x", 0.5, {"x": 0.5}],
        ),
        (MultiLabel(LABELS), {"value": ["x"], "probability": 0.5}, [["x"], 0.5, None]),
        (Choice(("a", "b")), {"value": "a", "probability": 0.5}, ["a", 0.5, None]),
        (SoftLabel(LABELS), {"value": {"x": 1.0}}, [{"x": 1.0}]),
        (Real(1), {"value": [2.799999952316284]}, [2.8]),
        (Real(2), {"value": [0.5, 1.0]}, [[0.5, 1.0]]),
        (Span(), {"value": "a b", "probability": 0.5}, ["a b", 0.5]),
        (
            CITIES,
            {"value": ["O", "B-city"], "probabilities": [0.5, 0.6], "words": ["to", "oslo"]},
            ["O B-city", None, [0.5, 0.6], "to/O oslo/B-city"],
        ),
        (Text(ByteEncoder()), {"value": "a", "score": -1.0}, ["a", -1.0]),
    ],
)
def test_each_kind_of_target_has_its_columns(
    feature: Feature, record: dict[str, Any], cells: list[Any]
) -> None:
    assert table_cells(feature, record) == cells
    assert len(table_columns(feature)) == len(cells)


def test_a_number_of_an_input_may_stand_alone() -> None:
    assert table_value(Real(1), 0.5) == table_value(Real(1), [0.5]) == 0.5
    assert table_value(Real(4), 3) == 3
