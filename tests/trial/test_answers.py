"""What a trial's methods return is checked, and each fault is told by its own sentence."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from t2t_torch.errors import TrialError
from t2t_torch.trial import metrics as answers

X = torch.ones(2, requires_grad=True)


def said(check, *arguments) -> str:
    with pytest.raises(TrialError) as caught:
        check(*arguments)
    return str(caught.value)


@pytest.fixture
def warned(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(answers.logging, "warning", lambda line, *given: lines.append(line % given))
    return lines


def test_a_model_is_a_module_that_can_be_trained():
    model = nn.Linear(1, 1)
    assert answers.check_model(model) is model
    assert "returned None; an nn.Module was expected. Is a return" in said(
        answers.check_model, None
    )
    assert "returned a list; an nn.Module" in said(answers.check_model, [model])
    assert "a ReLU without a parameter that can be trained" in said(answers.check_model, nn.ReLU())
    for parameter in model.parameters():
        parameter.requires_grad = False
    assert "a Linear without a parameter" in said(answers.check_model, model)


def test_an_optimizer_trains_the_models_parameters_and_no_others(warned):
    model, other = nn.Linear(1, 1), nn.Linear(3, 1)
    whole = torch.optim.SGD(model.parameters(), lr=0.1)
    assert answers.check_optimizer(whole, model) is whole
    assert not warned
    assert "returned a Linear; a torch.optim.Optimizer" in said(
        answers.check_optimizer, model, model
    )
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert "2 parameters that are not the model's, the first of shape [1, 3]" in said(
        answers.check_optimizer, both, model
    )
    answers.check_optimizer(torch.optim.SGD([model.weight], lr=0.1), model)
    assert warned == ["optimizer does not train bias."]


def test_the_loss_is_one_number_alone_or_by_the_name_loss():
    assert answers.total_of(X.sum()) == 2
    assert answers.total_of({"other": X, "loss": X.sum()}) == 2
    assert answers.total_of(X.sum().reshape(1, 1)) == 2


def test_what_is_no_loss_is_told():
    assert said(answers.total_of, {"a": X.sum(), "b": X.sum()}) == (
        "losses returned a dict with 'a', 'b', but without 'loss'. The value of 'loss' is what is "
        "trained on: add it."
    )
    assert said(answers.total_of, X) == (
        "losses returned a tensor of shape [2]; one number was expected. Reduce it by .mean() or "
        ".sum()."
    )
    assert said(answers.total_of, {"loss": X}).startswith("losses: 'loss' is a tensor of shape [2]")
    assert "train_batch returned a float; a tensor" in said(answers.total_of, 1.0, "train_batch")
    assert "losses returned None; a tensor" in said(answers.total_of, None)
    assert "no gradient leads back from" in said(answers.total_of, X.sum().detach())
    with torch.no_grad():
        assert answers.total_of(X.sum().detach()) == 2


def test_metrics_are_numbers_by_name():
    metrics = {
        "float": 0.5,
        "int": 1,
        "bool": True,
        "scalar": np.float32(1),
        "array": np.ones((2, 2)),
        "tensor": torch.ones(3),
    }
    assert answers.check_metrics(metrics, "validation_metrics") is metrics


@pytest.mark.parametrize(
    ("metrics", "fault"),
    [
        (None, "returned None; a dict of names and values was expected. Is a return missing?"),
        ([1.0], "returned a list; a dict"),
        ({}, "returned an empty dict; at least one metric was expected."),
        ({1: 0.5}, "returned a metric named 1; a name is a string."),
        ({"a": "high"}, "'a' is a str; a number"),
        ({"a": None}, "'a' is None; a number"),
        ({"a": [1.0, "b"]}, "'a' is a list; a number"),
        ({"a": [[1.0], [1.0, 2.0]]}, "'a' is a list; a number"),
        ({"a": []}, "'a' is a list; a number"),
        ({"a": np.array(["x"])}, "'a' is an array <U1 [1]; a number"),
    ],
)
def test_what_is_no_metric_is_told(metrics, fault):
    assert fault in said(answers.check_metrics, metrics, "validation_metrics")


def test_a_training_batch_reports_losses_and_metrics():
    joined = answers.join_metrics(X.sum(), {"error": 0.5})
    assert list(joined) == ["loss", "error"]
    assert answers.join_metrics({"loss": X.sum(), "l1": 2.0}, {"loss": 2.0})["loss"] == 2.0
    assert "'l1' is the name of a loss, and has another value" in said(
        answers.join_metrics, {"loss": X.sum(), "l1": 2.0}, {"l1": 3.0}
    )


@pytest.mark.parametrize("name", sorted(answers.OF_THE_LOOP))
def test_what_a_report_says_itself_is_the_name_of_no_metric(name):
    fault = f"training_metrics returned '{name}', which each line of metrics.jsonl says itself"
    assert fault in said(answers.join_metrics, X.sum(), {"error": 1.0, name: 1.0})
    assert f"losses returned '{name}'" in said(answers.join_metrics, {"loss": X.sum(), name: 1}, {})
    if name in ("step", "split", "time"):
        assert "other name than these: split, step, time." in said(
            answers.check_metrics, {name: 1.0}, "evaluate_batch"
        )
    else:
        assert answers.check_metrics({name: 1.0}, "evaluate_batch")


def test_there_may_be_no_training_metrics():
    assert list(answers.join_metrics(X.sum(), {})) == ["loss"]
    assert "returned None; a dict" in said(answers.join_metrics, X.sum(), None)


def test_a_text_among_the_losses_is_left_out():
    losses = {"loss": X.sum(), "note": "text"}
    assert list(answers.join_metrics(losses, {"error": 1.0}, "train_batch")) == ["loss", "error"]
    assert list(losses) == ["loss", "note"]


class NeedsClosure(torch.optim.SGD):
    def step(self, closure):
        raise AssertionError(closure)


class TakesMore(torch.optim.SGD):
    def step(self, *args, scale=None, **kwargs):
        return super().step(*args, **kwargs)


def test_an_optimizer_needs_no_closure_also_when_a_scheduler_stands_on_it():
    model = nn.Linear(1, 1)
    for kind in (torch.optim.SGD, torch.optim.Adam, TakesMore):
        optimizer = kind(model.parameters(), lr=0.1)
        assert answers.check_optimizer(optimizer, model) is optimizer
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
        assert answers.check_optimizer(optimizer, model) is optimizer
    for kind in (NeedsClosure, torch.optim.LBFGS):
        assert "needs a closure" in said(
            answers.check_optimizer, kind(model.parameters(), lr=0.1), model
        )


def test_loaders_are_two():
    data = TensorDataset(torch.ones(3, 1), torch.ones(3))
    loader = DataLoader(data)
    assert answers.check_loaders([loader, loader]) == (loader, loader)
    assert answers.check_loaders((loader, [1])) == (loader, [1])
    for wrong, kinds in (
        (loader, "a DataLoader"),
        ((loader,) * 3, "a DataLoader, a DataLoader, a DataLoader"),
        ((loader, None), "a DataLoader, None"),
        ((data, loader), "a TensorDataset, a DataLoader"),
    ):
        assert f"returned {kinds}; two loaders" in said(answers.check_loaders, wrong)


def test_a_loader_without_a_length_is_a_loader():
    class Endless(IterableDataset):
        def __iter__(self):
            yield 1

    loader = DataLoader(Endless())
    assert answers.check_loaders((loader, loader)) == (loader, loader)


def test_a_batch_is_a_pair():
    pair = namedtuple("Pair", ["x", "y"])(1, 2)
    for batch in ([1, 2], (1, 2), pair):
        assert answers.check_batch_pair(batch) == (1, 2)
    assert "yields a tensor float32 [2]. Each batch is a pair of inputs and labels" in said(
        answers.check_batch_pair, torch.ones(2)
    )
    assert "yields a tuple of 3" in said(answers.check_batch_pair, (1, 2, 3))
    assert "yields a dict of 2" in said(answers.check_batch_pair, {"x": 1, "y": 2})


@pytest.mark.parametrize("size", [8, np.int64(8), np.array(8), torch.tensor(8)])
def test_a_batch_size_is_a_whole_number(size, warned):
    answers.check_batch_size(size, DataLoader([1], batch_size=8))
    assert not warned


@pytest.mark.parametrize("size", [0, -1, 2.0, None, True, "8", torch.tensor(0), np.ones(1)])
def test_what_is_no_batch_size_is_told(size):
    assert "a whole number of examples, at least 1" in said(answers.check_batch_size, size, None)


def test_a_loader_of_another_batch_size_wins_and_that_is_said(warned):
    answers.check_batch_size(32, DataLoader([1], batch_size=16))
    assert warned == [
        "batch_size is 32, but the training loader makes batches of 16, which are used."
    ]
