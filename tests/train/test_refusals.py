"""What `t2t-trainer` refuses early, leaving the run as it was."""

from __future__ import annotations

import json
import shutil

import pytest

from t2t_torch.bin.commands import trainer
from t2t_torch.problems.algorithmic import AlgorithmicProblem
from t2t_torch.run.directory import RunDirectory

PROBLEM = "algorithmic_reverse_binary40_test"
HPARAMS = "batch_size=256,learning_rate_warmup_steps=4"


@pytest.fixture
def run(data_dir, tmp_path):
    """Runs the command in `tmp_path / "run"`; a flag of None is left out."""

    def call(**flags):
        values = {
            "problem": PROBLEM,
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": HPARAMS,
            "data_dir": data_dir,
            "output_dir": tmp_path / "run",
            "train_steps": 1,
            "eval_steps": 1,
            "worker_gpu": 0,
            **flags,
        }
        return trainer.main([f"--{k}={v}" for k, v in values.items() if v is not None])

    return call


@pytest.fixture
def damaged(data_dir, tmp_path):
    """Copies the data and cuts a shard of a split; returns the folder."""

    def damage(split):
        folder = shutil.copytree(data_dir, tmp_path / "damaged")
        shard = next(folder.glob(f"{PROBLEM}-{split}-*"))
        shard.write_bytes(shard.read_bytes()[:-100])
        return folder

    return damage


def identity(folder):
    return [(folder / name).read_bytes() for name in ("task.json", "hparams.json")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"random_seed": 7}, "--random_seed=1, not 7"),
        ({"hparams": f"{HPARAMS},optimizer_multistep_accumulate_steps=2"}, "batches; here it is"),
        ({"hparams": f"{HPARAMS},hidden_size=32"}, "hidden_size was 16, is 32"),
        ({"problem": f"{PROBLEM}_rev"}, "holds a run of problem"),
    ],
)
def test_a_refused_resume_changes_no_byte(run, tmp_path, capsys, flags, told):
    assert run() == 0
    before = identity(tmp_path / "run")
    changed = {"hparams": f"{HPARAMS},learning_rate_constant=0.1", "train_steps": 9, **flags}
    assert run(**changed) == 2
    assert told in capsys.readouterr().err
    assert identity(tmp_path / "run") == before
    assert run(train_steps=2) == 0


def test_a_first_start_that_fails_begins_no_run(run, tmp_path, damaged):
    for flags in ({"hparams": "hidden_size=17,num_heads=4"}, {"data_dir": damaged("train")}):
        assert run(**flags) == 2
        assert not RunDirectory(tmp_path / "run").exists
    assert run() == 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"problem": f"{PROBLEM}_rev"}, "holds a run of problem"),
        ({"model": "lstm_seq2seq", "hparams_set": None}, "holds a run of model"),
        ({"hparams": "hidden_size=32"}, "hidden_size was 16, is 32"),
        ({"hparams": "batch_size=99"}, "batch_size was 256, is 99"),
        ({"hparams_set": "transformer_tiny"}, "started with other hparams"),
    ],
)
@pytest.mark.parametrize("schedule", ["evaluate", "continuous_eval"])
def test_an_evaluation_of_another_run_is_refused(run, capsys, flags, told, schedule):
    run()
    assert run(schedule=schedule, **{"hparams": None, **flags}) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("hparams_set", [None, "transformer_test"])
def test_an_evaluation_takes_the_hparams_of_the_run(run, tmp_path, hparams_set):
    run(hparams=f"{HPARAMS},hidden_size=32,label_smoothing=0.2")
    before = identity(tmp_path / "run")

    def told():
        lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        (line,) = (json.loads(line) for line in lines if json.loads(line)["split"] == "dev")
        return line

    first = told()
    assert run(schedule="evaluate", hparams_set=hparams_set, hparams=None) == 0
    assert identity(tmp_path / "run") == before
    again = told()  # the same step and split: once in the file
    assert again["time"] > first["time"]
    assert again["loss"] == first["loss"]


def test_what_is_evaluated_is_checked_before_the_first_step(run, tmp_path, damaged, capsys):
    folder = damaged("dev")
    assert run(data_dir=folder) == 2
    assert f"{PROBLEM}-dev" in capsys.readouterr().err
    assert not RunDirectory(tmp_path / "run").exists
    assert run(data_dir=folder, schedule="train") == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"decode_from_file": "nowhere.txt"}, "--decode_from_file=nowhere.txt: there is no such"),
        ({"decode_hparams": "beam_sise=3"}, "beam_size"),
    ],
)
def test_what_is_decoded_is_checked_before_the_first_step(run, tmp_path, capsys, flags, told):
    assert run(schedule="train_eval_and_decode", **flags) == 2
    assert told in capsys.readouterr().err
    assert not RunDirectory(tmp_path / "run").exists


def test_an_output_dir_that_is_the_data_or_a_file_is_refused(run, data_dir, tmp_path, capsys):
    assert run(output_dir=data_dir) == 2
    assert "are the same folder" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert run(output_dir=tmp_path / "file") == 2
    assert "cannot be made or written to" in capsys.readouterr().err


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_metric_of_other_targets_is_refused_before_the_first_step(
    run, tmp_path, capsys, monkeypatch, dry_run
):
    monkeypatch.setattr(AlgorithmicProblem, "metrics", ("accuracy", "span_f1"))
    assert run(dry_run=dry_run) == 2
    assert "'span_f1' is of a target that is a Tags, and this one is a Text" in (
        capsys.readouterr().err
    )
    assert not RunDirectory(tmp_path / "run").exists
