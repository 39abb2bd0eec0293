# ruff: noqa
"""
The later way: hyperparameters are asked for, and a training step is one method.
"""

from typing import Any, Dict

import torch
from torch import nn

import pedl
from layers import Squeeze
from pedl.frameworks.pytorch import LRScheduler, PyTorchTrial, reset_parameters

hidden_size = pedl.get_hyperparameter("hidden_size")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, hidden_size), nn.Tanh(), nn.Linear(hidden_size, 1), Squeeze()
        )

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        assert len(args) == 1
        return self.net(args[0]["data"])


def compute_loss(output: torch.Tensor, labels: Dict[str, torch.Tensor]) -> torch.Tensor:
    labels["labels"] = labels["labels"].type(torch.float32)
    return nn.functional.binary_cross_entropy_with_logits(output, labels["labels"])


def error(output: torch.Tensor, labels: Dict[str, torch.Tensor]) -> torch.Tensor:
    return ((output > 0).float() != labels["labels"]).float().mean()


class TwoMoonsTrial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        model = Net()
        reset_parameters(model)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:  # type: ignore
        return torch.optim.SGD(
            model.parameters(), lr=pedl.get_hyperparameter("optimizer.learning_rate"), momentum=0.9
        )

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler:
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.95)
        return LRScheduler(scheduler, step_every_epoch=True)

    def train_batch(
        self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int
    ) -> Dict[str, torch.Tensor]:
        data, labels = batch
        output = model(data)
        loss = compute_loss(output, labels)
        return {"loss": loss, "train_error": error(output, labels)}

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Dict[str, Any]:
        data, labels = batch
        output = model(data)
        return {
            "validation_loss": compute_loss(output, labels),
            "validation_error": error(output, labels),
        }
