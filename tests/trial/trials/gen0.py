# ruff: noqa
"""
The oldest way: `make_data_loaders` is handed the directory that `download_data` has returned.
"""

import os
import tempfile
from typing import Any, Dict, Tuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader


def download_data(experiment_config: Dict[str, Any], hparams: Dict[str, Any]) -> str:
    directory = os.path.join(tempfile.gettempdir(), experiment_config["data"]["directory"])
    os.makedirs(directory, exist_ok=True)
    rng = np.random.RandomState(1)
    x = rng.randn(96, 6).astype(np.float32)
    y = x.dot(np.arange(6, dtype=np.float32))
    path = os.path.join(directory, "line.npz")
    if not os.path.exists(path):
        np.savez(path + ".part.npz", x=x, y=y)
        os.rename(path + ".part.npz", path)
    return directory


def make_data_loaders(
    experiment_config: Dict[str, Any], hparams: Dict[str, Any], download_data_dir: str
) -> Tuple[DataLoader, DataLoader]:
    with np.load(os.path.join(download_data_dir, "line.npz")) as data:
        x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    return (
        DataLoader(TensorDataset(x[:80], y[:80]), batch_size=hparams["batch_size"], shuffle=True),
        DataLoader(TensorDataset(x[80:], y[80:]), batch_size=hparams["batch_size"]),
    )


class LineTrial(PyTorchTrial):
    def __init__(self, hparams: Dict[str, Any]) -> None:
        super().__init__(hparams)
        self.hparams = hparams

    def build_model(self, hparams: Dict[str, Any]) -> nn.Module:
        return nn.Linear(6, 1)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=self.hparams["learning_rate"])

    def batch_size(self) -> int:
        return self.hparams["batch_size"]

    def losses(self, predictions: Any, labels: Any) -> Dict[str, torch.Tensor]:
        error = predictions.squeeze(1) - labels
        return {"loss": (error**2).mean(), "absolute_error": error.abs().mean().detach()}

    def validation_metrics(self, predictions: Any, labels: Any, losses: Any) -> Dict[str, Any]:
        return {"mean_squared_error": losses["loss"].item()}
