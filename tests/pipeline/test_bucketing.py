"""Buckets, against tensor2tensor's own numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from t2t_torch.errors import HParamsError
from t2t_torch.pipeline.plan import batching_scheme, bucket_boundaries

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "bucketing.json").read_text())


@pytest.mark.parametrize(
    "case", GOLDEN["bucket_boundaries"], ids=lambda case: str(case["max_length"])
)
def test_boundaries_are_those_of_tensor2tensor(case):
    found = bucket_boundaries(case["max_length"], case["min_length"], case["length_bucket_step"])
    assert found == case["boundaries"]


@pytest.mark.parametrize("case", [c for c in GOLDEN["batching_scheme"] if "result" in c])
def test_schemes_are_those_of_tensor2tensor_before_its_divisor_rounding(case):
    scheme = batching_scheme(**case["args"])
    assert list(scheme.boundaries) == case["result"]["boundaries"]
    multiplier = case["args"].get("shard_multiplier", 1)
    assert list(scheme.batch_sizes) == [size * multiplier for size in case["raw_batch_sizes"]]
    assert scheme.min_length == case["result"]["min_length"]
    assert scheme.max_length == case["result"]["max_length"]


def test_an_impossible_range_of_lengths_is_refused():
    with pytest.raises(HParamsError, match="max_length=10 is less than min_length=11"):
        batching_scheme(100, 10, 8, 1.1, min_length=11)


def test_a_step_that_does_not_grow_is_refused():
    with pytest.raises(HParamsError, match=r"expected more than 1\.0"):
        bucket_boundaries(100, 8, 1.0)


def test_a_bucket_holds_lengths_from_the_boundary_below_to_just_under_its_own():
    scheme = batching_scheme(100, 20, 8, 1.5)
    assert scheme.boundaries == (8, 12, 18)
    assert scheme.buckets(np.array([1, 7, 8, 11, 12, 17, 18, 20])).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
