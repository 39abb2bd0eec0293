# ruff: noqa
"""
A validation metric that is a vector: the recall of each class.
"""

from typing import Any, Dict, Tuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader

NUM_CLASSES = 3


def blobs(seed: int, count: int) -> TensorDataset:
    rng = np.random.RandomState(seed)
    labels = np.tile(np.arange(NUM_CLASSES), count)
    points = rng.randn(len(labels), 2) + 2.0 * np.eye(NUM_CLASSES, 2)[labels]
    return TensorDataset(torch.from_numpy(points).float(), torch.from_numpy(labels))


class BlobsTrial(PyTorchTrial):
    def build_model(self, hparams: Dict[str, Any]) -> nn.Module:
        return nn.Linear(2, NUM_CLASSES)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.5)

    def batch_size(self) -> int:
        return 15

    @staticmethod
    def make_data_loaders(
        experiment_config: Dict[str, Any], hparams: Dict[str, Any]
    ) -> Tuple[DataLoader, DataLoader]:
        return (
            DataLoader(blobs(0, 40), batch_size=15, shuffle=True),
            DataLoader(blobs(1, 11), batch_size=6),
        )

    def losses(self, predictions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(predictions, labels)

    def validation_metrics(
        self, predictions: torch.Tensor, labels: torch.Tensor, losses: torch.Tensor
    ) -> Dict[str, Any]:
        chosen = predictions.argmax(1)
        found = [(chosen[labels == c] == c).float().mean() for c in range(NUM_CLASSES)]
        table = np.zeros((NUM_CLASSES, NUM_CLASSES))
        np.add.at(table, (labels.numpy(), chosen.numpy()), 1)
        return {"recall": torch.stack(found), "confusion": table, "validation_loss": losses.item()}
