"""Trials of Determined: updates by the context, schedulers, reducers, callbacks, resuming."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import TrialError
from t2t_torch.train.random_state import seeded
from t2t_torch.trial.context import ContextScheduler, JointOptimizer, PyTorchTrialContext
from t2t_torch.trial.epoch_orders import order_of_epoch
from t2t_torch.trial.predictor import validation_inputs
from t2t_torch.trial.user_code import instance_of, load_definition

GAN = {"global_batch_size": 8, "latent_dim": 3, "lr": 0.05}
OLDER = {"global_batch_size": 8, "size": 8, "lr": 1.0}

HEAD = """
import torch
from determined.pytorch import DataLoader, PyTorchTrial, PyTorchTrialContext
from torch import nn

class Mine(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(4, 1))
        self.opt = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        self.setup()
    def setup(self): pass
    def build_training_data_loader(self):
        rows = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
        return DataLoader(rows, batch_size=4)
    build_validation_data_loader = build_training_data_loader
    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.opt)
        return {"loss": loss}
    def evaluate_batch(self, batch):
        return {"error": self.model(batch).square().mean()}
"""


def weights(estimator):
    return {name: value.clone() for name, value in estimator.model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def test_a_gan_trains_as_a_loop_written_by_hand(made, trials):
    estimator = made(trials / "determined_gan.py", hparams=GAN)
    trial = estimator.task.trial
    generator = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    generator.load_state_dict(trial.generator.state_dict())
    critic = nn.Linear(4, 1)
    critic.load_state_dict(trial.discriminator.state_dict())
    g = torch.optim.Adam(generator.parameters(), lr=0.05)
    d = torch.optim.SGD(critic.parameters(), lr=0.05, momentum=0.9)
    estimator.train(7)
    rows = estimator.task.loaders[0].dataset
    orders = [order_of_epoch(estimator.task.loaders[0], 5, epoch) for epoch in range(2)]
    for number, indices in enumerate(i for order in orders for i in list(order)):
        if number == 7:
            break
        batch = rows[torch.tensor(indices)]
        with seeded(5, number, torch.device("cpu")):
            random.seed(0)
        made_rows = generator(torch.randn(8, 3))
        bce(critic(made_rows), torch.ones(8, 1)).backward()
        g.step()
        g.zero_grad()
        critic.zero_grad()
        real = bce(critic(batch), torch.ones(8, 1))
        fake = bce(critic(made_rows.detach()), torch.zeros(8, 1))
        ((real + fake) / 2).backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 0.5)
        d.step()
        d.zero_grad()
        if number % 2:
            d.param_groups[0]["lr"] *= 0.9
        if number == 4:  # five batches are an epoch
            g.param_groups[0]["lr"] = 0.05 * 0.5
    assert equal(trial.generator.state_dict(), generator.state_dict())
    assert equal(trial.discriminator.state_dict(), critic.state_dict())
    assert trial.opt_d.param_groups[0]["lr"] == d.param_groups[0]["lr"]
    assert trial.counting.epochs == [0]


@pytest.mark.parametrize(
    ("trial", "hparams"), [("determined_gan.py", GAN), ("determined_older.py", OLDER)]
)
def test_a_resumed_run_has_the_same_weights_and_slots(made, trials, trial, hparams):
    whole = made(trials / trial, name="whole", hparams=hparams)
    whole.train(9)
    expected = weights(whole)
    slots = whole.begin().optimizer.state_dict()
    part = made(trials / trial, name="part", hparams=hparams)
    part.train(4)
    part.close()
    again = made(trials / trial, name="part", hparams=hparams)
    again.train(9)
    assert equal(weights(again), expected)
    state = again.begin().optimizer.state_dict()
    assert state["param_groups"] == slots["param_groups"]
    for key, values in slots["state"].items():
        for name, value in values.items():
            other = state["state"][key][name]
            same = torch.equal(other, value) if isinstance(value, torch.Tensor) else other == value
            assert same, (key, name)


def test_callbacks_and_reducers_of_a_resumed_run(made, trials):
    first = made(trials / "determined_gan.py", hparams=GAN)
    first.train(6)
    metrics = first.evaluate()
    scores = [
        first.task.trial.discriminator(batch).mean().item() for batch in first.task.loaders[1]
    ]
    assert metrics["median"] == pytest.approx(np.median(scores))
    first.train(8)
    first.close()
    again = made(trials / "determined_gan.py", hparams=GAN)
    again.begin()
    counting = again.task.trial.counting
    assert (counting.epochs, counting.validations, counting.loaded) == ([0], 1, 1)


def test_a_reducer_of_the_trials_own_class_is_no_state_of_the_trial(made, write):
    own = """
class Seen(MetricReducer):
    def __init__(self): self.reset()
    def reset(self): self.seen = []
    def per_slot_reduce(self): return len(self.seen)
    def cross_slot_reduce(self, counts): return float(sum(counts))

class Mine"""
    setup = "self.seen = self.context.wrap_reducer(Seen(), name='seen')"
    code = HEAD.replace("PyTorchTrial,", "MetricReducer, PyTorchTrial,").replace(
        "\nclass Mine", own
    )
    code = code.replace("setup(self): pass", f"setup(self): {setup}")
    code = code.replace(
        "self.context.backward", "self.seen.seen.append(loss); self.context.backward"
    )
    for steps in (2, 3):
        estimator = made(write(code))
        estimator.train(steps)
        estimator.close()


def test_the_older_interface_sums_as_its_reducer_says(made, trials):
    estimator = made(trials / "determined_older.py", hparams=OLDER)
    estimator.train(3)
    right = sum(
        int((estimator.model(rows).argmax(1) == labels).sum())
        for rows, labels in estimator.task.loaders[1]
    )
    assert estimator.evaluate()["right"] == right


def test_aggregated_batches_make_one_update_of_their_mean_gradient(made, write):
    options = {"optimizations": {"aggregation_frequency": 3}}
    estimator = made(write(HEAD), config=options)
    model = nn.Linear(4, 1)
    model.load_state_dict(estimator.model.state_dict())
    estimator.train(1)
    batches = [batch for _, batch in zip(range(3), estimator.task.loaders[0], strict=False)]
    for batch in batches:
        model(batch).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad / 3
    for name, value in estimator.model.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name])


def test_gradients_that_a_trial_keeps_are_resumed(made, write):
    code = HEAD.replace("step_optimizer(self.opt)", "step_optimizer(self.opt, None, False)")
    spec = write(code)
    whole = made(spec, name="whole")
    whole.train(4)
    part = made(spec, name="part")
    part.train(2)
    part.close()
    again = made(spec, name="part")
    again.train(4)
    assert equal(weights(again), weights(whole))
    assert all(p.grad is not None for p in again.model.parameters())


def test_an_update_with_a_gradient_that_is_not_finite_is_skipped(made, write):
    code = HEAD.replace(".square().mean()\n        self", ".log().mean()\n        self")
    estimator = made(write(code))
    before = weights(estimator)
    estimator.train(1)
    assert equal(weights(estimator), before)


def test_amp_calls_have_no_effect_on_a_cpu(made, write):
    setup = (
        "def setup(self):\n"
        "        self.context.experimental.use_amp()\n"
        "        self.scaler = self.context.wrap_scaler(torch.amp.GradScaler('cpu', enabled=False))"
    )
    code = HEAD.replace("def setup(self): pass", setup).replace(
        "backward(loss)", "backward(self.scaler.scale(loss))"
    )
    code = code.replace("step_optimizer(self.opt)", "step_optimizer(self.opt, scaler=self.scaler)")
    estimator, plain = made(write(code)), made(write(HEAD, "plain.py"), name="plain")
    estimator.train(2)
    plain.train(2)
    assert equal(weights(estimator), weights(plain))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("self.context.step_optimizer(self.opt)", "pass"), "step_optimizer"),
        (('return {"loss": loss}', "pass"), "return missing"),
        (("context.wrap_model(nn.Linear(4, 1))", "nn.Linear(4, 1)"), "wrap_model"),
        (("context.wrap_optimizer", "(lambda one: one)"), "wrap_optimizer"),
        (("pass", "self.context.configure_apex_amp()"), "use_amp"),
        (("pass", "self.context.wrap_optimizer(self.model)"), "Linear"),
        (("pass", "self.context.backward(torch.ones([]))"), "train_batch"),
        (("pass", "self.context.get_hparam('dropout')"), "dropout"),
        (("pass", "self.context.get_global_batch_size()"), "global_batch_size"),
        (("pass", "self.context.set_stop_requested(True)"), "set_stop_requested"),
    ],
)
def test_mistakes_are_named(made, write, change, named):
    code = HEAD.replace(*change)
    assert code != HEAD
    with pytest.raises(TrialError, match=named):
        made(write(code)).train(1)


def test_several_optimizers_of_one_parameter_are_refused():
    model = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2)]
    with pytest.raises(ValueError, match="more than one parameter group"):
        JointOptimizer(optimizers)


def test_a_joint_optimizer_loads_the_slots_and_settings_of_each():
    def optimizers():
        first, second = nn.Linear(2, 1), nn.Linear(3, 1)
        pair = (
            torch.optim.Adam(first.parameters()),
            torch.optim.Adagrad(second.parameters(), lr=0.3),
        )
        for model, one in zip((first, second), pair, strict=True):
            model(torch.ones(1, model.in_features)).sum().backward()
            one.step()
        return JointOptimizer(pair)

    old, new = optimizers(), optimizers()
    old.optimizers[1].param_groups[0]["lr"] = 0.7
    groups = [id(group) for one in new.optimizers for group in one.param_groups]
    new.load_state_dict(old.state_dict())
    assert [id(group) for one in new.optimizers for group in one.param_groups] == groups
    assert new.optimizers[1].param_groups[0]["lr"] == 0.7
    assert all(one.state is new.state for one in new.optimizers)


@pytest.mark.parametrize(
    ("mode", "frequency", "steps"),
    [
        ("STEP_EVERY_BATCH", 2, [1, 3, 5]),
        ("STEP_EVERY_OPTIMIZER_STEP", 1, [1, 3, 5]),
        ("STEP_EVERY_EPOCH", 1, [2, 5]),
        ("STEP_EVERY_EPOCH", 2, [5]),
        ("MANUAL_STEP", 1, []),
    ],
)
def test_step_modes(mode, frequency, steps):
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    wrapped = ContextScheduler(scheduler, ContextScheduler.StepMode[mode], frequency)
    done = []
    for batch in range(6):  # two epochs of three batches, two batches in a step
        before = scheduler.last_epoch
        wrapped.after_batch(batch, batch // 3, batches_per_step=2, ends=batch % 3 == 2)
        done += [batch] if scheduler.last_epoch > before else []
    assert done == steps


def test_what_evaluate_batch_calls_is_exported_and_several_models_are_refused(made, write, trials):
    task = made(write(HEAD)).task
    inputs = list(validation_inputs(task, task.model(), torch.device("cpu"), rows=4))
    assert inputs[0].shape == (4, 4)
    task = made(trials / "determined_gan.py", name="gan", hparams=GAN).task
    with pytest.raises(TrialError, match="generator, discriminator"):
        list(validation_inputs(task, task.model(), torch.device("cpu")))


def test_the_context_of_one_process():
    context = PyTorchTrialContext(ONE_PROCESS)
    assert (context.distributed.get_rank(), context.distributed.get_size()) == (0, 1)
    assert context.distributed.allgather(3) == [3] and context.distributed.broadcast(4) == 4


ALL = {"lr": 0.5, "size": 3}


def constructed(tmp_path, arguments, hparams):
    """The arguments that a constructor with this signature gets."""
    file = tmp_path / "mine.py"
    file.write_text(
        HEAD + f"    def __init__(self, {arguments}):\n        self.given = dict(locals())\n"
    )
    trial = instance_of(load_definition(str(file)), hparams, "the context")
    return {name: value for name, value in trial.given.items() if name != "self"}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("context, hparams", {"context": "the context", "hparams": {"lr": 0.5, "size": 3}}),
        ("context, hparams=None", {"context": "the context", "hparams": {"lr": 0.5, "size": 3}}),
        ("context, lr", {"context": "the context", "lr": 0.5}),
        ("ctx, size, lr=1.0", {"ctx": "the context", "size": 3, "lr": 0.5}),
        ("context, data_dir='data'", {"context": "the context", "data_dir": "data"}),
        ("context, *, size", {"context": "the context", "size": 3}),
        ("context, size, /", {"context": "the context", "size": 3}),
        ("lr, trial_context", {"trial_context": "the context", "lr": 0.5}),
        ("*args, **kwargs", {"args": ("the context",), "kwargs": {}}),
        ("context, hyperparameters", {"context": "the context", "hyperparameters": ALL}),
        ("context, config", {"context": "the context", "config": ALL}),
        ("context, config=None", {"context": "the context", "config": None}),
        ("hps, context", {"context": "the context", "hps": ALL}),
    ],
)
def test_a_constructor_gets_hyperparameters_by_name(tmp_path, arguments, given):
    assert constructed(tmp_path, arguments, {"lr": 0.5, "size": 3}) == given


@pytest.mark.parametrize("arguments", ["hp", "config", "hyperparameters", "hp, size=1", "*hp"])
def test_a_constructor_without_a_context_gets_the_dictionary(tmp_path, arguments):
    file = tmp_path / "mine.py"
    file.write_text(
        "import pedl.frameworks.pytorch as pedl\n"
        "def make_data_loaders(experiment_config, hparams): pass\n"
        "class Mine(pedl.PyTorchTrial):\n"
        f"    def __init__(self, {arguments}):\n        self.given = dict(locals())\n"
        + "".join(
            f"    def {name}(self, *_): pass\n"
            for name in ("build_model", "optimizer", "losses", "validation_metrics", "batch_size")
        )
    )
    given = instance_of(load_definition(str(file)), ALL, None).given
    name = arguments.strip("*").partition(",")[0]
    assert given[name] == ((ALL,) if "*" in arguments else ALL)
    assert given.get("size", 3) == 3


@pytest.mark.parametrize(
    "arguments", ["context, data_dir", "context, lr, *, data_dir", "data_dir, context"]
)
def test_an_argument_that_is_no_hyperparameter_is_refused_by_name(tmp_path, arguments):
    expected = r"__init__ takes data_dir, which is no hyperparameter: there are lr, size\."
    with pytest.raises(TrialError, match=expected):
        constructed(tmp_path, arguments, {"lr": 0.5, "size": 3})
