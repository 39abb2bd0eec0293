"""What a trial's code may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import TrialError
from t2t_torch.trial import pytorch_trial
from t2t_torch.trial.pedl_module import install_shim


def test_nested_hyperparameters_have_dotted_names(enter):
    enter({"lr": 0.1, "net": {"layers": {"count": 2}}, "a.b": 3})
    assert pytorch_trial.get_hyperparameter("lr") == 0.1
    assert pytorch_trial.get_hyperparameter("net.layers.count") == 2
    assert pytorch_trial.get_hyperparameter("net") == {"layers": {"count": 2}}
    assert pytorch_trial.get_hyperparameter("a.b") == 3


def test_what_a_trial_changes_changes_nothing_here(enter):
    enter({"net": {"sizes": [1, 2]}}, {"path": "here"})
    pytorch_trial.get_hyperparameter("net")["sizes"].append(3)
    pytorch_trial.get_hyperparameters()["net"] = None
    pytorch_trial.get_data_config()["path"] = "there"
    pytorch_trial.get_experiment_config()["data"]["path"] = "there"
    assert pytorch_trial.get_hyperparameters() == {"net": {"sizes": [1, 2]}}
    assert pytorch_trial.get_data_config() == {"path": "here"}
    assert pytorch_trial.get_experiment_config()["data"] == {"path": "here"}


def test_an_unknown_name_is_answered_by_the_nearest(enter):
    enter({"learning_rate": 0.1, "net": {"hidden": 4}})
    with pytest.raises(
        TrialError, match=r"only learning_rate, net\.hidden\. Did you mean 'learning"
    ):
        pytorch_trial.get_hyperparameter("learning_rat")
    enter({})
    with pytest.raises(TrialError, match="has only none"):
        pytorch_trial.get_hyperparameter("lr")


def test_outside_of_a_trial_every_question_says_how_to_run_one(enter):
    for ask in (
        pytorch_trial.get_hyperparameters,
        pytorch_trial.get_data_config,
        pytorch_trial.get_experiment_config,
        pytorch_trial.get_download_data_dir,
    ):
        with pytest.raises(TrialError, match=f"{ask.__name__}.. was called outside.*t2t-trainer"):
            ask()


def test_the_directory_of_the_data_is_a_string_once_it_is_there(enter):
    enter()
    with pytest.raises(TrialError, match=r"no function download_data\(experiment_config, hparams"):
        pytorch_trial.get_download_data_dir()
    pytorch_trial.enter(pytorch_trial.TrialContext({}, {}, Path("/data/mnist")))
    assert pytorch_trial.get_download_data_dir() == "/data/mnist"


def test_a_run_has_numbers_that_follow_from_its_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(pytorch_trial._Current, "run", None)
    assert (pytorch_trial.get_experiment_id(), pytorch_trial.get_trial_id()) == (0, 0)
    numbers = set()
    for name in ("run", "trials/1", "trials/2"):
        pytorch_trial.name_run(tmp_path / name)
        numbers.add((pytorch_trial.get_experiment_id(), pytorch_trial.get_trial_id()))
    assert len({trial for _, trial in numbers}) == 3
    assert len({experiment for experiment, _ in numbers}) == 2
    install_shim()
    import pedl

    assert pedl.get_trial_id() == pytorch_trial.get_trial_id() > 0
