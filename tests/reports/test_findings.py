from __future__ import annotations

import dataclasses
import json
import math

from t2t_torch.reports.column_statistics import LabelCounts, Overlap
from t2t_torch.reports.data_report import findings, label_findings, sections_of
from t2t_torch.reports.page import page


def test_what_is_odd_is_told(evil_statistics):
    found = findings(evil_statistics)
    assert "2 rows of dev (100 %) have inputs that are in train with other targets." in found
    assert "1 row of dev has nothing in targets." in found
    assert "1 label of class in dev is unknown to training." in found
    assert "2 labels of class are never in training: good, never." in found
    assert "50.0 % of the tokens of words in train are unknown words." in found
    assert "1 row of training is too long or too short, and left out of every epoch." in found
    assert any(
        one.startswith("100 % of the labels of class in training are <script>") for one in found
    )


def test_rare_imbalanced_and_similar_labels_are_found():
    labels = LabelCounts(("billing", "Billing", "legal", "sales", "x "), (900, 40, 3, 300, 12))
    found = list(label_findings("queue", labels, is_class=True))
    assert found == [
        "1 label of queue occurs fewer than 10 times in training: legal (3).",
        "The labels of queue are imbalanced: billing is in 900 rows, x␣ in 12 of 1,255. Accuracy "
        "hides the rare ones: look at f1_macro.",
        "Labels of queue differ only by case or blanks: 'billing' = 'Billing'; t2t-datagen "
        "--merge_labels merges them.",
    ]
    assert len(list(label_findings("tags", labels, is_class=False))) == 2
    two = [*label_findings("mood", LabelCounts(("no", "yes"), (95, 5)), is_class=True)]
    assert any("no is in 95 rows of 100. Accuracy" in one for one in two)
    even = LabelCounts(("a", "b"), (30, 20))
    assert list(label_findings("queue", even, is_class=True)) == []


def test_rows_in_two_splits_are_told_once(evil_statistics):
    overlap = Overlap("dev", "train", rows=1, examples=(), inputs=2, input_examples=())
    found = findings(dataclasses.replace(evil_statistics, overlaps=(overlap,)))
    plain_text = [one for one in found if "of dev (50.0 %)" in one]
    assert plain_text == [
        "1 row of dev (50.0 %) is also in train.",
        "1 row of dev (50.0 %) has inputs that are in train with other targets.",
    ]


def test_bad_records_that_were_left_out_are_told(evil_statistics):
    found = findings(dataclasses.replace(evil_statistics, skipped={"train": 3, "dev": 0}))
    assert found[0] == "3 bad records of train were left out by t2t-datagen."
    assert not [one for one in found if "bad record" in one and "dev" in one]


def test_without_inputs_whole_rows_alone_are_told(evil_statistics):
    overlap = Overlap("dev", "train", rows=2, examples=(), inputs=None, input_examples=())
    found = findings(dataclasses.replace(evil_statistics, overlaps=(overlap,)))
    plain_text = [one for one in found if " of dev (" in one and "train" in one]
    assert plain_text == ["2 rows of dev (100 %) are also in train."]


def test_of_plain_data_nothing_is_told(evil_statistics):
    plain = dataclasses.replace(evil_statistics, features=(), repeats={}, overlaps=(), buckets=None)
    assert findings(plain) == []


def test_infinite_numbers_of_old_shards_are_told_and_written(evil_statistics):
    score = next(one for one in evil_statistics.features if one.name == "score")
    train = score.splits["train"]
    (numbers,) = train.numbers
    odd = dataclasses.replace(train, numbers=(dataclasses.replace(numbers, mean=math.inf),))
    features = tuple(
        dataclasses.replace(one, splits={**one.splits, "train": odd}) if one is score else one
        for one in evil_statistics.features
    )
    statistics = dataclasses.replace(evil_statistics, features=features)
    assert "score of train has numbers that are infinite" in "\n".join(findings(statistics))
    plain_text = page(statistics, sections_of(statistics), findings(statistics))
    assert ">inf<" in plain_text
    assert "Infinity" not in json.dumps(statistics.plain())
