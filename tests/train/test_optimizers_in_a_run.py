"""Runs with each optimizer, with averages, noise and groups end bit-equal however they are cut."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, HParamsError

TOGETHER = (
    "optimizer=adam_w,ema_decay=0.9,grad_noise_scale=0.01,weight_noise=5,weight_decay=0.1,"
    "freeze=[target_space],unfreeze_schedule=[encoder=3],learning_rate_scales=[decoder=0.5],"
    "optimizer_zero_grads=true"
)
STEPS = 5


def state_of(estimator):
    """Copies of weights, slots by the parameters' names, and the average."""
    run = estimator.begin()
    names = {parameter: name for name, parameter in run.model.named_parameters()}
    state = {name: value.clone() for name, value in run.model.state_dict().items()}
    for parameter, slots in run.optimizer.state.items():
        state.update({f"{names[parameter]}/{slot}": v.clone() for slot, v in slots.items()})
    if run.average is not None:
        state.update({f"average/{n}": v.clone() for n, v in run.average.tensors().items()})
    return state


ONCE = {"adam", "true_adam", "multistep_adam"}  # one function; test_estimator has it


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("hparams", "stop"),
    [
        *(
            (f"optimizer={name}", 2)
            for name in registry.list_names("optimizer")
            if name not in ONCE
        ),
        ("optimizer=adafactor,optimizer_adafactor_beta1=0.9", 2),
        ("swa_start_step=2,swa_every=2", 1),
        ("swa_start_step=2,swa_every=2", 3),
        (TOGETHER, 1),
        (TOGETHER, 4),
    ],
)
def test_a_resumed_run_is_bit_equal(make_estimator, hparams, stop):
    whole = make_estimator("whole", hparams)
    whole.train(STEPS)
    expected = state_of(whole)
    first = make_estimator("part", hparams)
    first.train(stop)
    first.close()
    second = make_estimator("part", hparams)
    second.train(STEPS)
    result = state_of(second)
    assert result.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(result[name], expected[name])] == []


def test_all_that_is_together_above_is_at_work(make_estimator):
    alone, all_of_it = make_estimator("alone"), make_estimator("all", TOGETHER)
    before = {name: p.detach().clone() for name, p in all_of_it.model.named_parameters()}
    for run in (alone, all_of_it):
        run.train(3)
    after = dict(all_of_it.model.named_parameters())
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {name for name in before if name.startswith(("target_space", "encoder"))}
    all_of_it.train(4)
    still = {name for name in before if torch.equal(before[name], after[name])}
    assert still == {"target_space"}
    average = all_of_it.run.average.tensors()
    assert not torch.equal(
        average["decoder.0.attention.output.weight"], after["decoder.0.attention.output.weight"]
    )


def test_the_average_is_what_is_evaluated_and_the_own_weights_are_what_is_trained(make_estimator):
    run = make_estimator(hparams="ema_decay=0.99,learning_rate_constant=5")
    run.train(6)
    own = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    of_average = run.evaluate()
    assert all(torch.equal(own[name], p) for name, p in run.model.named_parameters())
    average, run.run.average = run.run.average, None
    assert run.evaluate() != of_average
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            parameter.copy_(average.tensors()[name])
    assert run.evaluate() == of_average


def test_what_the_slots_or_the_mean_depend_on_may_not_change(make_estimator):
    first = make_estimator("run", "optimizer=adafactor,swa_start_step=2")
    first.train(2)
    first.close()
    for changed in ("optimizer_adafactor_beta1=0.9", "swa_every=3", "optimizer=adam"):
        hparams = first.task.hparams.parse(changed)
        with pytest.raises(CheckpointError, match=changed.partition("=")[0]):
            first.directory.check_hparams(hparams)
    first.directory.check_hparams(first.task.hparams.parse("learning_rate_scales=[decoder=0.5]"))


def test_a_pattern_that_finds_nothing_ends_the_run_before_it_begins(make_estimator):
    run = make_estimator(hparams="freeze=[encodr]")
    with pytest.raises(HParamsError, match=r"Near: encoder"):
        run.train(1)
    assert not list(run.directory.path.glob("ckpt-*"))
