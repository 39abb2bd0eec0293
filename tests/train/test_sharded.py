"""Weights that are divided among processes (FSDP2, on CPUs over gloo)."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

PROGRAM = Path(__file__).with_name("process_of_two.py")
PROBLEM = "algorithmic_reverse_binary40_test"
HPARAMS = (
    "batch_size=256,learning_rate_warmup_steps=4,learning_rate_constant=0.5,ema_decay=0.9,"
    "clip_grad_norm=0.5,shared_embedding_and_softmax_weights=True"
)


def train(data_dir, output_dir, hparams, steps, processes=2):
    """Runs a training in so many processes to its end."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    settings = {
        "problem": PROBLEM,
        "data_dir": str(data_dir),
        "output_dir": str(output_dir),
        "hparams": f"{HPARAMS},{hparams}",
        "steps": steps,
    }
    world = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(settings)],
            env={**os.environ, **world, "RANK": str(rank), "WORLD_SIZE": str(processes)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * processes, "\n".join(errors)


def tensors(output_dir, step):
    folder = output_dir / f"ckpt-{step}"
    return {
        f"{file.stem}/{name}": tensor
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in safetensors.torch.load_file(file).items()
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
