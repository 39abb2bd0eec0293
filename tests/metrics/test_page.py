"""The page on metrics tells all of them, and of each what it is of and which end is good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import (
    Choice,
    ClassLabel,
    MultiLabel,
    PixelSequence,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
)
from t2t_torch.metrics.metric import WITH_IDS, lower_is_better, metric_of
from t2t_torch.metrics.text_scores import SCORES, TOKENIZERS
from t2t_torch.text.encoder import ClassLabelEncoder

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \| .* \| (higher|lower) \|.*\|$", PAGE, re.M)
KINDS = {
    "text": Text,
    "picture": PixelSequence,
    "tags": Tags,
    "class": ClassLabel,
    "distribution": SoftLabel,
    "labels": MultiLabel,
    "choice": Choice,
    "numbers": Real,
    "span": Span,
    "tree": TreeFeature,
}


def test_the_page_tells_every_metric_once():
    assert sorted(name for name, _, _ in ROWS) == registry.list_names("metric")


@pytest.mark.parametrize(("name", "of", "better"), ROWS)
def test_the_page_tells_what_a_metric_is_of_and_which_end_is_good(name, of, better):
    kinds = getattr(registry.metric(name), "of", WITH_IDS)
    assert {KINDS[kind] for kind in of.split(", ")} == set(kinds)
    assert lower_is_better(name) is (better == "lower")


def test_the_page_tells_every_score_and_tokenizer():
    table = PAGE.split("| Score | Definition | Unit |")[1]
    firsts = re.findall(r"^\| ([^|]*) \|", table, re.M)
    assert {name for first in firsts for name in re.findall(r"`(\w+)`", first)} == set(SCORES)
    for tokenizer in TOKENIZERS:
        assert re.search(rf"\b{tokenizer}\b", PAGE)


def test_the_metrics_that_the_page_writes_are_found_and_count(own_registry, tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    shelf = tmp_path / "shelf_of_metrics"
    shelf.mkdir()
    (shelf / "mine.py").write_text(code, "utf-8")
    registry.import_usr_dir(shelf)

    stars = metric_of("distance_between_stars", ClassLabel(ClassLabelEncoder("12345")))
    sums = stars.update(torch.eye(5), torch.tensor([0, 3, 2, 3, 0]))
    assert stars.result(sums) == (2 + 4) / 5
    assert lower_is_better("metrics-stars/targets/distance_between_stars")

    jaccard = metric_of("jaccard", MultiLabel(ClassLabelEncoder("ab")))
    sums = jaccard.update(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([[1, 0], [0, 0]]))
    assert jaccard.result(sums) == (1 / 2 + 0) / 2
