"""t2t-avg-all: averages that t2t-decoder and t2t-trainer take for a run."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file

from t2t_torch import registry
from t2t_torch.bin.commands import avg_all, decoder, trainer
from t2t_torch.data.generate import generate_data
from t2t_torch.decode.loading import load
from t2t_torch.errors import CheckpointError
from t2t_torch.run import warm_start
from t2t_torch.run.checkpoint_directory import CheckpointDirectory, SaveError

PROBLEM = "algorithmic_reverse_binary40_test"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Shards of a problem."""
    folder = tmp_path_factory.mktemp("data")
    problem = registry.problem(PROBLEM)
    generate_data(problem, folder, folder, num_processes=1, max_cases=160, progress=False)
    return folder


@pytest.fixture(scope="module")
def run(data_dir, tmp_path_factory):
    """A run with checkpoints of steps 2, 4, 6 and 8, evaluated."""
    folder = tmp_path_factory.mktemp("model") / "run"
    flags = {
        "problem": PROBLEM,
        "model": "transformer",
        "hparams_set": "transformer_test",
        "hparams": "batch_size=256,learning_rate_warmup_steps=4",
        "data_dir": data_dir,
        "output_dir": folder,
        "train_steps": 8,
        "local_eval_frequency": 2,
        "eval_steps": 1,
        "worker_gpu": 0,
    }
    assert trainer.main([f"--{name}={value}" for name, value in flags.items()]) == 0
    (folder / "vocab.words").write_text("a\n")  # as if the problem had one
    directory = CheckpointDirectory(folder)
    for step, value in ((2, 1.0), (4, 0.5), (6, 0.7), (8, 0.9)):
        directory.rate(step, value, lower_is_better=True)
    return folder


def average(run, out, *flags):
    return avg_all.main([f"--model_dir={run}", f"--output_dir={out}", *flags])


def weights(folder, step):
    return load_file(folder / f"ckpt-{step}" / "model.safetensors")


def assert_is_mean(run, out, step, steps):
    each = [weights(run, one) for one in steps]
    for name, value in weights(out, step).items():
        mean = np.mean([one[name].numpy() for one in each], axis=0, dtype=np.float64)
        np.testing.assert_array_equal(value.numpy(), mean.astype(np.float32))


@pytest.mark.slow
def test_each_checkpoint_is_averaged_with_those_before_it(run, tmp_path, capsys):
    assert average(run, tmp_path / "avg", "--n=3") == 0
    directory = CheckpointDirectory(tmp_path / "avg")
    assert [one.step for one in directory.list()] == [6, 8]
    assert_is_mean(run, tmp_path / "avg", 6, [2, 4, 6])
    assert_is_mean(run, tmp_path / "avg", 8, [4, 6, 8])
    assert "ckpt-8: the mean of steps 4, 6, 8" in capsys.readouterr().out


def test_the_best_ones_are_averaged(run, tmp_path):
    assert average(run, tmp_path, "--best=2") == 0
    assert_is_mean(run, tmp_path, 6, [4, 6])


def test_those_of_some_steps_are_averaged(run, tmp_path):
    assert average(run, tmp_path, "--steps=8,2") == 0
    assert_is_mean(run, tmp_path, 8, [2, 8])


@pytest.fixture
def damaged(run, tmp_path):
    """A copy of the run whose checkpoint of step 6 is broken."""
    shutil.copytree(run, tmp_path / "damaged")
    (tmp_path / "damaged" / "ckpt-6" / "model.safetensors").write_bytes(b"")
    return tmp_path / "damaged"


def test_a_broken_checkpoint_is_left_out_and_the_one_before_taken(damaged, tmp_path, capsys):
    assert average(damaged, tmp_path / "avg", "--n=3") == 0
    assert [one.step for one in CheckpointDirectory(tmp_path / "avg").list()] == [8]
    assert_is_mean(damaged, tmp_path / "avg", 8, [2, 4, 8])
    printed = capsys.readouterr()
    assert printed.err.count("broken checkpoint left out: ") == 1
    assert "the mean of steps 2, 4, 8" in printed.out


def test_a_run_whose_hparams_were_altered_is_not_averaged(run, tmp_path, capsys):
    run = shutil.copytree(run, tmp_path / "run")
    file = run / "hparams.json"
    file.write_text(file.read_text().replace('"batch_size": 2', '"batch_size": 3'))
    assert average(run, tmp_path / "avg", "--n=3") == 2
    assert f"{file} was altered" in capsys.readouterr().err


def test_an_average_that_fails_leaves_no_run_directory_behind(run, tmp_path, capsys, monkeypatch):
    def full(self, snapshot):
        raise SaveError("no space")

    monkeypatch.setattr(CheckpointDirectory, "save", full)
    assert average(run, tmp_path / "avg", "--n=3") == 2
    assert "no space" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "avg").iterdir()] == ["train.lock"]


def test_what_is_averaged_twice_stays_as_it_is(run, tmp_path):
    for _ in range(2):
        assert average(run, tmp_path, "--n=2", "--min_steps=4") == 0
    assert [one.step for one in CheckpointDirectory(tmp_path).list()] == [6, 8]


def test_an_average_is_decoded_and_evaluated_but_not_trained_on(run, data_dir, tmp_path, capsys):
    out = tmp_path / "avg"
    assert average(run, out, "--n=4") == 0
    (tmp_path / "in.txt").write_text("1 0 1\n0\n")
    target = tmp_path / "out.txt"
    files = [f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_to_file={target}"]
    assert decoder.main([f"--output_dir={out}", *files]) == 0
    assert target.read_text().count("\n") == 2
    shared = [f"--data_dir={data_dir}", f"--output_dir={out}", "--worker_gpu=0"]
    assert trainer.main(["--schedule=evaluate", *shared]) == 0
    assert "step 8  dev:  loss" in capsys.readouterr().err
    assert trainer.main([*shared, "--train_steps=10"]) == 2
    assert "is an average of checkpoints and has no optimizer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--n=9"], "too few whole checkpoints for an average of 9: [2, 4, 6, 8]"),
        (["--best=9"], "has 4 checkpoints that were evaluated"),
        (["--steps=3"], "no checkpoint of step 3. It has: [2, 4, 6, 8]"),
        (["--steps=last"], "expected numbers of steps"),
        (["--steps=2", "--best=1"], "give one of them"),
        (["--n=0"], "--n=0: expected a positive integer"),
    ],
)
def test_what_cannot_be_averaged_is_refused(run, tmp_path, capsys, flags, message):
    assert average(run, tmp_path / "avg", *flags) == 2
    assert message in capsys.readouterr().err


def test_a_runs_own_directory_is_refused(run, capsys):
    assert average(run, run) == 2
    assert "expected another directory than --model_dir" in capsys.readouterr().err


def test_a_directory_of_another_run_is_refused(run, tmp_path, capsys):
    other = json.loads((run / "task.json").read_text()) | {"model": "another"}
    (tmp_path / "task.json").write_text(json.dumps(other))
    assert average(run, tmp_path) == 2
    assert "holds a run of model 'another'" in capsys.readouterr().err


def test_the_best_checkpoint_is_loaded_by_that_name(run, tmp_path):
    assert load(run, "best", device="cpu").run.step == 4
    assert load(run, device="cpu").run.step == 4
    assert load(run, "latest", device="cpu").run.step == 8
    (tmp_path / "in.txt").write_text("1 0 1\n")
    files = [f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_to_file={tmp_path / 'out'}"]
    assert decoder.main([f"--output_dir={run}", "--checkpoint_path=best", *files]) == 0


def test_there_is_no_best_before_an_evaluation(run, tmp_path):
    assert average(run, tmp_path, "--n=4") == 0
    with pytest.raises(
        CheckpointError, match=r"has no best checkpoint, because none was evaluated"
    ):
        load(tmp_path, "best", device="cpu")


def test_a_checkpoint_that_goes_while_it_is_averaged_ends_nothing(
    run, tmp_path, capsys, monkeypatch
):
    source, averaged = tmp_path / "source", warm_start.average_checkpoints
    shutil.copytree(run, source)

    def delete(group, out):
        shutil.rmtree(source / "ckpt-2", ignore_errors=True)
        return averaged(group, out)

    monkeypatch.setattr(warm_start, "average_checkpoints", delete)
    assert average(source, tmp_path / "avg", "--n=2") == 0
    assert [one.step for one in CheckpointDirectory(tmp_path / "avg").list()] == [6, 8]
    assert f"{source / 'ckpt-2'} was deleted before it was averaged" in capsys.readouterr().err
    assert average(source, tmp_path / "asked", "--steps=2,4") == 2
