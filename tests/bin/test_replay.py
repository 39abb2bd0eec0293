"""`t2t-replay`: steps that come again, steps that do not, and what it leaves alone."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from t2t_torch.bin.commands import replay, trainer
from t2t_torch.train.digests import NAME
from t2t_torch.train.estimator import Estimator

SMALL = "batch_size=256,learning_rate_warmup_steps=4,layer_prepostprocess_dropout=0.1"
KINDS = {
    "plain": {},
    "accumulated": {"hparams": f"{SMALL},optimizer_multistep_accumulate_steps=2"},
    "bfloat16 and an average": {"hparams": f"{SMALL},activation_dtype=bfloat16,ema_decay=0.9"},
    "deterministic": {"deterministic_world": 2},
    "mean that waits": {"hparams": f"{SMALL},swa_patience=1", "eval_patience": 0},
    "plateau": {
        "reduce_lr_on_plateau_factor": 0.5,
        "reduce_lr_on_plateau_patience": 1,
        "reduce_lr_on_plateau_threshold": 10.0,
    },
}


def content_of(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def train(arguments, made_once, tmp_path):
    """Returns a run of 12 steps, checkpoints every 4, digests every 2; it was resumed once."""

    def run(kind="plain"):
        def make(folder):
            settings = {"digest_every": 2, "local_eval_frequency": 4, "hparams": SMALL}
            settings |= {"output_dir": folder / "run", "train_steps": 12, **KINDS[kind]}
            assert trainer.main([*arguments(**settings), "--pause_at_step=4"]) == 0
            assert trainer.main(arguments(**settings)) == 0

        made = made_once(f"replayed {kind}", make)
        return Path(shutil.copytree(made / "run", tmp_path / kind))

    return run


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_all_logged_steps_come_again_and_the_run_is_left_alone(train, kind, capsys):
    run = train(kind)
    before = content_of(run)
    for steps, start in (("1:12", 0), ("6:12", 4), ("9:20", 8)):
        assert replay.main([f"--output_dir={run}", f"--steps={steps}", "--worker_gpu=0"]) == 0
        said = capsys.readouterr().out
        assert f"computed again from step {start}: the digests of" in said
        assert "step 12: equal" in said
    assert content_of(run) == before


@pytest.mark.parametrize("part", ["batch", "loss", "gradients", "weights"])
def test_the_first_part_that_differs_is_named(train, part, capsys):
    run = train()
    lines = (run / NAME).read_text().splitlines()
    record = json.loads(lines[3])
    if isinstance(record[part], list):
        record[part][3] += 1
    else:
        record[part] = f"1{record[part]}"
    (run / NAME).write_text("\n".join([*lines[:3], json.dumps(record), *lines[4:]]))
    if part == "loss":  # as of another version
        (run / "starts.jsonl").write_text('{"step": 0}\n')
    assert replay.main([f"--output_dir={run}", "--steps=5:12", "--worker_gpu=0"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "step 6: equal"
    assert said[1].startswith(f"step 8: differs, the {part} first")
    assert said[2].startswith("It arose after step 6, up to step 8: a bit flipped, or this machine")


def test_a_gradient_that_flipped_in_a_step_without_digests_is_found(
    arguments, tmp_path, monkeypatch, capsys
):
    settings = {"digest_every": 4, "local_eval_frequency": 8, "train_steps": 8}
    begin = Estimator.begin

    def with_fault(estimator):
        run = begin(estimator)

        def flip(parameter):
            if estimator.state.step == 5:
                parameter.grad.view(-1).view(torch.int32)[0] ^= 1 << 25

        layer = list(run.model.parameters())[5]
        if not hasattr(layer, "watched"):
            layer.watched = layer.register_post_accumulate_grad_hook(flip)
        return run

    with monkeypatch.context() as patch:
        patch.setattr(Estimator, "begin", with_fault)
        assert trainer.main(arguments(**settings)) == 0
    flags = [f"--output_dir={tmp_path / 'run'}", "--worker_gpu=0"]
    assert replay.main([*flags, "--steps=1:8"]) == 1
    said = capsys.readouterr().out
    assert "step 4: equal" in said
    assert "step 8: differs, the loss first" in said


def test_equal_bits_on_any_number_of_processes_are_replayed_by_one(train, capsys):
    run = train("deterministic")
    text = (run / NAME).read_text()
    (run / NAME).write_text(text.replace('"processes": 1', '"processes": 2'))
    assert replay.main([f"--output_dir={run}", "--steps=1:12", "--worker_gpu=0"]) == 0
    assert "the digests of 6 logged step(s) are equal" in capsys.readouterr().out


def test_other_settings_and_hooks_are_named_as_reasons(arguments, tmp_path, capsys):
    settings = {"digest_every": 2, "local_eval_frequency": 4, "train_steps": 12, "hparams": SMALL}
    assert trainer.main([*arguments(**settings), "--pause_at_step=4"]) == 0
    settings["hparams"] += ",learning_rate_constant=0.3"
    assert trainer.main([*arguments(**settings), "--hooks=histograms"]) == 0
    command = [f"--output_dir={tmp_path / 'run'}", "--worker_gpu=0"]
    assert replay.main([*command, "--steps=6:12"]) == 0
    capsys.readouterr()
    assert replay.main([*command, "--steps=1:4"]) == 1
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "arose" in line]
    assert "perhaps settings that changed at step 4: learning_rate_constant: " in said
    assert "perhaps the run's hooks, left out here: histograms" in said


def test_what_cannot_be_replayed_is_refused(train, tmp_path, capsys):
    run = train()
    for flags, message in {
        (): "Give the step to compute again",
        ("--step=3", "--steps=1:2"): "Give the step to compute again",
        ("--steps=2",): "Give the step to compute again",
        ("--step=3",): "has no digests of 3 to 3. It has those of 2, 4, 6 and 3 more",
    }.items():
        assert replay.main([f"--output_dir={run}", *flags]) == 2
        assert message in capsys.readouterr().err
    text = (run / NAME).read_text()
    (run / NAME).write_text(text.replace('"processes": 1', '"processes": 2'))
    assert replay.main([f"--output_dir={run}", "--step=4"]) == 2
    assert "torchrun --nproc-per-node=2 -m t2t_torch.bin t2t-replay" in capsys.readouterr().err
    (run / NAME).unlink()
    assert replay.main([f"--output_dir={run}", "--step=4"]) == 2
    assert (
        "It has those of no step; t2t-trainer --digest_every=50 logs them"
        in capsys.readouterr().err
    )
    assert replay.main([f"--output_dir={tmp_path / 'none'}", "--step=4"]) == 2
    assert "is not a run directory" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("size", "shard_weights"), [(2, False), (2, True), (4, False)])
def test_a_run_of_several_processes(arguments, tmp_path, size, shard_weights):
    """Sums of four gradients depend on the order of DDP's buckets, which its first pass changes."""
    flags = arguments(
        hparams=f"{SMALL},shard_weights={shard_weights}",
        digest_every=1,
        local_eval_frequency=4,
        train_steps=8,
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun.append(f"--nproc-per-node={size}")
    subprocess.run([*torchrun, "-m", "t2t_torch.bin.trainer", *flags], check=True)
    command = [*torchrun, "-m", "t2t_torch.bin", "t2t-replay", f"--output_dir={tmp_path / 'run'}"]
    for steps, start, count in (("2:6", 0, 5), ("5:8", 4, 4)):
        said = subprocess.run(
            [*command, f"--steps={steps}", "--worker_gpu=0"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert f"from step {start}: the digests of {count} logged step(s) are equal" in said
