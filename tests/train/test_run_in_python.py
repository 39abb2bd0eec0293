"""Runs that an `Estimator` makes in Python, without a command."""

from __future__ import annotations

import pytest

import t2t_torch
from t2t_torch.bin.commands import trainer
from t2t_torch.errors import CheckpointError
from t2t_torch.hparam import HParams
from t2t_torch.models.transformer import Transformer
from t2t_torch.run.directory import RunDirectory
from t2t_torch.train.estimator import Estimator
from t2t_torch.train.problem_task import Origin
from t2t_torch.train.run_config import RunConfig

from .conftest import RECORD


def test_a_run_that_was_made_in_python_is_loaded_and_gone_on_with(make_task, data_dir, tmp_path):
    run = tmp_path / "run"
    with Estimator(make_task(), RunDirectory(run), RunConfig(train_steps=3)) as estimator:
        estimator.train(3)
    assert len(t2t_torch.load(run, device="cpu")(["0 1 1", "1 0"])) == 2
    flags = [f"--output_dir={run}", f"--data_dir={data_dir}", "--worker_gpu=0", "--eval_steps=1"]
    assert trainer.main([*flags, "--train_steps=4"]) == 0
    assert (run / "ckpt-4").is_dir()


def test_a_run_of_an_earlier_estimator_is_described_by_the_next(make_task, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Origin, "claim", lambda *_: None)
        with Estimator(make_task(), RunDirectory(run), RunConfig(train_steps=1)) as estimator:
            estimator.train(1)
    with pytest.raises(CheckpointError, match=r"task.json is missing. No .*begin\(\)"):
        RunDirectory(run).task()
    with Estimator(make_task(), RunDirectory(run), RunConfig(train_steps=1)) as estimator:
        estimator.begin()
    assert RunDirectory(run).task().model == "transformer"


@pytest.mark.parametrize("names_set", [True, False])
def test_a_model_of_the_base_class_of_hparams_is_loaded_with_the_class_of_its_set(
    make_task, tmp_path, monkeypatch, names_set
):
    monkeypatch.setattr(Transformer, "HParams", HParams)
    task, directory = make_task("num_heads=2"), RunDirectory(tmp_path / "run")
    if names_set:
        directory.begin(RECORD, task.hparams)
    with Estimator(task, directory, RunConfig(train_steps=1)) as estimator:
        estimator.train(1)
    assert t2t_torch.load(directory.path, device="cpu").model.hparams == task.hparams
    assert directory.hparams(HParams) == task.hparams


@pytest.mark.parametrize(
    "text", ["[]", '{"provenance": [1], "b": 1}', '{"provenance": {"a": {}}, "b": 1}']
)
def test_hparams_of_another_form_are_refused(make_task, tmp_path, text):
    run = RunDirectory(tmp_path / "run")
    with Estimator(make_task(), run, RunConfig(train_steps=1)) as estimator:
        estimator.begin()
    (tmp_path / "run" / "hparams.json").write_text(text)
    (tmp_path / "run" / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match=r"hparams.json does not fit"):
        run.hparams(HParams)
