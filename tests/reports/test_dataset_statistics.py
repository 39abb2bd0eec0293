from __future__ import annotations

import json

import numpy as np

from t2t_torch.features import ClassLabel, Features, Image, Text, Turns
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder

LABELS = ClassLabelEncoder(["no", "yes"])
FEATURES = Features({"inputs": Text(ByteEncoder())}, {"targets": ClassLabel(LABELS)})
TRAIN = [("good", "yes"), ("bad", "no"), ("good", "yes"), ("good", "no"), ("", "no")]
DEV = [("bad", "no"), ("bad", "yes"), ("new", "no")]


def rows(pairs):
    return [{"inputs": text, "targets": label} for text, label in pairs]


def test_duplicates_are_found_within_and_across_splits(statistics_of):
    statistics = statistics_of(FEATURES, train=rows(TRAIN), dev=rows(DEV))
    train = statistics.repeats["train"]
    assert (train.rows, train.inputs, train.contradictions) == (1, 2, 3)
    (overlap,) = statistics.overlaps
    assert (overlap.split, overlap.other, overlap.rows, overlap.inputs) == ("dev", "train", 1, 2)
    assert statistics.starts["train"][2] == {"inputs": "good", "targets": "yes"}
    assert statistics.starts["dev"][1] == {"inputs": "bad", "targets": "yes"}


def test_empty_texts_are_those_of_nothing_but_their_end(statistics_of):
    statistics = statistics_of(FEATURES, train=rows(TRAIN))
    figures = statistics.features[0].splits["train"]
    assert figures.lengths.empty == 1
    assert figures.shortest[0].row == 4
    assert [one.row for one in figures.longest] == [0, 2, 3]
    turns = Features({"inputs": Turns(ByteEncoder())}, {})
    statistics = statistics_of(turns, train=[{"inputs": [""]}, {"inputs": ["x"]}])
    assert statistics.features[0].splits["train"].lengths.empty == 1


def test_a_split_without_rows_is_left_out(statistics_of):
    statistics = statistics_of(FEATURES, train=rows(TRAIN), dev=[])
    assert list(statistics.rows) == ["train"]


def test_a_reversed_problem_is_looked_at_as_a_model_sees_it(statistics_of):
    text = Text(ByteEncoder())
    straight = Features({"inputs": text}, {"targets": text})
    data = [{"inputs": "abc", "targets": "z"}, {"inputs": "a", "targets": "z"}]
    statistics = statistics_of(straight, train=data)
    assert [one.splits["train"].lengths.total for one in statistics.features] == [6, 4]
    assert (statistics.pairs[0].names, statistics.pairs[0].ratio) == (("inputs", "targets"), 4 / 6)
    assert statistics.repeats["train"].contradictions == 0
    statistics = statistics_of(straight, view=straight.reversed(), train=data)
    assert [one.splits["train"].lengths.total for one in statistics.features] == [4, 6]
    assert statistics.repeats["train"].contradictions == 2
    assert statistics.samples[0].values[0].text == "z"


def test_the_figures_are_json_and_hold_no_pictures(statistics_of):
    features = Features({"inputs": Image(2, 2, 1)}, {"targets": ClassLabel(LABELS)})
    picture = np.zeros((2, 2, 1), np.uint8)
    statistics = statistics_of(features, train=[{"inputs": picture, "targets": "no"}] * 2)
    plain = json.loads(json.dumps(statistics.plain(), allow_nan=False))
    assert plain["rows"] == {"train": 2}
    assert plain["repeats"]["train"]["rows"] == 1
    assert plain["features"][1]["splits"]["train"]["labels"]["counts"] == [2, 0]
    assert "pictures" not in plain["samples"][0]


def test_the_statistics_of_the_same_data_are_the_same(statistics_of):
    first = statistics_of(FEATURES, train=rows(TRAIN), dev=rows(DEV))
    assert first == statistics_of(FEATURES, train=rows(TRAIN), dev=rows(DEV))
