"""R8 of trials as users wrote them: unmodified, on one and two processes, killed and gone on."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import numpy as np
import processes
import pytest
import yaml
from conftest import reports_of
from safetensors.torch import load_file
from together import MeetingPlace

from t2t_torch.run import storage
from t2t_torch.run.checkpoint_directory import CheckpointDirectory

KILLS = int(os.environ.get("T2T_KILLS", "50"))
"""Of the longest test; 100 take some minutes."""

TRIALS = Path(__file__).parents[1] / "trial" / "trials"
NAMES = {
    "mnist": ("mnist", "mnist/const.yaml"),
    "multi_input": ("multi_input.py", "multi_input.yaml"),
    "per_class": ("per_class.py", "per_class.yaml"),
    "gen0": ("gen0.py", "gen0.yaml"),
    "gen2": ("gen2", "gen2/const.yaml"),
    "full_dataset": ("full_dataset.py", "full_dataset.yaml"),
}
METRIC_OF = {
    "mnist": {"validation_error", "validation_loss"},
    "multi_input": {"accuracy", "loss", "number_error"},
    "per_class": {"validation_loss", "recall", "confusion"},
    "gen0": {"mean_squared_error"},
    "gen2": {"validation_error", "validation_loss"},
    "full_dataset": {"worst_error"},
}


@pytest.fixture
def arguments(tmp_path):
    """Makes the flags of `t2t-trainer`; `config` is of the configuration."""

    def make(trial, run, *, config=None, **flags):
        place, file = NAMES.get(trial, (trial, None))
        known = yaml.safe_load((TRIALS / file).read_text()) if file else {}
        known["data"] = {"path": str(tmp_path / "data"), "directory": str(tmp_path / "line")}
        known.update(config or {})
        written = tmp_path / f"{run}.yaml"
        written.write_text(yaml.safe_dump(known))
        values = {
            "trial": TRIALS / place,
            "config": written,
            "output_dir": tmp_path / run,
            "worker_gpu": 0,
            "log_step_count_steps": 3,
            "local_eval_frequency": 5,
            **flags,
        }
        return [f"--{name}={value}" for name, value in values.items()]

    return make


def begin(folder, size, flags):
    """Starts a trainer of so many processes, as torchrun would."""
    folder.mkdir(exist_ok=True)
    meeting = MeetingPlace(size) if size > 1 else None
    children = []
    for rank in range(size):
        told = {**meeting.environment(rank), "LOCAL_RANK": str(rank)} if meeting else {}
        child = processes.start(folder / f"{rank}.err", processes.run_trainer, flags, **told)
        child.meeting = meeting
        children.append(child)
    return children


def trained(folder, size, flags, code=0):
    """Trains to the end; returns what was said."""
    children = begin(folder, size, flags)
    for child in children:
        assert child.wait() == code, child.said
    return "".join(child.said for child in children)


def steps_done(folder):
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def contents(folder, step):
    """All tensors of a checkpoint, as bytes that can be compared, and its state."""
    checkpoint = folder / f"ckpt-{step}"
    tensors = {
        f"{file.name}/{name}": value.numpy().tobytes()
        for file in checkpoint.glob("*.safetensors")
        for name, value in load_file(file).items()
    }
    state = json.loads((checkpoint / "trainer.json").read_text())
    assert tensors
    return tensors, {name: value for name, value in state.items() if name != "seconds"}


def kill_in_a_save(tmp_path, flags, number):
    """Trains until a system call of a save."""
    told = {storage.VARIABLE: f"save:{number}"}
    child = processes.start(tmp_path / "killed.err", processes.run_trainer, flags, **told)
    assert child.wait() == storage.KILLED, child.said


def killed_and_killed(arguments, tmp_path, trial, size, *, kills, steps, seed, first_save=()):
    """Trains and kills at random instants; compares with a run that was left alone.

    Before that it is killed at system calls of its first save, by their numbers.  Those that are
    killed have steps without end before them, however fast they are; where the run ends is said
    when they have come to some place.
    """
    draw, run = random.Random(seed), tmp_path / "run"
    flags = {"save_checkpoints_steps": 4, "config": {"reproducibility": {"experiment_seed": 7}}}
    for number in first_save:
        kill_in_a_save(tmp_path, arguments(trial, "run", train_steps=10**9, **flags), number)
        assert not (run / "ckpt-4").exists()
    for kill in range(kills):
        told = arguments(trial, "run", train_steps=10**9, **flags)
        children = begin(tmp_path / "errors", size, told)
        at = (kill + 1) * steps // (2 * kills + 2)
        children[0].wait_until(lambda at=at: steps_done(run) >= at)
        time.sleep(draw.random() * 0.1)  # some steps, an evaluation and a save or two
        assert children[0].process.is_alive(), children[0].said
        for child in children:
            child.kill()
    newest = max([0, *(checkpoint.step for checkpoint in CheckpointDirectory(run).list())])
    steps, flags = newest + 11, {**flags, "train_steps": newest + 11}
    for name in ("run", "whole"):
        trained(tmp_path / f"errors_of_{name}", size, arguments(trial, name, **flags))
    assert contents(run, steps) == contents(tmp_path / "whole", steps)
    assert reports_of(run) == reports_of(tmp_path / "whole")


@pytest.mark.sample(1)
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("trial", NAMES)
def test_each_trial_runs_unmodified(arguments, tmp_path, trial, size):
    said = trained(tmp_path / "errors", size, arguments(trial, "run", train_steps=7))
    told = [line for line in reports_of(tmp_path / "run") if line["split"] == "dev"]
    assert [line["step"] for line in told] == [5, 7], said
    for line in told:
        assert set(line) - {"step", "split"} == METRIC_OF[trial]


@pytest.mark.slow
@pytest.mark.parametrize(("trial", "size"), [("multi_input", 1), ("gen2", 2)])
def test_a_trial_killed_at_random_instants_ends_bit_equal(arguments, tmp_path, trial, size):
    killed_and_killed(arguments, tmp_path, trial, size, kills=2, steps=60, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("trial", NAMES)
def test_each_trial_killed_ten_times_ends_bit_equal(arguments, tmp_path, trial, size):
    killed_and_killed(arguments, tmp_path, trial, size, kills=10, steps=900, seed=2)


SEEDED = {"reproducibility": {"experiment_seed": 11}}

STATEFUL = """
import copy
import torch
from torch import nn
from torch.utils.data import TensorDataset
from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader

def make_data_loaders(experiment_config, hparams):
    x = torch.arange(60.0).reshape(20, 3) / 60
    data = TensorDataset(x, x.sum(1, keepdim=True))
    return DataLoader(data, batch_size=2, shuffle=True), DataLoader(data, batch_size=7)

class Gan(PyTorchTrial):
    def build_model(self):
        self.critic = nn.Linear(1, 1)
        self.noise, self.steps = torch.Generator().manual_seed(3), 0
        return nn.Linear(3, 1)

    def optimizer(self, model):
        self.model, self.mean = model, copy.deepcopy(model)
        self.second = torch.optim.Adam(self.critic.parameters(), lr=0.05)
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def losses(self, predictions, labels):
        if torch.is_grad_enabled():
            self.steps += 1
            fake = predictions.detach() + torch.randn(predictions.shape, generator=self.noise)
            self.second.zero_grad()
            (self.critic(fake).mean() - self.critic(labels).pow(2).mean() / self.steps).backward()
            self.second.step()
            for kept, new in zip(self.mean.parameters(), self.model.parameters()):
                kept.data.lerp_(new.data, 0.1)
        return (predictions - labels).pow(2).mean() - 0.1 * self.critic(predictions).mean()

    def validation_metrics(self, predictions, labels, losses):
        return {"error": losses}
"""


OF_PROCESSES = (
    STATEFUL.replace(
        "import copy\n", "import collections, copy\nimport torch.distributed as dist\n"
    )
    .replace(
        "self.noise, self.steps",
        """self.phase, self.seen, self.warming = "warm", collections.deque(maxlen=4), True
        self.dice, self.parts = torch.Generator().manual_seed(1), [[1.0], [2.0]]
        self.part = self.parts[0]
        self.noise, self.steps""",
    )
    .replace(
        "self.second.step()",
        """for parameter in self.critic.parameters():
                if dist.is_initialized():
                    dist.all_reduce(parameter.grad)
            self.second.step()
            if self.steps == 3:
                self.phase, self.part = "hot", self.parts[1]
                del self.warming
            self.part.append(float(labels.sum()))
            for _ in range(int(labels.sum() * 9) % 3):  # another number in each process
                torch.rand(1, generator=self.dice)
            self.seen.append((self.steps, self.phase, (self.part[-1], sum(self.parts[1]))))""",
    )
    .replace(
        "return (predictions - labels)",
        """if self.seen:
            predictions = predictions + 0.01 * self.seen[0][2][1] * (self.phase == "hot")
            predictions = predictions + 0.01 * torch.rand(1, generator=self.dice)
        return (predictions - labels)""",
    )
)


@pytest.fixture
def named(tmp_path):
    """Returns where a trial is; those of this file are written."""

    def place(trial):
        codes = {"stateful": STATEFUL, "of_processes": OF_PROCESSES}
        if trial not in codes:
            return trial
        file = tmp_path / f"{trial}.py"
        file.write_text(codes[trial])
        return str(file)

    return place


@pytest.mark.slow
def test_a_trial_with_state_of_its_own_killed_at_random_instants_ends_bit_equal(
    arguments, tmp_path, named
):
    killed_and_killed(arguments, tmp_path, named("stateful"), 1, kills=1, steps=20, seed=4)


@pytest.mark.slow
def test_each_of_two_processes_has_its_own_state_again(arguments, tmp_path, named):
    """Their batches differ, and so do the numbers, the lists and the generators on the trial."""
    flags = {"save_checkpoints_steps": 4, "train_steps": 11, "config": SEEDED}
    for run, stops in (("run", [2, 5, None]), ("whole", [None])):
        for stop in stops:
            pause = {"pause_at_step": stop} if stop else {}
            told = arguments(named("of_processes"), run, **flags, **pause)
            trained(tmp_path / f"errors_of_{run}", 2, told)
    assert contents(tmp_path / "run", 11) == contents(tmp_path / "whole", 11)
    assert evaluated(tmp_path / "run") == evaluated(tmp_path / "whole")
    state = json.loads((tmp_path / "run" / "ckpt-11" / "trainer.json").read_text())
    kept = state["task"]["of_trial"]
    assert {name for name, value in kept.items() if "each" in value} == {
        *("self.dice", "self.part", "self.parts", "self.seen")
    }
    for name in ("self.dice", "self.seen"):
        one, other = kept[name]["each"]
        assert one != other


@pytest.mark.slow
def test_two_processes_with_state_killed_at_random_instants_end_bit_equal(
    arguments, tmp_path, named
):
    killed_and_killed(arguments, tmp_path, named("of_processes"), 2, kills=2, steps=40, seed=6)


def killed_in_a_save(arguments, tmp_path, trial, numbers):
    """Is killed at system calls of its first saves, by their numbers; compares as above."""
    flags = {"save_checkpoints_steps": 4, "train_steps": 9, "config": SEEDED}
    for number in numbers:
        kill_in_a_save(tmp_path, arguments(trial, "run", **flags), number)
    for name in ("run", "whole"):
        trained(tmp_path / f"errors_of_{name}", 1, arguments(trial, name, **flags))
    assert contents(tmp_path / "run", 9) == contents(tmp_path / "whole", 9)
    assert reports_of(tmp_path / "run") == reports_of(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("trial", ["stateful", pytest.param("multi_input", marks=pytest.mark.slow)])
def test_a_trial_killed_in_its_first_save_begins_again_with_its_seed(
    arguments, tmp_path, named, trial
):
    """A checkpoint that was not whole decided which seed the next start took."""
    killed_in_a_save(arguments, tmp_path, named(trial), [1, 12])


@pytest.mark.slow
@pytest.mark.parametrize("trial", ["stateful", "mnist", "gen2"])
def test_a_trial_killed_all_over_its_first_saves_ends_bit_equal(arguments, tmp_path, named, trial):
    killed_in_a_save(arguments, tmp_path, named(trial), [*range(1, 30, 4), *range(2, 12, 3)])


@pytest.mark.slow
def test_a_trial_with_state_of_its_own_killed_a_hundred_times_ends_bit_equal(
    arguments, tmp_path, named
):
    killed_and_killed(arguments, tmp_path, named("stateful"), 1, kills=100, steps=9000, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [0, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_a_trial_killed_in_its_first_save_and_often_after_it_ends_bit_equal(
    arguments, tmp_path, kills
):
    first = [1, 6, 11]
    after = max(kills - len(first), 0)
    steps = 20 * kills
    killed_and_killed(
        arguments, tmp_path, "gen2", 1, kills=after, steps=steps, seed=3, first_save=first
    )


def evaluated(folder):
    (line,) = (line for line in reports_of(folder)[-1:] if line["split"] == "dev")
    return {name: value for name, value in line.items() if name not in ("split", "step")}


@pytest.mark.slow
@pytest.mark.parametrize("trial", ["per_class", pytest.param("gen2", marks=pytest.mark.slow)])
def test_metrics_of_processes_are_those_of_one(arguments, tmp_path, trial):
    """Six batches on two processes, or three: one of the two has one more."""
    trained(tmp_path / "errors", 1, arguments(trial, "run", train_steps=5))
    one = evaluated(tmp_path / "run")
    again = arguments(trial, "run", schedule="evaluate")
    trained(tmp_path / "errors", 2, again)
    two = evaluated(tmp_path / "run")
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert np.array(two[name]) == pytest.approx(np.array(value), rel=1e-6), name


@pytest.mark.slow
def test_a_process_without_a_batch_of_validation_waits_for_nobody(arguments, tmp_path):
    config = {"hyperparameters": {"hidden_size": 8, "eval_batch_size": 64, "optimizer": {}}}
    config["hyperparameters"]["optimizer"]["learning_rate"] = 0.1
    trained(tmp_path / "errors", 2, arguments("gen2", "run", train_steps=5, config=config))
    assert evaluated(tmp_path / "run").keys() == METRIC_OF["gen2"]


@pytest.mark.slow
def test_two_processes_train_as_one_with_twice_the_batches(arguments, tmp_path):
    for size in (1, 2):
        config = {"optimizations": {"aggregation_frequency": 2 // size}}
        flags = arguments("multi_input", f"run{size}", train_steps=11, config=config)
        trained(tmp_path / "errors", size, flags)
    one, two = (load_file(tmp_path / f"run{n}" / "ckpt-11" / "model.safetensors") for n in (1, 2))
    for name, value in one.items():
        assert two[name].numpy() == pytest.approx(value.numpy(), abs=1e-5), name


SPARSE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from pedl.frameworks.pytorch import LRScheduler, PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader

def make_data_loaders(experiment_config, hparams):
    x = torch.arange(60).reshape(20, 3) % 17
    data = TensorDataset(x, x.float().sum(1) / 17)
    return DataLoader(data, batch_size=2, shuffle=True), DataLoader(data, batch_size=7)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(17, 4, sparse=True)
        self.out = nn.Linear(4, 1)

    def forward(self, ids):
        return self.out(self.table(ids).mean(1)).squeeze(1)

class Sparse(PyTorchTrial):
    def build_model(self):
        return Net()

    def optimizer(self, model):
        return torch.optim.SparseAdam([model.table.weight], lr=0.1)

    def create_lr_scheduler(self, optimizer):
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return LRScheduler(self.plateau)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        loss = ((model(batch[0]) - batch[1]) ** 2).mean()
        {in_training}
        return {{"loss": loss}}

    def evaluate_batch(self, batch, model):
        loss = ((model(batch[0]) - batch[1]) ** 2).mean()
        if hasattr(self, "plateau"):
            self.plateau.step(loss.item())
        return {{"error": loss}}
"""


def sparse(tmp_path, in_training="pass"):
    file = tmp_path / "sparse.py"
    file.write_text(SPARSE.format(in_training=in_training))
    return str(file)


def rates(run, step):
    state = json.loads((run / f"ckpt-{step}" / "trainer.json").read_text())
    return [group["lr"] for group in state["task"]["settings"]]


@pytest.mark.slow
def test_sparse_gradients_of_processes_are_those_of_one_with_twice_the_batches(arguments, tmp_path):
    tables = []
    for size in (1, 2):
        config = {"optimizations": {"aggregation_frequency": 2 // size}}
        flags = arguments(sparse(tmp_path), f"run{size}", train_steps=9, config=config)
        trained(tmp_path / "errors", size, [*flags, "--local_eval_frequency=0"])
        weights = load_file(tmp_path / f"run{size}" / "ckpt-9" / "model.safetensors")
        tables.append(weights["table.weight"].numpy())
    assert tables[0] == pytest.approx(tables[1], abs=1e-5)


@pytest.mark.slow
def test_what_a_trial_moves_in_an_evaluation_is_the_leaders_in_all(arguments, tmp_path):
    """Each process has other batches, and so another plateau: their rates would part."""
    flags = arguments(sparse(tmp_path), "run", train_steps=9)
    trained(tmp_path / "errors", 2, [*flags, "--local_eval_frequency=1"])
    assert rates(tmp_path / "run", 9)[0] < 0.1


@pytest.mark.slow
def test_a_try_of_the_evaluation_moves_nothing_in_any_process(arguments, tmp_path):
    """The trial steps its scheduler in each evaluation; `train` makes none."""
    for name, schedule in (("run", "continuous_train_and_eval"), ("whole", "train")):
        flags = arguments(sparse(tmp_path), name, train_steps=3, schedule=schedule)
        said = trained(tmp_path / name, 2, [*flags, "--local_eval_frequency=0"])
        assert ("validation was tried with one batch" in said) == (name == "run")
    assert contents(tmp_path / "run", 3) == contents(tmp_path / "whole", 3)


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_one_with_as_many_records_a_step(arguments, tmp_path):
    flags = {"local_eval_frequency": 2, "train_steps": 4}
    trained(tmp_path / "errors", 2, arguments(sparse(tmp_path), "run", pause_at_step=2, **flags))
    again = arguments(sparse(tmp_path), "run", **flags)
    said = trained(tmp_path / "refused", 1, again, code=2)
    assert "Resume with --global_batch_size for 2 batches" in said
    trained(tmp_path / "one", 1, [*again, "--global_batch_size=4"])
    state = json.loads((tmp_path / "run" / "ckpt-4" / "trainer.json").read_text())
    assert (state["batches_per_step"], state["batches_consumed"]) == (2, 8)


@pytest.mark.slow
def test_what_parts_the_processes_in_training_ends_it(arguments, tmp_path):
    moving = 'self.plateau.optimizer.param_groups[0]["lr"] *= 1 + loss.item()'
    flags = arguments(sparse(tmp_path, moving), "run", train_steps=4)
    children = begin(tmp_path / "errors", 2, flags)
    codes = [child.wait() for child in children]
    said = "".join(child.said for child in children)
    assert codes == [2, 2], said
    assert "has become another one in other processes" in said
