"""What the optimizer or the schedule does not read is refused, if a user has set it."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams, OptimizationHParams
from t2t_torch.optim import settings
from t2t_torch.optim.settings import check_settings, reads_train_steps


def check(hparams, base="transformer_base"):
    check_settings(registry.hparams(base).parse(hparams))


@pytest.mark.sample(25)
@pytest.mark.parametrize("name", registry.list_names("hparams"))
def test_every_named_set_is_accepted(name):
    check_settings(registry.hparams(name))


@pytest.mark.parametrize(
    "hparams, reader",
    [
        ("learning_rate=0.5", r"a learning_rate_schedule with legacy would"),
        ("learning_rate_decay_steps=9", r"legacy \(learning_rate_decay_scheme=exp\), linear_decay"),
        ("learning_rate_cosine_cycle_steps=9", r"legacy \(learning_rate_decay_scheme=cosine\)"),
        ("learning_rate_decay_scheme=exp", r"with legacy would"),
        ("learning_rate_schedule=constant,learning_rate_warmup_steps=9", r"linear_warmup"),
        ("optimizer=sgd,optimizer_adam_beta1=0.5", r"optimizer=adam, adam_w, lamb, .*true_adam"),
        ("optimizer_momentum_nesterov=true", r"optimizer=momentum would"),
        (
            "optimizer=adafactor,optimizer_adafactor_beta2=0.5",
            r"adafactor \(optimizer_adafactor_decay_type=adam\) would",
        ),
        ("swa_every=3", r"it needs swa_start_step=N"),
        ("mixed_precision_optimizer_loss_scaler=none", r"it needs activation_dtype=float16"),
        (
            "activation_dtype=bfloat16,mixed_precision_optimizer_init_loss_scale=4",
            r"it needs activation_dtype=float16\.",
        ),
        (
            "activation_dtype=float16,mixed_precision_optimizer_loss_scaler=none,"
            "mixed_precision_optimizer_init_loss_scale=4",
            r"it needs mixed_precision_optimizer_loss_scaler=exponential",
        ),
        ("use_fixed_batch_size=true,length_bucket_step=2", r"it needs use_fixed_batch_size=False"),
        ("use_fixed_batch_size=true,min_length_bucket=9", r"it needs use_fixed_batch_size=False"),
        ("initializer=xavier,initializer_gain=2", r"it needs an initializer but xavier"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused_and_its_readers_are_named(hparams, reader):
    name = hparams.split(",")[-1].split("=")[0]
    with pytest.raises(HParamsError, match=rf"{name}=.* is read by nothing.*{reader}"):
        check(hparams)


@pytest.mark.parametrize(
    "hparams",
    [
        "learning_rate_warmup_steps=9,learning_rate_constant=3",
        "learning_rate_schedule=constant,learning_rate_minimum=0.1,learning_rate_warmup_steps=9",
        "learning_rate_schedule=legacy,learning_rate_decay_scheme=exp,learning_rate_decay_rate=0.5",
        "optimizer=adafactor,optimizer_adafactor_decay_type=adam,optimizer_adafactor_beta2=0.5",
        "optimizer_multistep_accumulate_steps=4,clip_grad_norm=1,weight_decay=0.1",
        "freeze=[encoder],unfreeze_schedule=[decoder=3],learning_rate_scales=[decoder=0.5]",
        "swa_start_step=3,swa_every=3",
        "swa_patience=3,swa_every=3",
        "activation_dtype=float16,mixed_precision_optimizer_init_loss_scale=4",
        "activation_dtype=float16,mixed_precision_optimizer_loss_scaler=none",
        "mixed_precision_optimizer_loss_scaler=exponential,swa_every=1",
        "length_bucket_step=2,min_length_bucket=9,initializer_gain=2",
        "shard_weights=true",
        "hidden_size=32,batch_size=7",
    ],
)
def test_a_setting_that_is_read_is_accepted(hparams):
    check(hparams)


def test_all_are_told_at_once():
    with pytest.raises(HParamsError, match=r"(?s)optimizer_momentum.*learning_rate=0.5"):
        check("learning_rate=0.5,optimizer_momentum_momentum=0.5")


def test_what_a_run_was_begun_with_is_let_be_and_what_it_changes_is_not():
    before = registry.hparams("transformer_base").parse("learning_rate=0.5")
    check_settings(before.parse("learning_rate_warmup_steps=9"), before)
    with pytest.raises(HParamsError, match=r"learning_rate=0.7"):
        check_settings(before.parse("learning_rate=0.7"), before)


def test_a_file_of_flags_is_a_user_too():
    changed = registry.hparams("transformer_base").replace(learning_rate=0.5).signed("run.json")
    with pytest.raises(HParamsError, match=r"learning_rate=0.5"):
        check_settings(changed)


def test_an_optimizer_that_declares_nothing_may_read_anything(monkeypatch):
    monkeypatch.delattr(registry.optimizer("sgd"), "reads")
    check("optimizer=sgd,optimizer_adam_beta1=0.5")


class Recorder:
    """Hyperparameters that remember what was asked of them."""

    def __init__(self, hparams):
        self.hparams, self.asked = hparams, set()

    def __getattr__(self, name):
        self.asked.add(name)
        return getattr(self.hparams, name)


VALUES = "learning_rate_boundaries=[5,9],learning_rate_multiples=[0.5,0.1]"


SCHEMES = ("noam", "none", "exp", "piecewise", "cosine", "sqrt")
SCHEDULES = [name for name in registry.list_names("schedule") if name != "legacy"]


@pytest.mark.parametrize("name", [*SCHEDULES, *(f"legacy/{scheme}" for scheme in SCHEMES)])
def test_a_schedule_reads_what_it_declares(name):
    name, _, scheme = name.partition("/")
    make = registry.schedule(name)
    hparams = HParams().parse(
        f"{VALUES},learning_rate_decay_scheme={scheme or 'none'},learning_rate_decay_rate=0.5"
    )
    declared = {
        setting
        for setting, condition in make.reads.items()
        if condition is None or getattr(hparams, condition[0]) == condition[1]
    }
    recorder = Recorder(hparams)
    factor = make(recorder, 1000)
    for step in (0, 50, 150, 700):
        factor(step)
    asked = {name for name in recorder.asked if name.startswith("learning_rate")}
    assert asked == declared - {"train_steps"}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_depends_on_the_end_of_the_run_if_it_says_so(name):
    hparams = HParams().parse("learning_rate_decay_rate=0.5,learning_rate_warmup_steps=10")
    steps = [11, 200, 390]
    short, long = (
        [registry.schedule(name)(hparams, end)(step) for step in steps] for end in (400, 800)
    )
    assert (short != long) == reads_train_steps(name)


@pytest.mark.parametrize("name", registry.list_names("optimizer"))
def test_an_optimizer_reads_what_it_declares(name):
    declared = set(registry.optimizer(name).reads)
    recorder = Recorder(HParams().replace(optimizer=name))
    layer = torch.nn.Linear(2, 2)
    registry.optimizer(name)(list(layer.named_parameters()), recorder)
    asked = {name for name in recorder.asked if name.startswith("optimizer_")}
    assert asked == declared


def test_every_setting_of_an_optimizer_or_a_schedule_has_a_reader():
    read = set().union(*(registry.optimizer(n).reads for n in registry.list_names("optimizer")))
    read = read.union(*(registry.schedule(n).reads for n in registry.list_names("schedule")))
    for name in OptimizationHParams.model_fields:
        if name.startswith(("optimizer_", "learning_rate")):
            assert name in read | settings._ALWAYS
