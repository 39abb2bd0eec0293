"""Scores of spans are those of seqeval 1.2.2 in its default mode, tags that break a scheme too.

`make_seqeval.py` writes what they are compared with.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from t2t_torch.features import IGNORED, Tags
from t2t_torch.metrics.metric import metric_of
from t2t_torch.text.encoder import ClassLabelEncoder

CASES = json.loads((Path(__file__).parent / "seqeval.json").read_text("utf-8"))["cases"]
NAMES = ("precision", "recall", "f1")


def ours(case, metric):
    """Returns what a metric of tags tells of a case: its value, and those of each kind."""
    labels = sorted({tag for rows in (case["right"], case["found"]) for row in rows for tag in row})
    ids = {label: place for place, label in enumerate(labels)}
    width = max(map(len, case["right"]))

    def padded(rows, filler):
        return torch.tensor([[ids[t] for t in r] + [filler] * (width - len(r)) for r in rows])

    logits = torch.nn.functional.one_hot(padded(case["found"], 0), len(labels)).double()
    found = metric_of(metric, Tags(ClassLabelEncoder(labels)))
    sums = found.update(logits, padded(case["right"], IGNORED))
    return found.result(sums), found.results(metric, sums)


@pytest.mark.parametrize("place", range(len(CASES)))
def test_spans_are_scored_as_seqeval_scores_them_in_its_default_mode(place):
    case = CASES[place]
    found = {name: ours(case, f"span_{name}")[0] for name in NAMES}
    assert found == pytest.approx({name: case["default"][name] for name in NAMES})


@pytest.mark.parametrize("place", range(len(CASES)))
def test_each_kind_of_span_is_scored_as_seqeval_scores_it(place):
    case = CASES[place]
    _, of_kinds = ours(case, "span_f1_per_label")
    expected = case["default"]["f1_of_kinds"]
    assert of_kinds == pytest.approx({f"span_f1_per_label/{k}": f1 for k, f1 in expected.items()})


def test_the_cases_tell_the_default_mode_from_the_strict_one():
    for scheme in ("BIO", "IOBES"):
        differ = [
            case["default"]["f1"] != pytest.approx(case["strict"]["f1"])
            for case in CASES
            if case["scheme"] == scheme
        ]
        assert sum(differ) >= 10
