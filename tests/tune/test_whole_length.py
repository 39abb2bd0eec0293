"""How long an epoch is, asked of a trial's loaders."""

from __future__ import annotations

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.search_space import Space
from t2t_torch.trial.search import whole_length

TRIAL = """
import pedl
import torch
from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader
from torch.utils.data import TensorDataset


def make_data_loaders(experiment_config, hparams):
    data = TensorDataset(torch.zeros(20, 1), torch.zeros(20, 1))
    size = hparams["batch_size"]
    return DataLoader(data, batch_size=size), DataLoader(data, batch_size=size)


class Tiny(PyTorchTrial):
    def build_model(self, hparams):
        return torch.nn.Linear(1, 1)

    def losses(self, predictions, labels):
        return ((predictions - labels) ** 2).mean()

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def batch_size(self):
        return pedl.get_hyperparameter("batch_size")

    def validation_metrics(self, predictions, labels, losses):
        return {"error": losses}
"""


def test_the_ends_of_a_space_are_those_of_its_ranges() -> None:
    space = Space.of_mapping(
        {
            "a": {"type": "int", "minval": 1, "maxval": 3},
            "b": {"c": {"type": "categorical", "vals": ["x", "y"]}, "d": 7},
        }
    )
    assert space.at(0.0) == {"a": 1, "b.c": "x", "b.d": 7}
    assert space.at(1.0) == {"a": 3, "b.c": "y", "b.d": 7}


@pytest.mark.slow  # torch is imported in processes of their own
def test_an_epoch_has_as_many_steps_as_the_loader_has_batches(tmp_path) -> None:
    (tmp_path / "model_def.py").write_text(TRIAL)
    config = tmp_path / "experiment.yaml"
    config.write_text("searcher: {name: random, metric: error, max_length: {epochs: 3}}\n")
    fixed = Space.of_mapping({"batch_size": 4})
    assert whole_length(str(tmp_path), config, fixed) == 15
    ranged = Space.of_mapping({"batch_size": {"type": "categorical", "vals": [4, 10]}})
    with pytest.raises(UsageError, match=r"15 steps with .*6 steps with .*--train_steps"):
        whole_length(str(tmp_path), config, ranged)
    (tmp_path / "model_def.py").write_text("import nothing_of_this_name\n" + TRIAL)
    with pytest.raises(UsageError, match="nothing_of_this_name"):
        whole_length(str(tmp_path), config, fixed)
