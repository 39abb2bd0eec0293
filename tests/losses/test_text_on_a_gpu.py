"""A text's loss where a number that the device has found would be waited for.

Tensors on the device `meta` have shapes and no values: what waits for one fails there.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from loss_targets import batch_of, modality_of, training_loss

from t2t_torch.features import Text
from t2t_torch.layers.cross_entropy import rows_at_a_time
from t2t_torch.loss import TeacherOutput
from t2t_torch.modalities import text
from t2t_torch.modality import Hidden

SETTINGS = [
    {},
    {"loss": "focal"},
    {"confidence_penalty": 0.2},
    {"r_drop_alpha": 1.0},
    {"distill_from": "run", "distill_temperature": 3.0},
]
WEIGHTS = [None, torch.tensor([0.5, 2.0, 1.0, 0.0])]


def loss_and_gradients(settings, weights, device="cpu"):
    """The loss of a text's states, and its gradients by states and table."""
    torch.manual_seed(0)
    modality = modality_of(Text, layer_prepostprocess_dropout=0.1, **settings).train()
    modality.target_loss.label_smoothing = 0.1
    _, targets = batch_of(Text)
    states = [torch.randn(*targets.shape, 6) for _ in range(3)]
    teacher = modality_of(Text).to(device)
    modality.to(device)
    first, second, taught = (one.to(device).requires_grad_() for one in states)
    passes = [first, second] if "r_drop_alpha" in settings else [first]
    output = None
    if "distill_from" in settings:
        output = TeacherOutput(Hidden(taught), teacher.logits)
    weights = None if weights is None else weights.to(device)
    loss = training_loss(modality, passes, targets.to(device), weights, output, **settings)
    return loss, torch.autograd.grad(loss.sum * 0.5, [first, modality.top.weight])


@pytest.fixture
def plain_types(monkeypatch):
    """Autocast knows no device `meta`."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


@pytest.mark.parametrize("weights", WEIGHTS, ids=["", "weights"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_padding_that_is_computed_too_has_no_weight(settings, weights, monkeypatch):
    expected, by = loss_and_gradients(settings, weights)
    monkeypatch.setattr(text, "_present", lambda targets: None)
    found, found_by = loss_and_gradients(settings, weights)
    torch.testing.assert_close(found, expected)
    assert (batch_of(Text)[1] == 0).any()
    for a, b in zip(found_by, by, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["", "weights"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_training_loss_waits_for_no_number(settings, weights, plain_types):
    loss, _ = loss_and_gradients(settings, weights, device="meta")
    assert loss.sum.is_meta and loss.weight.is_meta


def test_positions_are_chosen_by_number_on_a_cpu_alone():
    targets = torch.tensor([[5, 0], [0, 7]])
    assert text._present(targets).tolist() == [0, 3]
    with pytest.raises(NotImplementedError):
        targets.to("meta").nonzero()
    assert text._present(targets.to("meta")) is None


def test_a_gpu_makes_more_logits_at_a_time_than_stay_in_a_processors_cache():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert rows_at_a_time(32_768, 2, cpu) == 256
    assert rows_at_a_time(32_768, 2, gpu) == 8_192
    assert rows_at_a_time(10**10, 4, gpu) == 1
