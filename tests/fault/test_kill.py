"""R8: a run that is killed again and again ends as one that was not, to the last bit."""

from __future__ import annotations

import json
import os
import random
import time

import processes
import pytest
from conftest import reports_of
from safetensors.torch import load_file

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.run import storage

KILLS = int(os.environ.get("T2T_KILLS", "50"))
"""Of the longest test; 100 take some minutes."""

PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="module")
def algorithmic(tmp_path_factory):
    """Shards of a problem that `t2t-trainer` knows."""
    folder = tmp_path_factory.mktemp("algorithmic")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    return folder


@pytest.fixture
def arguments(algorithmic, tmp_path):
    """Makes the flags of `t2t-trainer`."""

    def make(name, steps):
        values = {
            "problem": PROBLEM,
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": "batch_size=256,learning_rate_warmup_steps=4",
            "data_dir": algorithmic,
            "output_dir": tmp_path / name,
            "train_steps": steps,
            "local_eval_frequency": 3,
            "log_step_count_steps": 1,
            "eval_steps": 1,
            "worker_gpu": 0,
        }
        return [f"--{name}={value}" for name, value in values.items()]

    return make


@pytest.fixture
def adapting(arguments, tmp_path):
    """Makes the flags of a run that trains adapters of another run's weights, with dropout."""
    base = [*arguments("base", 3), "--schedule=train"]
    child = processes.start(tmp_path / "err", processes.run_trainer, base)
    assert child.wait() == 0, child.said
    changes = "lora_rank=2,lora_dropout=0.2,unfreeze_schedule=[decoder=9],ema_decay=0.9"

    def make(name, steps):
        flags = [flag for flag in arguments(name, steps) if not flag.startswith("--hparams=")]
        hparams = f"batch_size=256,learning_rate_warmup_steps=4,{changes}"
        return [*flags, f"--hparams={hparams}", f"--warm_start_from={tmp_path / 'base'}"]

    return make


def steps_done(folder):
    """The last step that the reports tell of."""
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def killed_and_killed(arguments, tmp_path, kills, steps, seed, first_save=()):
    """Trains, and kills `kills` times, at random instants; returns the final weights, twice.

    Before that it is killed at system calls of its first save, by their numbers.
    """
    draw = random.Random(seed)
    run = tmp_path / "run"
    for number in first_save:
        told = {storage.VARIABLE: f"save:{number}"}
        flags = [*arguments("run", steps), "--random_seed=7"]
        child = processes.start(tmp_path / "err", processes.run_trainer, flags, **told)
        assert child.wait() == storage.KILLED, child.said
        assert not (run / "ckpt-3").exists()
    for kill in range(kills):
        child = processes.start(tmp_path / "err", processes.run_trainer, arguments("run", steps))
        # In the first half: on a busy machine, too, the end is not reached before the last kill.
        at = (kill + 1) * steps // (2 * kills + 2)
        child.wait_until(lambda at=at: steps_done(run) >= at)
        time.sleep(draw.random() * 0.1)  # some steps, an evaluation and a save or two
        assert child.process.is_alive(), child.said
        child.kill()
    for name in ("run", "whole"):
        flags = arguments(name, steps)
        if first_save and name == "whole":  # the other one remembers its seed
            flags.append("--random_seed=7")
        child = processes.start(tmp_path / "err", processes.run_trainer, flags)
        assert child.wait() == 0, child.said
    return [weights_and_slots(tmp_path / name / f"ckpt-{steps}") for name in ("run", "whole")]


def weights_and_slots(checkpoint):
    """All tensors of a checkpoint, as bytes that can be compared, and its state."""
    files = checkpoint.glob("*.safetensors")
    tensors = {
        f"{file.name}/{name}": value.numpy().tobytes()
        for file in files
        for name, value in load_file(file).items()
    }
    state = json.loads((checkpoint / "trainer.json").read_text())
    return tensors, {name: value for name, value in state.items() if name != "seconds"}


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_instants_ends_bit_equal(arguments, tmp_path, kills):
    killed, whole = killed_and_killed(arguments, tmp_path, kills=kills, steps=15 * kills, seed=1)
    assert killed == whole
    assert reports_of(tmp_path / "run") == reports_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_killed_often_also_in_its_first_save_ends_bit_equal(arguments, tmp_path):
    first = [1, 5, 9, 13]
    killed, whole = killed_and_killed(
        arguments, tmp_path, kills=KILLS - len(first), steps=14 * KILLS, seed=2, first_save=first
    )
    assert killed == whole
    assert reports_of(tmp_path / "run") == reports_of(tmp_path / "whole")


@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_a_run_with_adapters_killed_at_random_instants_ends_bit_equal(adapting, tmp_path, kills):
    killed, whole = killed_and_killed(adapting, tmp_path, kills=kills, steps=15 * kills, seed=3)
    assert killed == whole
    assert any(name.endswith(".lora_b") for name in killed[0])
    assert reports_of(tmp_path / "run") == reports_of(tmp_path / "whole")
