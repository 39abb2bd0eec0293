# ruff: noqa
"""
A basic MNIST network. `build_model` returns an instance of `nn.Sequential`; the output of its
`forward` is fed into `losses`, and the output of `losses` into `validation_metrics`.
"""

from typing import Any, Dict, Sequence, Union

import torch
from torch import nn

from layers import Flatten
from pedl.frameworks.pytorch import PyTorchTrial, reset_parameters
from pedl.frameworks.pytorch.util import error_rate

TorchData = Union[Dict[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]


class MNistTrial(PyTorchTrial):
    def build_model(self, hparams: Dict[str, Any]) -> nn.Module:
        model = nn.Sequential(
            nn.Conv2d(1, hparams["n_filters1"], kernel_size=5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(hparams["n_filters1"], hparams["n_filters2"], kernel_size=5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            Flatten(),
            nn.Linear(16 * hparams["n_filters2"], 50),
            nn.ReLU(),
            nn.Dropout(hparams["dropout"]),
            nn.Linear(50, 10),
            nn.LogSoftmax(dim=1),
        )
        reset_parameters(model)
        return model

    def losses(self, predictions: TorchData, labels: TorchData) -> torch.Tensor:
        assert isinstance(predictions, torch.Tensor)
        assert isinstance(labels, torch.Tensor)
        return torch.nn.functional.nll_loss(predictions, labels)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def batch_size(self) -> int:
        return 32

    def training_metrics(
        self, predictions: TorchData, labels: TorchData, losses: TorchData
    ) -> Dict[str, torch.Tensor]:
        return {"classification_error": error_rate(predictions, labels)}

    def validation_metrics(
        self, predictions: TorchData, labels: TorchData, losses: TorchData
    ) -> Dict[str, torch.Tensor]:
        assert isinstance(predictions, torch.Tensor)
        assert isinstance(labels, torch.Tensor)
        return {"validation_loss": losses, "validation_error": error_rate(predictions, labels)}
