# ruff: noqa
"""
CNN on small random colour images: `optimizer` takes the hyperparameters, there is no `batch_size`.
"""

from typing import Any, Dict, Sequence, Union

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from pedl.frameworks.pytorch import PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader
from pedl.frameworks.pytorch.util import error_rate

IMAGE_SIZE = 8
NUM_CHANNELS = 3
NUM_CLASSES = 4

TorchData = Union[Dict[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]


class Flatten(nn.Module):
    def forward(self, *args: TorchData, **kwargs: Any) -> torch.Tensor:
        assert len(args) == 1
        x = args[0]
        assert isinstance(x, torch.Tensor)
        return x.view(x.size(0), -1)


class Quadrants(Dataset):
    """A bright quadrant in noise; which one is the class."""

    def __init__(self, seed: int, count: int):
        rng = np.random.RandomState(seed)
        self.labels = rng.randint(0, NUM_CLASSES, count)
        self.images = rng.rand(count, NUM_CHANNELS, IMAGE_SIZE, IMAGE_SIZE).astype(np.float32)
        half = IMAGE_SIZE // 2
        for image, label in zip(self.images, self.labels):
            top, left = half * (label // 2), half * (label % 2)
            image[:, top : top + half, left : left + half] += 0.5

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        image = self.images[index]
        if np.random.rand() < 0.5:  # a little noise, as augmentation
            image = image + 0.01 * np.random.randn(*image.shape).astype(np.float32)
        return image, int(self.labels[index])


def make_data_loaders(experiment_config: Dict[str, Any], hparams: Dict[str, Any]) -> Any:
    train, valid = Quadrants(0, 100), Quadrants(1, 30)
    return [
        DataLoader(train, batch_size=hparams["batch_size"], shuffle=True),
        DataLoader(valid, batch_size=hparams["batch_size"]),
    ]


class CIFARTrial(PyTorchTrial):
    def build_model(self, hparams: Dict[str, Any]) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(NUM_CHANNELS, 8, kernel_size=(3, 3)),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Dropout2d(hparams["layer1_dropout"]),
            Flatten(),
            nn.Linear(8 * 6 * 6, NUM_CLASSES),
            nn.LogSoftmax(dim=1),
        )

    def losses(self, predictions: TorchData, labels: TorchData) -> torch.Tensor:
        assert isinstance(predictions, torch.Tensor)
        assert isinstance(labels, torch.Tensor)
        return torch.nn.functional.nll_loss(predictions, labels)

    def optimizer(self, model: nn.Module, hparams: Dict[str, Any]) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(
            model.parameters(),
            lr=hparams["learning_rate"],
            weight_decay=hparams["learning_rate_decay"],
            alpha=0.9,
        )

    def validation_metrics(
        self, predictions: TorchData, labels: TorchData, losses: TorchData
    ) -> Dict[str, torch.Tensor]:
        assert isinstance(predictions, torch.Tensor)
        assert isinstance(labels, torch.Tensor)
        return {"validation_error": error_rate(predictions, labels)}
