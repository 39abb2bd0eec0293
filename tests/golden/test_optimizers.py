"""Twenty updates of four tensors are those of tensor2tensor 1.15.7, for each of its optimizers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.hparam import HParams
from t2t_torch.optim.gradient import GradientFinisher

FOLDER = Path(__file__).parent
GOLDEN = json.loads((FOLDER / "optimizers.json").read_text())
ARRAYS = dict(np.load(FOLDER / "optimizers.npz"))
CASES = {case["name"]: case for case in GOLDEN["cases"]}
SHAPES = GOLDEN["shapes"]


def hparams_of(case):
    """Our fields of the golden's; its two cases without hparams are of Adafactor's defaults."""
    values = {k: v for k, v in case["hparams"].items() if k in HParams.model_fields}
    if "note" in case["hparams"]:
        scaled = "multiply_by_parameter_scale=True" in case["hparams"]["note"]
        values = {
            "optimizer": "adafactor",
            "optimizer_adafactor_multiply_by_parameter_scale": scaled,
        }
    return HParams().replace(**values)


def trajectory(case, hparams):
    """The parameters before the first and after each update, by name."""
    parameters = {name: nn.Parameter(torch.tensor(ARRAYS[f"init/{name}"])) for name in SHAPES}
    optimizer = registry.optimizer(hparams.optimizer)(list(parameters.items()), hparams)
    every = hparams.optimizer_multistep_accumulate_steps or 1
    seen = {name: [p.detach().numpy().copy()] for name, p in parameters.items()}
    for step in range(GOLDEN["steps"]):
        if (step + 1) % every == 0:
            for name, parameter in parameters.items():
                gradients = ARRAYS[f"grad/{name}"][step + 1 - every : step + 1]
                parameter.grad = torch.tensor(gradients.mean(0))
            for group in optimizer.param_groups:
                group["lr"] = case["learning_rate_per_step"][step]
                group["updates"] = step // every
            optimizer.step()
        for name, parameter in parameters.items():
            seen[name].append(parameter.detach().numpy().copy())
    return {name: np.stack(values) for name, values in seen.items()}


@pytest.mark.parametrize("name", [name for name in CASES if name != "adam_w"])
def test_the_updates_are_those_of_tensor2tensor(name):
    found = trajectory(CASES[name], hparams_of(CASES[name]))
    for tensor in SHAPES:
        expected = ARRAYS[f"{name}/{tensor}"]
        # Sums in float32 over 20 steps; the golden's own recomputation was within 4e-5.
        np.testing.assert_allclose(found[tensor], expected, rtol=1e-4, atol=2e-6, err_msg=tensor)


def test_adam_w_decays_matrices_as_tensor2tensor_if_the_rate_is_divided_out():
    # tensor2tensor takes weight_decay of a weight whatever the learning rate; ours, that times
    # the rate.  It decays vectors, too.
    case = CASES["adam_w"]
    rate = case["constant_learning_rate"]
    hparams = hparams_of(case)
    found = trajectory(case, hparams.replace(weight_decay=hparams.weight_decay / rate))
    for tensor in ("m2", "t3"):
        np.testing.assert_allclose(found[tensor], ARRAYS[f"adam_w/{tensor}"], rtol=1e-4, atol=2e-6)
    undecayed = trajectory(case, hparams.replace(weight_decay=0.0))
    for tensor in ("v1", "s0"):
        np.testing.assert_array_equal(found[tensor], undecayed[tensor])


@pytest.mark.parametrize("case", GOLDEN["weight_decay"], ids=lambda case: str(case["rate"]))
def test_the_penalty_of_the_weights_is_that_of_tensor2tensor(case):
    parameters = {
        name: nn.Parameter(torch.tensor(values)) for name, values in case["variables"].items()
    }
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    finish = GradientFinisher(parameters.items(), clip_grad_norm=0.0, weight_decay=case["rate"])
    finish(torch.ones([]))
    # The penalty is quadratic: half of the product of the weights with its gradient.
    penalty = sum(float((p.detach() * p.grad).sum()) for p in parameters.values()) / 2
    assert penalty == pytest.approx(case["loss"], rel=1e-5)


def test_all_golden_cases_are_compared():
    assert len(CASES) == 21
    assert len(GOLDEN["weight_decay"]) == 2
