"""Twenty training steps are those of tensor2tensor 1.15.7: losses, learning rates, gradient norms,
the norm of every variable after each step, and all final weights of three runs.

From its initial weights, on its batches, without dropout.  The gradient's norm is that before
clipping, of the loss with its weight decay.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch import registry
from t2t_torch.features import Features, Text
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables, transformer
from t2t_torch.loss import total_loss
from t2t_torch.models.transformer import Transformer
from t2t_torch.optim.gradient import GradientFinisher
from t2t_torch.optim.parameter_groups import parameter_groups
from t2t_torch.optim.settings import learning_rate
from t2t_torch.text.encoder import NUM_RESERVED, IntegerEncoder

FOLDER = Path(__file__).parent / "train_parity"
BATCHES = dict(np.load(FOLDER / "batches.npz"))
INITIAL = dict(np.load(FOLDER / "initial_variables.npz"))
RUNS = [
    "adam",
    "adam_clip1",
    "adam_weight_decay",
    "adam_legacy_noam",
    "adafactor",
    "multistep_adam4",
]


def read(run):
    return json.loads((FOLDER / f"{run}.json").read_text())


def model_of(golden, hparams):
    problem = golden["problem_hparams"]
    text = Text(IntegerEncoder(problem["vocab_size"]["targets"] - NUM_RESERVED))
    space = problem["target_space_id"]
    features = Features({"inputs": text}, {"targets": text}, target_space_id=space)
    model = Transformer(hparams, features)
    load_variables(model, INITIAL)
    return model.train()


def batch_of(step):
    names = ("inputs", "targets")
    return {n: torch.from_numpy(BATCHES[f"{n}_{step:02d}"].astype(np.int64)) for n in names}


def rows_of_variables(names):
    """tensor2tensor's variable -> (our parameter, its rows there): it keeps in several variables
    what we keep in one matrix."""
    places = {name: transformer.place_of(name) for name in names}
    rows, ends = {}, {}
    for name in sorted(places, key=lambda name: places[name][1]):
        ours = places[name][0][0]
        height = transformer._as_ours(name, INITIAL[name]).shape[0]
        first = ends.get(ours, 0)
        rows[name] = ours, slice(first, first + height)
        ends[ours] = first + height
    return rows


@dataclasses.dataclass
class Log:
    losses: list
    rates: list
    norms: list
    variable_norms: list


def train(golden, hparams, model, optimizer, finish, *, before_step=lambda: None):
    """Does the steps as tensor2tensor does: it applies the mean of every n-th gradients, and counts
    each of them as a step."""
    log = Log([], [], [], [])
    rate = learning_rate(hparams, train_steps=250000)
    every = hparams.optimizer_multistep_accumulate_steps or 1
    variables = rows_of_variables(golden["variable_order"])
    weights = dict(model.named_parameters(remove_duplicate=False))
    sums = {p: torch.zeros_like(p) for p in model.parameters()}
    for step in range(golden["steps"]):
        model.zero_grad()
        loss = total_loss(model(batch_of(step)))
        loss.sum.backward()
        log.losses.append(float(loss.sum.detach() / loss.weight))
        log.norms.append(float(finish(loss.weight)))
        log.rates.append(rate(step / every))
        for parameter, total in sums.items():
            total += parameter.grad / every
        if (step + 1) % every == 0:
            for group in optimizer.param_groups:
                group["lr"] = log.rates[-1]
                group["updates"] = step // every
            for parameter, total in sums.items():
                parameter.grad = total.clone()
                total.zero_()
            before_step()
            optimizer.step()
        log.variable_norms.append(
            [float(weights[ours].detach()[rows].norm()) for ours, rows in variables.values()]
        )
    return log


@pytest.mark.sample(2)
@pytest.mark.parametrize("run", RUNS)
def test_twenty_steps_are_those_of_tensor2tensor(run):
    golden = read(run)
    recorded = np.load(FOLDER / f"{run}.npz")
    hparams = convert_hparams("transformer", golden["hparams"])
    model = model_of(golden, hparams)
    before_step = lambda: None  # noqa: E731
    if run == "adafactor":  # its moments and scales are of whole variables: give it those
        weights = dict(model.named_parameters(remove_duplicate=False))
        rows = rows_of_variables(golden["variable_order"]).values()
        pieces = [(nn.Parameter(weights[ours][part]), weights[ours], part) for ours, part in rows]
        optimizer = registry.optimizer(hparams.optimizer)([p for p, _, _ in pieces], hparams)

        def before_step():
            for piece, whole, part in pieces:
                assert piece.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
                piece.grad = whole.grad[part].clone()
    else:
        groups = parameter_groups(model, hparams)
        optimizer = registry.optimizer(hparams.optimizer)(groups, hparams)
    finish = GradientFinisher.of(hparams, model, optimizer)
    log = train(golden, hparams, model, optimizer, finish, before_step=before_step)

    assert log.losses == pytest.approx(golden["loss"], rel=1e-4)
    assert log.rates == pytest.approx(golden["learning_rate"], rel=1e-4)
    assert log.norms == pytest.approx(golden["global_grad_norm"], rel=2e-3)
    order = list(rows_of_variables(golden["variable_order"]))
    columns = [golden["variable_order"].index(name) for name in order]
    np.testing.assert_allclose(
        log.variable_norms, recorded["variable_norms"][:, columns], rtol=2e-4, atol=2e-4
    )
    final = {k.removeprefix("final/"): recorded[k] for k in recorded.files if "final/" in k}
    if final:
        expected = transformer.convert_weights("transformer", final)
        weights = model.state_dict()
        differences = torch.cat(
            [(weights[name] - value).abs().flatten() for name, value in expected.items()]
        )
        # The golden's own tolerances: an input of ReLU within 1e-6 of zero makes a unit jump.
        assert differences.quantile(0.999) < 1e-4
        assert differences.max() < 5e-3


def test_all_golden_runs_are_compared():
    assert sorted(RUNS) == sorted(path.stem for path in FOLDER.glob("*.json"))
