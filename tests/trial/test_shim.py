"""`import pedl`, and what it offers."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from t2t_torch import PyTorchTrial
from t2t_torch.errors import TrialError
from t2t_torch.trial.pedl_module import add_removed_names, install_shim, remove_removed_names
from t2t_torch.trial.user_code import instance_of

NAMES = {
    "pedl": "Constant Experiment InvalidHP Reducer get_experiment_id get_trial_id "
    "get_data_config get_download_data_dir "
    "get_experiment_config get_hyperparameter get_hyperparameters",
    "pedl.frameworks.util": "elementwise_mean",
    "pedl.frameworks.pytorch": "LRScheduler PyTorchTrial Reducer reset_parameters",
    "pedl.frameworks.pytorch.data": "DataLoader TorchData",
    "pedl.frameworks.pytorch.util": "error_rate",
    "determined": "InvalidHP TrialContext get_cluster_info pytorch",
    "determined.pytorch": "DataLoader LRScheduler MetricReducer PyTorchCallback PyTorchTrial "
    "PyTorchTrialContext Reducer TorchData reset_parameters",
}


@pytest.fixture(autouse=True)
def shim():
    assert install_shim()


@pytest.mark.parametrize("module", NAMES)
def test_every_name_that_trials_import_is_there(module):
    result = importlib.import_module(module)
    assert not [name for name in NAMES[module].split() if not hasattr(result, name)]


def test_a_module_below_is_an_attribute_of_the_one_above():
    import pedl

    assert pedl.frameworks.pytorch.PyTorchTrial is PyTorchTrial
    assert pedl.frameworks.pytorch.data.DataLoader.__mro__[1] is torch.utils.data.DataLoader


@pytest.mark.slow
def test_another_package_of_that_name_is_hidden(tmp_path):
    (tmp_path / "pedl").mkdir()
    (tmp_path / "pedl" / "__init__.py").write_text("other = True\n")
    script = (
        "from t2t_torch.trial.pedl_module import install_shim\nassert install_shim()\n"
        "from pedl.frameworks.pytorch import PyTorchTrial\nimport pedl\n"
        "assert not hasattr(pedl, 'other')"
    )
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is no trial library" in done.stderr


@pytest.mark.slow
def test_an_installed_pedl_is_left_alone_and_its_trials_are_trials(tmp_path):
    folder = tmp_path / "pedl" / "frameworks" / "pytorch"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("class PyTorchTrial: pass\n")
    (tmp_path / "model_def.py").write_text(
        "from pedl.frameworks.pytorch import PyTorchTrial\n"
        "def make_data_loaders(experiment_config, hparams): pass\n"
        "class MyTrial(PyTorchTrial):\n"
        "    build_model = optimizer = losses = validation_metrics = len\n"
    )
    script = (
        "from t2t_torch.trial.pedl_module import install_shim\nassert not install_shim()\n"
        "from t2t_torch.trial.user_code import load_definition\n"
        "assert load_definition('model_def.py').trial_class.__name__ == 'MyTrial'"
    )
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_constant_is_the_chosen_value_or_its_own(enter):
    import pedl

    assert pedl.Constant(value=16, name="batch_size") == 16
    enter({"batch_size": 8})
    assert pedl.Constant(value=16, name="batch_size") == 8
    assert pedl.Constant(value=True, name="Prebias") is True


def test_an_experiment_of_the_client_says_which_command_runs_it(trials, monkeypatch):
    script = (trials / "yolo_like.py").read_text()
    monkeypatch.chdir(trials)
    with pytest.raises(TrialError) as caught:
        exec(compile(script, "yolo_like.py", "exec"), {"__name__": "__main__"})
    said = str(caught.value)
    assert "t2t-trainer --trial=" in said and ":YOLOv3Trial --config=experiment.yaml" in said
    assert '"metric": "mAP_at_0.5"' in said


def test_error_rate_is_the_part_whose_likeliest_class_is_wrong():
    from pedl.frameworks.pytorch.util import error_rate

    predictions = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    assert error_rate(predictions, torch.tensor([0, 1, 1, 1])) == 0.25
    with pytest.raises(TrialError, match=r"shape \[4, 2\].*shape \[3\]"):
        error_rate(predictions, torch.tensor([0, 1, 1]))


def test_elementwise_mean_keeps_the_shape():
    from pedl.frameworks.util import elementwise_mean

    np.testing.assert_array_equal(elementwise_mean([[1, 2], [3, 6]]), [2, 4])
    assert elementwise_mean([1.0, 2.0]) == 1.5
    with pytest.raises(ValueError, match="same shape"):
        elementwise_mean([[1], [1, 2]])


def test_reset_parameters_draws_every_layer_anew():
    from pedl.frameworks.pytorch import reset_parameters

    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    before = [parameter.clone() for parameter in model.parameters()]
    reset_parameters(model)
    assert all(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_a_scheduler_steps_by_batch_by_epoch_or_by_hand():
    from pedl.frameworks.pytorch import LRScheduler

    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    by_hand = LRScheduler(scheduler)
    assert (by_hand.step_every_batch, by_hand.step_every_epoch) == (False, False)
    assert LRScheduler(scheduler, step_every_epoch=True).scheduler is scheduler
    with pytest.raises(TrialError, match="at most one of the two"):
        LRScheduler(scheduler, step_every_batch=True, step_every_epoch=True)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(TrialError, match="steps by a metric"):
        LRScheduler(plateau, step_every_epoch=True)


@pytest.mark.parametrize("made", ["none", "self", "hparams", "any"])
def test_a_trial_is_made_with_or_without_hparams(made):
    class Plain(PyTorchTrial):
        pass

    class Itself(PyTorchTrial):
        def __init__(self):
            super().__init__()

    class Given(PyTorchTrial):
        def __init__(self, hparams):
            super().__init__(hparams)
            self.given = hparams

    class Anything(PyTorchTrial):
        def __init__(self, hparams, *_, **__):
            super().__init__(hparams, *_, **__)
            self.given = hparams

    kinds = {"none": Plain, "self": Itself, "hparams": Given, "any": Anything}
    definition = SimpleNamespace(trial_class=kinds[made], takes_context=False, spec="mine.py")
    trial = instance_of(definition, {"a": 1}, None)
    assert getattr(trial, "given", {"a": 1}) == {"a": 1}


def test_schedulers_of_trials_take_verbose_as_older_versions_of_torch_did():
    kinds = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    add_removed_names()
    try:
        plateau = kinds.ReduceLROnPlateau(optimizer, patience=3, verbose=True)
        assert (plateau.patience, plateau.factor) == (3, 0.1)
        assert kinds.StepLR(optimizer, 2, verbose=False).step_size == 2
        by_position = kinds.StepLR(optimizer, 2, 0.5, -1, True)
        assert (by_position.gamma, by_position.last_epoch) == (0.5, 0)
        with pytest.raises(TypeError, match="positional"):
            kinds.StepLR(optimizer, 2, 0.5, -1, True, 7)

        class Constant(kinds.LRScheduler):
            def __init__(self, optimizer, last_epoch=-1, verbose=False):
                super().__init__(optimizer, last_epoch, verbose)

            def get_lr(self):
                return self.base_lrs

        assert Constant(optimizer, verbose=True).last_epoch == 0
    finally:
        remove_removed_names()
    if "verbose" not in inspect.signature(kinds.ReduceLROnPlateau.__init__).parameters:
        with pytest.raises(TypeError, match="verbose"):
            kinds.ReduceLROnPlateau(optimizer, verbose=True)
