"""Metrics of any shape are averaged over batches, element by element."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from together import run_together

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import TrialError
from t2t_torch.trial.metrics import MetricAverages
from t2t_torch.trial.pytorch_trial import Reducer, reducers_of

PROCESS = Path(__file__).parent / "averaging_process.py"


def script():
    spec = importlib.util.spec_from_file_location("averaging_process", PROCESS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_element_is_the_mean_over_batches():
    averages = MetricAverages()
    for value in (1, 2, 6):
        recall = torch.tensor([value, 0.5 * value])
        averages.update({"error": value, "recall": recall, "table": np.full((2, 2), value)})
    averages.agree(ONE_PROCESS)
    assert averages.result() == {"error": 3.0}
    assert averages.arrays().keys() == {"recall", "table"}
    np.testing.assert_array_equal(averages.arrays()["recall"], [3.0, 1.5])
    np.testing.assert_array_equal(averages.arrays()["table"], [[3.0, 3.0], [3.0, 3.0]])


def test_a_tensor_of_one_number_is_a_number():
    averages = MetricAverages()
    averages.update({"loss": torch.tensor([0.5], requires_grad=True), "right": True})
    assert averages.result() == {"loss": 0.5, "right": 1.0}
    assert not averages.arrays()


def test_what_is_added_is_kept_in_double_precision():
    averages = MetricAverages()
    for _ in range(1000):
        averages.update({"x": np.float32(0.1)})
    assert averages.result()["x"] == pytest.approx(float(np.float32(0.1)), rel=1e-13)


def test_a_metric_that_is_no_number_makes_its_mean_none():
    averages = MetricAverages()
    for value in (1.0, float("nan")):
        averages.update({"x": value, "y": 1.0})
    assert np.isnan(averages.result()["x"])
    assert averages.result()["y"] == 1.0


def test_other_names_in_a_later_batch_are_told():
    averages = MetricAverages()
    averages.update({"error": 1.0, "recall": 1.0})
    with pytest.raises(TrialError) as caught:
        averages.update({"error": 1.0})
    assert str(caught.value) == (
        "validation_metrics returned error [] for batch 1, but error [], recall [] before. Return "
        "the same names with the same shapes for every batch, such as means over its examples."
    )


def test_another_shape_in_a_later_batch_is_told():
    averages = MetricAverages("evaluate_batch")
    averages.update({"error": 1.0, "recall": np.ones(3)})
    averages.update({"error": 1.0, "recall": np.ones(3)})
    with pytest.raises(TrialError) as caught:
        averages.update({"error": 1.0, "recall": np.ones(2)})
    assert str(caught.value).startswith(
        "evaluate_batch returned error [], recall [2] for batch 2, but error [], recall [3] before."
    )


def test_an_empty_validation_loader_is_told():
    for ask in (MetricAverages().result, MetricAverages().arrays):
        with pytest.raises(
            TrialError, match=r"gave no batch.*\(train, valid\): look at the second"
        ):
            ask()


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    written = tmp_path_factory.mktemp("averages") / "results.json"
    codes, errors = run_together([PROCESS, written], 2)
    assert codes == [0, 0], errors
    return json.loads(written.read_text("utf-8"))


@pytest.mark.parametrize("count", [5, 1])
def test_two_processes_find_what_one_finds(of_two, count):
    result = of_two["5 batches" if count == 5 else "1 batch"]
    alone = script().averaged(ONE_PROCESS, count)
    assert result.keys() == alone.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-15)


def test_processes_without_a_batch_or_with_other_metrics_are_told(of_two):
    assert "gave no batch" in of_two["no batch"]
    assert "returned b [] in process 1, but a [] before" in of_two["other names"]
    assert "returned a [2] in process 1, but a [1] before" in of_two["other shapes"]


def test_lists_are_arrays():
    averages = MetricAverages()
    averages.update({"each": [1.0, torch.tensor(2.0)], "pairs": [[1, 2], np.array([3, 4])]})
    averages.update({"each": (3.0, 4.0), "pairs": np.zeros((2, 2))})
    assert {name: mean.tolist() for name, mean in averages.arrays().items()} == {
        "each": [2.0, 3.0],
        "pairs": [[0.5, 1.0], [1.5, 2.0]],
    }


def test_each_metric_is_joined_as_its_reducer_says():
    kinds = {"sum": Reducer.SUM, "max": Reducer.MAX, "min": Reducer.MIN}
    averages = MetricAverages("evaluate_batch", kinds)
    for value in (2.0, -5.0, 1.0):
        averages.update({**dict.fromkeys(kinds, value), "mean": value, "most": [value, 0.0]})
    assert averages.result() == {
        "sum": -2.0,
        "max": 2.0,
        "min": -5.0,
        "mean": pytest.approx(-2 / 3),
    }


def test_what_is_no_reducer_is_refused():
    class Trial:
        def evaluation_reducer(self):
            return {"error": "mean"}

    with pytest.raises(TrialError, match=r"'mean'.*a pedl\.frameworks\.pytorch\.Reducer"):
        reducers_of(Trial())


def test_reducers_join_the_processes_too(of_two):
    """Five batches on two processes, and one: the second has none."""
    assert of_two["reduced"] == [
        {"max": -1.0, "min": 1.0, "sum": 15.0},
        {"max": -1.0, "min": 1.0, "sum": 1.0},
    ]


@pytest.mark.parametrize("buffer", [np.zeros(2), torch.zeros(2, dtype=torch.float64)])
def test_an_array_that_is_written_again_counts_as_it_was(buffer):
    averages = MetricAverages()
    for value in (1.0, 3.0):
        buffer[:] = value
        averages.update({"x": buffer})
    averages.agree(ONE_PROCESS)
    np.testing.assert_array_equal(averages.arrays()["x"], [2.0, 2.0])
