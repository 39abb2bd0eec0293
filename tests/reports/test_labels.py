from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from t2t_torch.data.shards import Ragged
from t2t_torch.errors import DataError
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Features,
    Gazetteer,
    MultiLabel,
    SoftLabel,
    Tags,
    Text,
    Words,
    WordShape,
)
from t2t_torch.reports.column_statistics import StoredColumn, tag_faults
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.text.tags import scheme_of

LABELS = ClassLabelEncoder(["sad", "glad", "mad"])
TEXT = Text(ByteEncoder())


def counts(statistics_of, feature, values, field="targets"):
    rows = [{"inputs": "x", field: value} for value in values]
    statistics = statistics_of(Features({"inputs": TEXT}, {"targets": feature}), dev=rows)
    (found,) = (one for one in statistics.features if one.name == "targets")
    return found.splits["dev"].labels


def test_classes_and_unknown_ones_are_counted(statistics_of):
    found = counts(
        statistics_of, ClassLabel(LABELS, allow_unknown=True), ["mad", "mad", "bad", "sad"]
    )
    assert found.counts == (1, 0, 2)
    assert (found.unknown, found.total) == (1, 4)
    assert found.absent == ("glad",)
    assert found.most_frequent(2) == [("mad", 2), ("sad", 1)]


def test_several_labels_a_row_are_counted_and_rows_without(statistics_of):
    found = counts(statistics_of, MultiLabel(LABELS), [["mad", "sad"], [], ["sad"]])
    assert (found.counts, found.none) == ((2, 0, 1), 1)


def test_soft_labels_are_summed(statistics_of):
    found = counts(statistics_of, SoftLabel(LABELS), [{"mad": 0.25, "sad": 0.75}, {"sad": 1.0}])
    assert found.counts == pytest.approx((1.75, 0, 0.25))


def test_choices_tags_shapes_and_gazetteers_are_counted(statistics_of):
    assert counts(statistics_of, Choice(["first", "second"]), ["second"] * 3).counts == (0, 3)
    words = Words(ByteEncoder())
    tags = Tags(LABELS, "inputs", allow_unknown=True)
    shape = WordShape("inputs")
    gazetteer = Gazetteer("inputs", LABELS, width=2)
    statistics = statistics_of(
        Features({"inputs": words, "shape": shape, "list": gazetteer}, {"targets": tags}),
        train=[
            {
                "inputs": ["Oh", "no"],
                "targets": ["mad", "what"],
                "gazetteer": [{"glad": 0.5, "mad": 1.0}, {}],
            }
        ],
    )
    found = {one.name: one.splits["train"].labels for one in statistics.features}
    assert (found["targets"].counts, found["targets"].unknown) == ((0, 0, 1), 1)
    assert dict(found["shape"].most_frequent(2)) == {"lower": 1, "capitalized": 1}
    assert found["list"].counts == (0, 1, 1)


def test_data_of_a_problem_that_has_changed_since_is_refused(statistics_of, monkeypatch):
    more = ClassLabel(ClassLabelEncoder(["sad", "glad", "mad", "bad"]))
    features = Features({"inputs": TEXT}, {"targets": ClassLabel(LABELS)})
    monkeypatch.setattr(
        ClassLabel, "encode", lambda self, value: more.encoder.encode(value) and [3]
    )
    with pytest.raises(DataError, match=r"ids up to 3, its vocabulary or labels 3 of them"):
        statistics_of(features, train=[{"inputs": "x", "targets": "bad"}])


def test_sentences_that_break_the_rules_of_their_tags_are_counted_as_one_by_one():
    labels, drawn = ("B-x", "E-x", "M-x", "O", "S-x"), random.Random(5)
    rules = scheme_of(labels).rules(labels)
    rows = [[drawn.randrange(-1, 5) for _ in range(drawn.randint(1, 4))] for _ in range(400)]

    def breaks(row):
        pairs = itertools.pairwise(row)
        return (
            (row[0] >= 0 and not rules.starts[row[0]])
            or (row[-1] >= 0 and not rules.ends[row[-1]])
            or any(min(a, b) >= 0 and not rules.follows[a][b] for a, b in pairs)
        )

    packed = Ragged.from_lists(rows, np.int32)
    faults = tag_faults(labels, StoredColumn([(packed.values, packed.offsets)]))
    assert faults[:2] == (400, sum(map(breaks, rows))) and 0 < faults.broken < 400
    assert not tag_faults(labels, StoredColumn([(packed.values[:0], packed.offsets[:1])])).broken
