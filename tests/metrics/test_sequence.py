"""Metrics, computed by hand."""

import math

import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import Text
from t2t_torch.metrics.evaluation import Evaluation
from t2t_torch.model import Loss, Output
from t2t_torch.text.integer import IntegerEncoder

TEXT = {"targets": Text(IntegerEncoder(8))}
TARGETS = torch.tensor([[3, 1, 0, 0], [2, 5, 4, 1]])


def logits_for(guesses):
    """Logits whose most likely ids are `guesses`, the next most likely the ids after them."""
    guesses = torch.tensor(guesses)
    logits = torch.zeros(*guesses.shape, 10)
    for rank in range(10):
        logits.scatter_(-1, ((guesses + rank) % 10)[..., None], 10.0 - rank)
    return logits


LOGITS = logits_for([[3, 1, 7, 7], [2, 4, 8, 1]])


@pytest.mark.parametrize(
    ("name", "value", "weight"),
    [("accuracy", 4, 6), ("accuracy_top5", 5, 6), ("accuracy_per_sequence", 1, 2)],
)
def test_padding_does_not_count(name, value, weight):
    found = registry.metric(name)(LOGITS, TARGETS, TARGETS != 0)
    assert [int(x) for x in found] == [value, weight]


def test_the_log_perplexity_is_the_mean_log_probability():
    logits = torch.zeros(2, 4, 10)
    value, weight = registry.metric("neg_log_perplexity")(logits, TARGETS, TARGETS != 0)
    assert value.item() / weight.item() == pytest.approx(-math.log(10))


def test_batches_of_any_size_add_up_to_the_same_result():
    whole, parts = (Evaluation(TEXT, {"targets": ["accuracy"]}, "p_rev") for _ in range(2))
    losses = {"targets": Loss(torch.tensor(12.0), torch.tensor(6.0))}
    whole.update(Output({"targets": LOGITS}, losses), {"targets": TARGETS})
    for row, total in ((0, 5.0), (1, 7.0)):
        weight = (TARGETS[row] != 0).sum().float()
        losses = {"targets": Loss(torch.tensor(total), weight)}
        parts.update(
            Output({"targets": LOGITS[row : row + 1]}, losses), {"targets": TARGETS[row : row + 1]}
        )
    expected = {"loss": 2.0, "metrics-p_rev/targets/accuracy": pytest.approx(4 / 6)}
    assert whole.result() == expected
    assert parts.result() == expected


def test_the_loss_is_over_the_weights_of_rows_also_below_one():
    evaluation = Evaluation(TEXT, {"targets": []}, "p")
    losses = {"targets": Loss(torch.tensor(0.3), torch.tensor(0.1))}
    evaluation.update(Output({"targets": LOGITS}, losses), {"targets": TARGETS})
    assert evaluation.result()["loss"] == pytest.approx(3.0)
