from __future__ import annotations

import numpy as np
import pytest

from t2t_torch.features import (
    ClassLabel,
    Features,
    Image,
    MultiLabel,
    Real,
    RowWeight,
    SoftLabel,
    Span,
    Tags,
    Text,
    Turns,
    Words,
    WordStarts,
)
from t2t_torch.features.text import TreeFeature
from t2t_torch.reports.statistics import Value, spread
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.text.tree import TransitionEncoder

BYTES = ByteEncoder()
LABELS = ClassLabelEncoder(["O", "B-x"])


def shown(statistics_of, features, row):
    (sample,) = statistics_of(features, train=[row], num_samples=1).samples
    return sample, {value.name: value for value in sample.values}


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [(100, 2, [25, 75]), (9, 3, [1, 4, 7]), (2, 5, [0, 1]), (0, 3, []), (10, 0, [])],
)
def test_samples_are_spread_over_the_split(rows, count, expected):
    assert spread(rows, count) == expected


def test_words_stand_beside_their_tags(statistics_of):
    words = Words(BYTES)
    features = Features(
        {"inputs": words},
        {"targets": Tags(LABELS, "inputs", allow_unknown=True)},
        notes={"starts": WordStarts("inputs", words)},
    )
    row = {"inputs": ["to", "Rome", "!"], "targets": ["O", "B-x", "?"]}
    sample, values = shown(statistics_of, features, row)
    (aligned,) = sample.aligned
    assert aligned.names == ("inputs", "targets")
    assert aligned.words == (("to", "O"), ("Rome", "B-x"), ("!", "(unknown)"))
    assert values["inputs"].text == "to Rome !"
    assert values["targets"].ids == (0, 1, -1)


def test_an_answer_is_shown_by_its_words(statistics_of):
    features = Features({"context": Words(BYTES)}, {"targets": Span("context")})
    context = ["It", "was", "Ada", "Lovelace", "."]
    _, values = shown(statistics_of, features, {"context": context, "targets": (2, 3)})
    assert values["targets"].text == "Ada Lovelace  (words 2 to 3 of context)"
    _, values = shown(statistics_of, features, {"context": context, "targets": (0, 0)})
    assert values["targets"].text == "It  (word 0 of context)"
    _, values = shown(statistics_of, features, {"context": context, "targets": None})
    assert values["targets"].text == "(no answer)"


def test_a_tree_is_shown_with_its_words(statistics_of):
    features = Features(
        {"inputs": Words(BYTES)}, {"targets": TreeFeature(TransitionEncoder(["S", "NP"]))}
    )
    row = {"inputs": ["dogs", "run"], "targets": "(S (NP dogs) run)"}
    _, values = shown(statistics_of, features, row)
    assert values["targets"].text == "[S [NP dogs ] run ]"


def test_every_other_kind_is_shown_as_text(statistics_of):
    features = Features(
        {
            "picture": Image(1, 2, 1),
            "dense": Real(size=2, mean=[1.0, 1.0], std=[2.0, 2.0]),
            "talk": Turns(BYTES),
        },
        {
            "class": ClassLabel(LABELS, allow_unknown=True),
            "many": MultiLabel(LABELS),
            "soft": SoftLabel(LABELS),
        },
        notes={"weight": RowWeight()},
    )
    row = {
        "picture": np.asarray([[[0], [255]]], np.uint8),
        "dense": [5, -1],
        "talk": ["hi", "ho"],
        "class": "what",
        "many": [],
        "soft": {"O": 0.25, "B-x": 0.75},
        "weight": 0.5,
    }
    sample, values = shown(statistics_of, features, row)
    assert {name: value.text for name, value in values.items()} == {
        "picture": "picture of 1 x 2 pixels",
        "dense": "5 -1",
        "talk": "[1] hi  [2] ho",
        "class": "(unknown)",
        "many": "(none)",
        "soft": "B-x 0.75, O 0.25",
        "weight": "0.5",
    }
    assert sample.pictures["picture"].tolist() == [[[0], [255]]]


def test_a_long_text_is_cut_with_an_ellipsis(statistics_of):
    features = Features({"inputs": Text(BYTES)}, {})
    _, values = shown(statistics_of, features, {"inputs": "word " * 100_000})
    assert values["inputs"].text.endswith("…")
    assert len(values["inputs"].text) < 1000
    assert values["inputs"].length == 500_001
    assert len(values["inputs"].ids) < 100
    assert values["inputs"].ids_text.endswith(" 121 113 116 …")


def test_large_ids_are_told_as_they_are_and_pictures_have_none():
    assert Value("inputs", "", (123456, 7), 2).ids_text == "123456 7"
    assert Value("dense", "", (0.123456,), 1).ids_text == "0.1235"
    assert Value("picture", "", (), 784).ids_text == ""
