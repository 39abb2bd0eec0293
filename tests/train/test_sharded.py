"""Weights that are divided among processes (FSDP2, on CPUs over gloo)."""

import json
from pathlib import Path

import pytest
import torch
from together import run_together

from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.storage import KILLED
from t2t_torch.run.tensors import StoredTensors, tensors_at

PROGRAM = Path(__file__).with_name("process_of_two.py")
PROBLEM = "algorithmic_reverse_binary40_test"
HPARAMS = (
    "batch_size=256,learning_rate_warmup_steps=4,learning_rate_constant=0.5,ema_decay=0.9,"
    "clip_grad_norm=0.5,shared_embedding_and_softmax_weights=True"
)


def start(data_dir, output_dir, hparams, steps, processes=2, special=None):
    """Runs a training in so many processes to its end; returns their exit codes and errors.

    Args:
      data_dir: of the problem.
      output_dir: of the run.
      hparams: besides those of all tests.
      steps: at which it ends.
      processes: that train together.
      special: by rank, environment variables of that process alone.
    """
    settings = {
        "problem": PROBLEM,
        "data_dir": str(data_dir),
        "output_dir": str(output_dir),
        "hparams": f"{HPARAMS},{hparams}",
        "steps": steps,
    }
    return run_together([PROGRAM, json.dumps(settings)], processes, special)


def train(data_dir, output_dir, hparams, steps, processes=2):
    codes, errors = start(data_dir, output_dir, hparams, steps, processes)
    assert codes == [0] * processes, errors


def tensors(output_dir, step):
    folder = output_dir / f"ckpt-{step}"
    return {
        f"{kind}/{name}": tensor
        for kind in ("model", "optimizer", "average")
        for name, tensor in StoredTensors(tensors_at(folder, kind)).read().items()
    }


def check(first, second, **close):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], **close, msg=lambda m, n=name: f"{n}: {m}")


@pytest.fixture(scope="module")
def divided(data_dir, tmp_path_factory):
    """A run of four steps whose weights are divided among two processes."""
    folder = tmp_path_factory.mktemp("divided")
    train(data_dir, folder, "shard_weights=True", 4)
    return folder


def test_divided_weights_learn_what_whole_ones_do(divided, data_dir, tmp_path):
    train(data_dir, tmp_path, "optimizer_multistep_accumulate_steps=2", 4, processes=1)
    check(tensors(divided, 4), tensors(tmp_path, 4), atol=1e-5, rtol=1e-4)


def test_each_process_has_written_half_of_the_checkpoint(divided):
    checkpoint = CheckpointDirectory(divided).at(4)
    for kind in ("model", "optimizer", "average"):
        assert not (checkpoint.path / f"{kind}.safetensors").exists()
        files = sorted((checkpoint.path / kind).iterdir())
        assert [file.name[:5] for file in files] == ["00001", "00002"]
        sizes = [file.stat().st_size for file in files]
        assert max(sizes) < 0.55 * sum(sizes)


@pytest.mark.slow
def test_a_disk_that_fails_one_process_fails_the_save_of_both(data_dir, tmp_path):
    full = {1: {"LARGEST_FILE": "4096"}}
    codes, errors = start(data_dir, tmp_path, "shard_weights=True", 1, special=full)
    assert codes == [1, 1], errors
    assert f"cannot write the checkpoint {tmp_path / 'ckpt-1'}: process 1: " in errors
    assert "File too large" in errors
    assert not list(tmp_path.glob("ckpt-*"))


@pytest.mark.slow
def test_divided_weights_resume_bit_by_bit(divided, data_dir, tmp_path):
    train(data_dir, tmp_path, "shard_weights=True,activation_checkpointing=True", 2)
    train(data_dir, tmp_path, "shard_weights=True,activation_checkpointing=True", 4)
    check(tensors(divided, 4), tensors(tmp_path, 4), atol=0, rtol=0)


@pytest.mark.slow
def test_a_run_goes_on_with_whole_weights_in_one_process(divided, data_dir, tmp_path):
    train(data_dir, tmp_path, "shard_weights=True", 2)
    train(data_dir, tmp_path, "optimizer_multistep_accumulate_steps=2", 4, processes=1)
    check(tensors(divided, 4), tensors(tmp_path, 4), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_a_run_goes_on_with_weights_divided_otherwise(data_dir, tmp_path):
    accumulate = "shard_weights=True,optimizer_multistep_accumulate_steps={}".format
    for step, processes in ((1, 1), (2, 3), (3, 2)):  # whole; in three; in two
        train(data_dir, tmp_path / "run", accumulate(6 // processes), step, processes)
    train(data_dir, tmp_path / "alone", accumulate(6), 3, processes=1)
    check(tensors(tmp_path / "run", 3), tensors(tmp_path / "alone", 3), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_in_a_save_leaves_the_checkpoint_before(
    divided, data_dir, tmp_path, rank
):
    train(data_dir, tmp_path, "shard_weights=True", 2)
    before = tensors(tmp_path, 2)
    killed = {rank: {"T2T_FAULT": "save:9"}}  # the weights are written, not all the rest
    codes, errors = start(data_dir, tmp_path, "shard_weights=True", 4, special=killed)
    assert codes[rank] == KILLED, errors
    assert codes[1 - rank] != 0, errors  # nobody waits for the dead
    directory = CheckpointDirectory(tmp_path)
    assert [checkpoint.step for checkpoint in directory.list()] == [2]
    directory.at(2)
    check(tensors(tmp_path, 2), before, atol=0, rtol=0)
    train(data_dir, tmp_path, "shard_weights=True", 4)
    check(tensors(tmp_path, 4), tensors(divided, 4), atol=0, rtol=0)
    assert not list(tmp_path.glob("*.tmp-*"))
