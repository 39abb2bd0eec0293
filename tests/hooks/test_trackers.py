"""Experiment trackers, offline: reports are logged; a resumed run stays one run."""

from __future__ import annotations

import json
import sys

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.train.experiment import Experiment, chosen_hooks


def reports(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {(one["split"], one["step"]): one for one in lines}


def train(make_run, name, **config):
    estimator = make_run(hooks=(name,), **config)
    Experiment(estimator).run("continuous_train_and_eval")
    estimator.close()
    return estimator.directory.path


def test_mlflow_has_the_parameters_and_every_report_of_a_resumed_run(
    make_run, tmp_path, monkeypatch
):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(sys, "argv", ["t2t-trainer"])
    mlflow.set_tracking_uri(f"file:{tmp_path / 'mlruns'}")
    train(make_run, "mlflow")
    path = train(make_run, "mlflow", train_steps=6)
    client = mlflow.MlflowClient()
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    assert experiment.name == "algorithmic_reverse_binary40_test"
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["batch_size"] == "256"
    assert run.info.status == "FINISHED"
    known = reports(path)
    for split in ("train", "dev"):
        logged = {
            m.step: m.value for m in client.get_metric_history(run.info.run_id, f"{split}/loss")
        }
        expected = {step: one["loss"] for (kind, step), one in known.items() if kind == split}
        assert logged == pytest.approx(expected)
        assert set(logged) == {2, 4, 6}


def test_wandb_writes_an_offline_run_and_resumes_it(make_run, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.sdk import wandb_run

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "tried")
    logged, log = {}, wandb_run.Run.log

    def record(self, values, *, step):
        logged.update({(name, step): value for name, value in values.items()})
        log(self, values, step=step)

    monkeypatch.setattr(wandb_run.Run, "log", record)
    path = train(make_run, "wandb")
    first = sorted((path / "wandb").glob("offline-run-*"))
    assert len(first) == 1 and list(first[0].glob("*.wandb"))
    train(make_run, "wandb", train_steps=6)
    both = sorted((path / "wandb").glob("offline-run-*"))
    ids = {folder.name.split("-")[3] for folder in both}  # a number follows in the same second
    assert len(ids) == 1, "the same run"
    for (split, step), values in reports(path).items():
        assert logged[f"{split}/loss", step] == values["loss"]


def test_a_tracker_that_cannot_start_is_an_error_of_the_command(make_run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path / 'mlruns'}")

    def fail(*_, **__):
        raise mlflow.MlflowException("the server is down")

    monkeypatch.setattr(mlflow.MlflowClient, "get_experiment_by_name", fail)
    with pytest.raises(UsageError, match="--hooks=mlflow cannot start its run: the server is down"):
        train(make_run, "mlflow")


def test_a_training_survives_the_loss_of_its_tracker(make_run, tmp_path, monkeypatch, capsys):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(sys, "argv", ["t2t-trainer"])
    mlflow.set_tracking_uri(f"file:{tmp_path / 'mlruns'}")

    def fail(*_, **__):
        raise mlflow.MlflowException("the server is down")

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", fail)
    path = train(make_run, "mlflow")
    assert ("dev", 4) in reports(path)
    printed = capsys.readouterr().err
    assert printed.count("--hooks=mlflow cannot log step 2, and ends: the server is down") == 1


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_tracker_is_named_with_its_install_line(name, make_run, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    estimator = make_run()
    with pytest.raises(
        UsageError, match=rf"--hooks={name} needs {name}.*pip install '\.\[{name}\]'"
    ):
        chosen_hooks(estimator.config.replace(hooks=(name,)), estimator.task.hparams)
