# ruff: noqa
"""
The later way, with a method that evaluates the whole loader at once.
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import pedl
from pedl.frameworks.pytorch import LRScheduler, PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader


def make_data_loaders(experiment_config, hparams):
    x = torch.linspace(-1, 1, 48).unsqueeze(1)
    data = TensorDataset(x, x**3)
    return (
        DataLoader(data, batch_size=pedl.get_hyperparameter("batch_size"), shuffle=True),
        DataLoader(data, batch_size=16),
    )


class CubeTrial(PyTorchTrial):
    def build_model(self):
        return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=0.02)

    def create_lr_scheduler(self, optimizer):
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
        return LRScheduler(scheduler, step_every_batch=True)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(model(x), y)

    def evaluate_full_dataset(self, data_loader, model):
        worst = 0.0
        for x, y in data_loader:
            worst = max(worst, (model(x) - y).abs().max().item())
        return {"worst_error": worst}
