"""R5, R9, S2, S5: several processes, another number of them, and one that dies."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import forked
import numbered
import processes
import pytest
import torch
import torch.distributed.run as torchrun_module
from conftest import BATCHES_PER_STEP
from numbered import EXAMPLES
from processes import SECONDS_TO_SAVE, consumed_by

from t2t_torch.run.checkpoint_directory import CheckpointDirectory

SAVING = {"local_eval_frequency": 2, "async_save": False}


@pytest.fixture
def run(spec, tmp_path):
    """Trains in some processes; returns what they consumed and the weights of each."""

    def train(name, until, size=1, code=0, **more):
        told = spec(name, until, size, **more)
        children = processes.start_world(tmp_path / "errors", size, processes.train, told)
        for child in children:
            found = child.wait()
            assert found == code, child.said
        notes = Path(told["notes"])
        weights = [json.loads(Path(f"{notes}.{rank}").read_text()) for rank in range(size)]
        return consumed_by(notes, size), [each["weights"] for each in weights]

    return train


def torchrun(folder, told, *flags):
    """Trains as torchrun starts it; returns the exit code and what all have said."""
    # Only torchrun itself is forked; it starts the two as it always does.
    command = [torchrun_module.__file__, "--standalone", "--nproc-per-node=2", *flags]
    command += [processes.__file__, json.dumps(told)]
    special = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    launcher = forked.start_program(command, folder / "said", special)
    launcher.join(processes.SECONDS)
    launcher.kill()
    return launcher.exitcode, (folder / "said").read_text()


def assert_close(found, expected, atol=1e-6):
    """Weights as nested lists."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            torch.tensor(found[name]), torch.tensor(value), rtol=0, atol=atol, msg=name
        )


@pytest.mark.slow
def test_one_process_then_two_then_one_see_the_examples_in_the_same_order(run):
    whole, (expected,) = run("whole", 21)
    assert len(whole) == 21 * BATCHES_PER_STEP  # more than two epochs

    first, _ = run("parts", 7)
    second, _ = run("parts", 13, size=2)
    third, (weights,) = run("parts", 21)

    assert numbered.digest([*first, *second, *third]) == numbered.digest(whole)
    assert_close(weights, expected, atol=1e-5)


@pytest.mark.parametrize("sizes", [[1, 2, 1], [2, 1, 3], [3, 4]])
def test_the_order_of_the_batches_is_that_of_one_process_for_any_number(data_dir, sizes):
    task = numbered.make_task(data_dir)
    position = 0
    for size in sizes:
        ranks = [
            task.train_batches(seed=1, start=position, rank=rank, world_size=size)
            for rank in range(size)
        ]
        for batches in zip(*(itertools.islice(rank, 7) for rank in ranks), strict=True):
            position += len(batches)
    alone = numbered.make_task(data_dir)
    source = alone.train_batches(seed=1, start=0, rank=0, world_size=1)
    list(itertools.islice(source, position))
    assert task.consumed == alone.consumed


def test_two_processes_of_unequal_batches_end_epochs_together(run):
    """Eleven steps of two are two epochs of ten batches, and a step; batches differ in length."""
    consumed, (one, other) = run("two", 11, size=2)
    for epoch in range(2):
        batches = consumed[epoch * 10 : (epoch + 1) * 10]
        counts = Counter(itertools.chain.from_iterable(batches))
        assert set(counts.values()) == {1}
        assert len(counts) == EXAMPLES
    assert one == other


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_one_of_two_processes_makes_both_save_the_same_step(spec, tmp_path, number):
    told = spec("two", 100_000, size=2)
    leader, other = processes.start_world(tmp_path / "errors", 2, processes.train, told)
    file = tmp_path / "two" / "metrics.jsonl"
    other.wait_until(lambda: file.exists() and file.read_text().count("\n") >= 5)
    os.kill(other.pid, number)
    codes = [child.wait(SECONDS_TO_SAVE) for child in (leader, other)]
    assert codes == [128 + number] * 2, leader.said + other.said
    states = [json.loads(Path(f"{told['notes']}.{rank}").read_text())["state"] for rank in (0, 1)]
    saved = CheckpointDirectory(tmp_path / "two").newest().trainer_state()
    assert states[0]["step"] == states[1]["step"] == saved.step >= 5
    assert saved.batches_consumed == BATCHES_PER_STEP * saved.step


@pytest.mark.slow
def test_after_a_process_died_torchrun_starts_all_anew_and_they_end_bit_equal(run, spec, tmp_path):
    _, (expected, _) = run("whole", 9, size=2)
    died = spec("run", 9, size=2, faults={"die": [1, 6]}, config=SAVING)
    code, errors = torchrun(tmp_path, died, "--max-restarts=1")
    assert code == 0, errors
    assert (tmp_path / "run" / "died").exists()
    assert "resuming from step 5" in errors  # which the other process has saved
    notes = json.loads(Path(f"{died['notes']}.0").read_text())
    assert notes["weights"] == expected


@pytest.mark.slow
def test_the_leaders_statistics_are_those_of_all_at_every_step(tmp_path):
    batches = [([float(k), float(k + 1)], [0.0, 0.0]) for k in range(7)]
    told = {
        "batches": batches,
        "steps": 4,
        "output_dir": str(tmp_path / "run"),
        "notes": str(tmp_path / "seen"),
    }
    for child in processes.start_world(tmp_path / "err", 2, processes.train_with_statistics, told):
        code = child.wait()
        assert code == 0, child.said
    one, other = (json.loads((tmp_path / f"seen.{rank}").read_text()) for rank in (0, 1))
    assert one == other
    assert len(set(one)) == len(one) == 4


@pytest.mark.slow
def test_a_save_that_fails_in_the_leader_ends_all_with_its_error_alone(spec, tmp_path):
    config = {"local_eval_frequency": 2, "on_save_error": "fail"}
    told = spec("run", 100_000, size=2, config=config, faults={"disk": True})
    leader, other = processes.start_world(tmp_path / "err", 2, processes.train, told)
    assert (leader.wait(), other.wait()) == (1, 1)
    assert "no space is left" in leader.said
    assert "Traceback" not in other.said


@pytest.mark.slow
def test_others_wait_for_the_leaders_work_and_not_for_a_sum_that_never_comes(tmp_path):
    leader, other = processes.start_world(tmp_path / "err", 2, processes.wait_for_each_other)
    assert leader.wait() == 3, leader.said
    other.kill()


@pytest.mark.slow
def test_a_checkpoint_that_is_deleted_while_it_is_decoded_is_let_go_by_all(flags, tmp_path):
    training = flags(train_steps=2, local_eval_frequency=1)
    child = processes.start(tmp_path / "err", processes.run_trainer, training)
    assert child.wait() == 0, child.said
    decoding = flags(train_steps=1, local_eval_frequency=1, schedule="continuous_decode")
    children = processes.start_world(
        tmp_path / "errors", 2, processes.decode_what_is_deleted, decoding
    )
    for child in children:
        code = child.wait()
        assert code == 0, child.said
    assert "step 1  decoded to" in children[0].said


@pytest.mark.slow
def test_without_a_restart_the_others_end_too_and_what_was_saved_is_whole(spec, tmp_path):
    died = spec("run", 9, size=2, faults={"die": [0, 6]}, config=SAVING)
    leader, other = processes.start_world(tmp_path / "errors", 2, processes.train, died)
    assert leader.wait() == 9
    assert other.wait() != 0
    assert CheckpointDirectory(tmp_path / "run").newest().step == 4
