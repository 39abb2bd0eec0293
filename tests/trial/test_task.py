"""P1, N7: a trial is trained as a loop written by hand would train it, to the last bit."""

from __future__ import annotations

import copy
import itertools
import json
import random

import numpy as np
import pytest
import torch
from made_run import SEED
from torch import nn

from t2t_torch.errors import ConfigError, TrialError
from t2t_torch.mode import Split
from t2t_torch.trial import nested
from t2t_torch.trial.epoch_orders import order_of_epoch
from t2t_torch.yaml_file import read_mapping


def batches(loader):
    """The batches of a loader in the order of a run, each with its epoch, without end."""
    for epoch in itertools.count():
        for indices in order_of_epoch(loader, SEED, epoch):
            batch = loader.collate_fn([loader.dataset[i] for i in indices])
            yield epoch, nested.to_device(batch, torch.device("cpu"))  # arrays become tensors


def by_hand(estimator, steps, *, frequency=1, averages=True, clip=lambda parameters: None):
    """Trains a documented trial as anyone would write it; returns the model and each loss."""
    trial, chosen = estimator.task.trial, dict(estimator.task.hyperparameters)
    model = trial.build_model(chosen)
    model.load_state_dict(estimator.model.state_dict())
    model.train()
    optimizer = trial.optimizer(model)
    stream, values = batches(estimator.task.loaders[0]), []
    for _ in range(steps):
        for _ in range(frequency):
            _, (inputs, labels) = next(stream)
            losses = trial.losses(model(inputs), labels)
            loss = losses["loss"] if isinstance(losses, dict) else losses
            values.append(loss.item())
            (loss / frequency if averages else loss).backward()
        clip(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    return model, values


@pytest.mark.parametrize(
    ("clipping", "clip"),
    [
        ({"clip_grad_l2_norm": 0.01}, lambda p: nn.utils.clip_grad_norm_(p, 0.01)),
        ({"clip_grad_val": 0.001}, lambda p: nn.utils.clip_grad_value_(p, 0.001)),
        ({"clip_grad_val": None}, lambda p: None),
    ],
)
def test_gradients_are_clipped_as_the_hyperparameters_say(made, trials, clipping, clip):
    """After the batches of a step are joined, by torch's own functions."""
    config = {"optimizations": {"aggregation_frequency": 2}}
    known = read_mapping(trials / "gen0.yaml")["hyperparameters"]
    estimator = made(
        trials / "gen0.py", config="gen0.yaml", hparams={**known, **clipping}, **config
    )
    expected, _ = by_hand(estimator, 3, frequency=2, clip=clip)
    estimator.train(3)
    assert_equal(estimator.model, expected)


@pytest.mark.parametrize(
    ("hparams", "settings", "said"),
    [
        ({"clip_grad_l2_norm": 1, "clip_grad_val": 1}, {}, "clip_grad_val both clip gradients"),
        ({"clip_grad_val": 1}, {"clip_grad_norm": 2.0}, "clip_grad_norm both clip gradients"),
        ({"clip_grad_l2_norm": 0}, {}, "clip_grad_l2_norm: 0: a positive number"),
        ({"clip_grad_val": "much"}, {}, "clip_grad_val: 'much': a positive number"),
    ],
)
def test_clipping_in_two_ways_or_by_no_number_is_refused(made, trials, hparams, settings, said):
    with pytest.raises(ConfigError, match=said):
        made(trials / "gen0.py", config="gen0.yaml", hparams=hparams, optimizations=settings)


def assert_equal(model, expected):
    for name, value in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def losses_of(estimator):
    estimator.summary.close()
    text = (estimator.directory.path / "metrics.jsonl").read_text()
    lines = map(json.loads, text.splitlines())
    return [line["loss"] for line in lines if line["split"] == "train"]


TRIALS = {  # with momentum, and with Adam
    "mnist": ("mnist", "mnist/const.yaml", {"dropout": 0.0}),
    "nested": ("multi_input.py", "multi_input.yaml", {"net": {"hidden": 6}}),
    "line": ("gen0.py", "gen0.yaml", {}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("frequency", [1, 3])
@pytest.mark.parametrize("name", TRIALS)
def test_an_unmodified_trial_trains_as_a_loop_written_by_hand(
    made, trials, monkeypatch, tmp_path, name, frequency, averages
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    place, config, hparams = TRIALS[name]
    optimizations = {"aggregation_frequency": frequency, "average_aggregated_gradients": averages}
    estimator = made(trials / place, config=config, hparams=hparams, optimizations=optimizations)
    expected, losses = by_hand(estimator, 14, frequency=frequency, averages=averages)
    estimator.train(14)
    assert_equal(estimator.model, expected)
    means = np.array(losses).reshape(14, frequency).mean(1)
    np.testing.assert_allclose(losses_of(estimator), means, rtol=1e-12)


def test_a_trial_with_train_batch_trains_as_a_loop_written_by_hand(made, trials):
    hparams = {"optimizer": {"learning_rate": 0.1}}
    estimator = made(trials / "gen2", config="gen2/const.yaml", hparams=hparams)
    trial = estimator.task.trial
    model = copy.deepcopy(estimator.model)
    optimizer = trial.optimizer(model)
    scheduler = trial.create_lr_scheduler(optimizer).scheduler
    last, seen = 0, []
    for number, (epoch, batch) in enumerate(
        itertools.islice(batches(estimator.task.loaders[0]), 60)
    ):
        for _ in range(last, epoch):  # batches are of random lengths, and epochs with them
            scheduler.step()
        last = epoch
        trial.train_batch(batch, model.train(), epoch, number)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(epoch)
    assert seen[-1] >= 2
    estimator.train(60)
    assert_equal(estimator.model, model)


def test_validation_metrics_are_means_over_batches_each_number_by_itself(made, trials):
    estimator = made(trials / "per_class.py", config="per_class.yaml")
    task = estimator.task
    estimator.train(8)
    model, rows = estimator.model.eval(), []
    with torch.no_grad():
        for inputs, labels in task.loaders[1]:
            losses = task.trial.losses(model(inputs), labels)
            rows.append(task.trial.validation_metrics(model(inputs), labels, losses))
    evaluator = task.evaluator()
    for batch in task.eval_batches(Split.EVAL, rank=0, world_size=1):
        with torch.no_grad():
            evaluator.update(evaluator.output(model, batch), batch)
    numbers, arrays = evaluator.result(), evaluator.arrays()
    mean = np.mean([row["validation_loss"] for row in rows])
    assert numbers["validation_loss"] == pytest.approx(mean, rel=1e-12)
    for name in ("recall", "confusion"):
        expected = np.mean([np.asarray(row[name], np.float64) for row in rows], 0)
        np.testing.assert_allclose(arrays[name].numpy(), expected, rtol=1e-12)


ONE_VARIABLE = """
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset
    from pedl.frameworks.pytorch import PyTorchTrial
    from pedl.frameworks.pytorch.data import DataLoader

    def make_data_loaders(experiment_config, hparams):
        ones = torch.ones(12, 1, dtype=torch.float64)
        return [DataLoader(TensorDataset(ones, ones), batch_size=3) for _ in range(2)]

    class OneVar(PyTorchTrial):
        def build_model(self, hparams):
            model = nn.Linear(1, 1, bias=False).double()
            nn.init.zeros_(model.weight)
            return model

        def optimizer(self, model):
            return torch.optim.SGD(model.parameters(), lr=0.1)

        def losses(self, predictions, labels):
            return ((predictions - labels) ** 2).mean()

        def validation_metrics(self, predictions, labels, losses):
            return {"validation_loss": losses}
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("frequency", [1, 2])
def test_one_weight_goes_where_the_closed_form_says(made, write, frequency, clip, averages):
    optimizations = {
        "aggregation_frequency": frequency,
        "average_aggregated_gradients": averages,
        "clip_grad_norm": clip,
    }
    estimator = made(write(ONE_VARIABLE), optimizations=optimizations)
    weight, losses = 0.0, []
    for step in range(9):
        estimator.train(step + 1)
        losses.append((weight - 1.0) ** 2)
        gradient = 2.0 * (weight - 1.0) * (1 if averages else frequency)
        if clip:
            gradient = max(-clip, min(clip, gradient))
        weight -= 0.1 * gradient
        assert estimator.model.weight.item() == pytest.approx(weight, rel=1e-6)
    assert losses_of(estimator) == pytest.approx(losses, rel=1e-6)


MINE = """
    import random
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset
    import pedl
    from pedl.frameworks.pytorch import PyTorchTrial, LRScheduler
    from pedl.frameworks.pytorch.data import DataLoader

    def make_data_loaders(experiment_config, hparams):
        torch.manual_seed(3)
        x = torch.randint(0, 20, (40, 3))
        data = TensorDataset(x, x.float().sum(1) / 20)
        return DataLoader(data, batch_size=4, shuffle=True), DataLoader(data, batch_size=16)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 4, sparse=True)
            self.out = nn.Linear(4, 1)

        def forward(self, ids):
            return self.out(self.table(ids).mean(1)).squeeze(1)

    class Mine(PyTorchTrial):
        def build_model(self, hparams):
            return Net()

        def optimizer(self, model):
            return {optimizer}

        def losses(self, predictions, labels):
            return {loss}

        def validation_metrics(self, predictions, labels, losses):
            return {{"validation_loss": losses}}
"""

MSE = "((predictions - labels) ** 2).mean()"


@pytest.mark.parametrize("frequency", [1, 2])
def test_sparse_gradients_train_as_a_loop_written_by_hand(made, write, frequency):
    code = MINE.format(optimizer="torch.optim.SGD(model.parameters(), lr=0.3)", loss=MSE)
    optimizations = {"aggregation_frequency": frequency}
    estimator = made(write(code), optimizations=optimizations)
    expected, _ = by_hand(estimator, 23, frequency=frequency)
    estimator.train(23)
    assert_equal(estimator.model, expected)


def test_an_optimizer_of_sparse_gradients_trains_as_by_hand_and_is_saved(made, write):
    code = MINE.format(optimizer="torch.optim.SparseAdam([model.table.weight], lr=0.1)", loss=MSE)
    place = write(code)
    estimator = made(place)
    expected, _ = by_hand(estimator, 23)
    estimator.train(11)
    estimator.close()
    again = made(place)
    again.train(23)
    assert_equal(again.model, expected)


def test_what_a_trial_draws_is_the_same_after_a_stop(made, write):
    drawn = "* np.random.rand() + random.random() * predictions.mean() + torch.rand([])"
    code = MINE.format(
        optimizer="torch.optim.Adagrad(model.parameters(), lr=0.1)", loss=MSE + drawn
    )
    place = write(code.replace("sparse=True", "sparse=False"))
    for name, stops in {"whole": [17], "parts": [5, 12, 17]}.items():
        for stop in stops:
            random.seed(stop)
            np.random.seed(stop)
            estimator = made(place, name=name)
            estimator.train(stop)
            estimator.close()
        if name == "whole":
            expected = estimator.model
    assert_equal(estimator.model, expected)


def test_what_an_evaluation_draws_is_the_same_each_time_and_moves_nothing(made, write):
    code = MINE.format(optimizer="torch.optim.SGD(model.parameters(), lr=0.3)", loss=MSE)
    code = code.replace("losses}", "losses * np.random.rand() + torch.rand([]) + random.random()}")
    estimator = made(write(code))
    estimator.train(2)
    first = estimator.evaluate()
    state = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert estimator.evaluate() == first
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == state[1:]


def test_an_optimizer_that_needs_a_closure_is_refused(made, write):
    code = MINE.format(optimizer="torch.optim.LBFGS(model.parameters())", loss=MSE)
    with pytest.raises(TrialError, match=r"LBFGS, whose step\(\) needs a closure"):
        made(write(code)).train(1)


def test_a_loss_that_is_no_number_is_named_at_the_first_step(made, write):
    code = MINE.format(
        optimizer="torch.optim.SGD(model.parameters(), lr=0.3)",
        loss='{"loss": predictions.mean(), "kind": ["mse"], "note": "text"}',
    )
    with pytest.raises(TrialError, match="losses: 'kind' is a list"):
        made(write(code)).train(1)


def test_a_text_beside_the_loss_is_not_reported(made, write):
    code = MINE.format(
        optimizer="torch.optim.SGD(model.parameters(), lr=0.3)",
        loss='{"loss": predictions.mean(), "note": "text"}',
    )
    estimator = made(write(code))
    estimator.train(1)
    assert len(losses_of(estimator)) == 1


OWN_SCHEDULER = MINE.replace(
    "    def losses(self, predictions, labels):",
    """
        def make(self, optimizer):
            kinds = torch.optim.lr_scheduler
            self.sched = kinds.StepLR(optimizer, 3, gamma=0.5)
            cycle = kinds.CyclicLR(optimizer, 0.01, 0.2, 4, cycle_momentum=False)
            self.more = {{"cycle": cycle, "other": 3}}
            self.some = [kinds.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)]
            return optimizer

        def training_metrics(self, predictions, labels, losses):
            self.sched.step()
            self.some[0].step(1.0)
            self.more["cycle"].step()
            return {{}}

        def losses(self, predictions, labels):""",
)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_schedulers_that_stand_on_the_trial_go_on_where_they_stood(made, write):
    made_of = "self.make(torch.optim.SGD(model.parameters(), lr=0.3))"
    place = write(OWN_SCHEDULER.format(optimizer=made_of, loss=MSE))
    whole = made(place, name="whole")
    whole.train(17)
    for stop in (4, 11):
        parts = made(place, name="parts")
        parts.train(stop)
        parts.close()
    broken = made(place, name="parts")
    calls = iter([broken.task.trial.training_metrics] * 3)
    broken.task.trial.training_metrics = lambda p, y, losses: next(calls)(p, y, losses)
    with pytest.raises(StopIteration):  # in step 15: three steps are lost, as by a kill
        broken.train(17)
    broken.close()
    parts = made(place, name="parts")
    parts.train(17)
    assert_equal(parts.model, whole.model)
    assert rates(parts) == rates(whole) != [0.3]
    mine, theirs = parts.task.trial, whole.task.trial
    assert mine.sched.state_dict() == theirs.sched.state_dict()
    assert mine.some[0].state_dict() == theirs.some[0].state_dict()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_scheduler_made_later_than_the_optimizer_is_refused(made, write):
    code = OWN_SCHEDULER.replace(
        "self.sched.step()",
        "self.lazy = getattr(self, 'lazy', None) or "
        "torch.optim.lr_scheduler.StepLR(self.sched.optimizer, 3)",
    )
    made_of = "self.make(torch.optim.SGD(model.parameters(), lr=0.3))"
    with pytest.raises(TrialError, match=r"self\.lazy \(StepLR, created during training\)"):
        made(write(code.format(optimizer=made_of, loss=MSE))).train(1)


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("losses(self, predictions, labels, more)", r"losses takes \(predictions, labels, more"),
        ("validation_metrics(self, predictions)", r"validation_metrics takes \(predictions\)"),
        ("optimizer(self)", r"optimizer takes \(\)"),
    ],
)
def test_a_method_of_another_signature_is_told_before_training(made, write, method, fault):
    name = method.partition("(")[0]
    lines = MINE.format(optimizer="1", loss="1").splitlines()
    lines = [f"        def {method}:" if f"def {name}(" in line else line for line in lines]
    with pytest.raises(TrialError, match=fault):
        made(write("\n".join(lines)))


def test_evaluate_full_dataset_of_another_signature_is_told_before_training(made, write):
    code = gen2().replace("evaluate_batch(self, batch, model)", "evaluate_full_dataset(self, data)")
    with pytest.raises(TrialError, match=r"evaluate_full_dataset takes \(data\)"):
        made(write(code))


def test_helpers_with_the_names_of_the_other_interface_are_the_users_own(made, write):
    code = MINE.replace(
        "def losses", "def evaluate_batch(self):\n            pass\n\n        def losses"
    )
    made(write(code.format(optimizer="torch.optim.SGD(model.parameters(), lr=0.3)", loss=MSE)))


GEN2 = (
    MINE.replace("def losses(self, predictions, labels):", "def unused(self):")
    .replace(
        "def validation_metrics(self, predictions, labels, losses):\n            return",
        """def create_lr_scheduler(self, optimizer):
            self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {scheduler}

        def train_batch(self, batch, model, epoch_idx, batch_idx):
            inputs, labels = batch
            return ((model(inputs) - labels) ** 2).mean()

        def evaluate_batch(self, batch, model):
            if hasattr(self, "plateau") and {steps}:
                self.plateau.step(1.0)
            return""",
    )
    .replace('"validation_loss": losses', '"validation_loss": 1.0')
)


def gen2(scheduler="LRScheduler(self.plateau)", *, steps=False):
    optimizer = "torch.optim.SGD(model.parameters(), lr=1.0)"
    return GEN2.format(optimizer=optimizer, loss="0", scheduler=scheduler, steps=steps)


def rates(estimator):
    return [group["lr"] for group in estimator.run.optimizer.param_groups]


def test_a_scheduler_that_the_trial_steps_in_an_evaluation_is_in_the_next_checkpoint(made, write):
    place = write(gen2(steps=True))
    estimator = made(place)
    estimator.train(2)
    estimator.evaluate()  # three batches: best, worse, worse
    assert rates(estimator) == pytest.approx([0.01])
    estimator.train(4)
    estimator.close()
    again = made(place)
    again.train(5)
    assert rates(again) == pytest.approx([0.01])
    assert again.task.trial.plateau.num_bad_epochs == 0
    again.evaluate()
    assert rates(again) == pytest.approx([1e-5])


@pytest.mark.parametrize(("when", "rate"), [("step_every_batch=True", 0.5**8), ("", 1.0)])
def test_a_scheduler_steps_as_it_asks(made, write, when, rate):
    made_of = "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)"
    estimator = made(
        write(gen2(f"LRScheduler({made_of}, {when})")), optimizations={"aggregation_frequency": 2}
    )
    estimator.train(4)
    assert rates(estimator) == [rate]


ITERABLE = """
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            for number in range(10):
                yield torch.full((3,), number), torch.tensor(float(number))

    def make_data_loaders(experiment_config, hparams):
        return DataLoader(Stream(), batch_size=4), DataLoader(Stream(), batch_size=4)

    class Net"""


def test_epochs_of_a_loader_without_indices_end_where_its_batches_do(made, write):
    made_of = "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)"
    code = gen2(f"LRScheduler({made_of}, step_every_epoch=True)")
    estimator = made(write(code.replace("    class Net", ITERABLE, 1)))
    result = []
    for step in range(1, 8):  # three batches an epoch
        estimator.train(step)
        result += rates(estimator)
    assert result == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize(("when", "rate"), [("epoch", 0.5), ("batch", 0.25)])
def test_an_epoch_ends_also_with_a_step_that_is_skipped(made, write, when, rate):
    made_of = f"torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5), step_every_{when}=True"
    code = gen2(f"LRScheduler({made_of})").replace("    class Net", ITERABLE, 1)
    code = code.replace("- labels) ** 2).mean()", "- labels) ** 2).mean() / (batch_idx != 2)")
    estimator = made(write(code))
    estimator.train(3)
    assert (rates(estimator), estimator.run.meter.skipped()) == ([rate], 1)


def test_a_stream_is_counted_once_over_all_evaluations(made, write):
    stream = ITERABLE.replace("def __iter__(self):", "started = 0\n\n        def __iter__(self):")
    stream = stream.replace("for number in", "Stream.started += 1\n            for number in")
    task = made(write(gen2().replace("    class Net", stream, 1))).task
    stream = type(task.loaders[1].dataset)
    for _ in range(3):
        batches = task.eval_batches(Split.EVAL, rank=0, world_size=1)
        assert len(batches) == len(list(batches)) == 3
    assert stream.started == 4


def test_a_scheduler_of_another_kind_is_refused(made, write):
    with pytest.raises(TrialError, match="create_lr_scheduler returned ReduceLROnPlateau; an LRS"):
        made(write(gen2("self.plateau"))).train(1)


def test_the_loss_in_float16_is_scaled_as_a_mean(made, write):
    code = MINE.format(optimizer="torch.optim.SGD(model.parameters(), lr=0.3)", loss=MSE)
    estimator = made(write(code), optimizations={"mixed_precision": "O1"})
    run = estimator.begin()
    assert run.precision.name == "float16"
    assert float(run.precision.scale) == 2.0**15
    before = copy.deepcopy(estimator.model)
    estimator.train(20)
    assert not torch.equal(estimator.model.out.weight, before.out.weight)
    assert all(parameter.dtype == torch.float32 for parameter in estimator.model.parameters())
    assert isinstance(estimator.model.table, nn.Embedding)
