"""What a trial's training tells: means over batches, the same over a resume."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.trial.metrics import TrainingReport


def reported(*batches):
    report = TrainingReport()
    for values in batches:
        report.add(values)
    return report


def test_each_is_the_mean_over_the_batches_that_have_it():
    report = reported({"loss": 1.0, "rare": 8}, {"loss": torch.tensor(2.0)}, {"loss": np.array(6)})
    assert report.read(ONE_PROCESS, {})[0] == {"loss": 3.0, "rare": 8.0}


def test_what_has_more_numbers_is_kept_element_by_element():
    report = reported({"vector": torch.tensor([1, 2])}, {"vector": [3, torch.tensor(4)]})
    numbers, arrays = report.read(ONE_PROCESS, {})
    assert numbers == {}
    assert arrays["vector"].tolist() == [2.0, 3.0]


def test_what_has_other_shapes_in_other_batches_is_told_by_its_mean():
    report = reported({"each": torch.tensor([1, 2])}, {"each": [3]}, {"each": np.ones((2, 2))})
    assert report.read(ONE_PROCESS, {}) == ({"each": pytest.approx((1.5 + 3 + 1) / 3)}, {})


def test_a_report_restarts_when_it_was_read():
    report = reported({"loss": 1.0})
    report.read(ONE_PROCESS, {})
    assert report.read(ONE_PROCESS, {})[0] == {}
    report.add({"loss": 5.0})
    assert report.read(ONE_PROCESS, {})[0] == {"loss": 5.0}


def test_no_gradient_is_held_by_it():
    loss = torch.ones([], requires_grad=True) * 2
    report = reported({"loss": loss})
    assert not report._sums["loss"][1].requires_grad


@pytest.mark.parametrize("odd", [0.1, math.nan, math.inf, -math.inf])
def test_what_was_told_so_far_goes_on_from_json(odd):
    batches = [
        {"loss": 0.1, "odd": odd, "each": [odd, 2.0]},
        {"loss": 1e300},
        {"loss": 1 / 3, "odd": 2.0, "each": [1.0, 1.0]},
    ]
    whole = reported(*batches).read(ONE_PROCESS, {})

    state = json.loads(json.dumps(reported(*batches[:2]).state(ONE_PROCESS), allow_nan=False))
    after = TrainingReport()
    after.restore(state)
    after.add(batches[2])
    assert str(after.read(ONE_PROCESS, {})) == str(whole)  # as nan is not nan
