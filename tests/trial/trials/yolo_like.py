# ruff: noqa
"""
A script of PEDL's client: it describes its experiment itself, where it is run.
"""

import argparse
import pathlib
from typing import Any, Dict

import torch
from torch import nn
from torch.utils.data import TensorDataset

import pedl
from pedl.frameworks.pytorch import LRScheduler, PyTorchTrial
from pedl.frameworks.pytorch.data import DataLoader


def download_data() -> str:
    return "data"


class LazyModule(object):
    __instance = None

    @staticmethod
    def get():
        if LazyModule.__instance is None:
            LazyModule.__instance = TensorDataset(torch.rand(8, 3), torch.rand(8, 1))
        return LazyModule.__instance


def make_data_loaders(experiment_config: Dict[str, Any], hparams: Dict[str, Any]):
    return (
        DataLoader(LazyModule.get(), batch_size=batch_size),
        DataLoader(LazyModule.get(), batch_size=batch_size * 2),
    )


class YOLOv3Trial(PyTorchTrial):
    def build_model(self) -> nn.Module:
        model = nn.Linear(3, 1)
        model.hyp = hyp  # attach hyperparameters to model
        return model

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer):
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8, 9])
        return LRScheduler(scheduler, step_every_epoch=True)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:  # type: ignore
        return torch.optim.Adam(model.parameters(), lr=hyp["lr0"])

    def train_batch(
        self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int
    ) -> Dict[str, torch.Tensor]:
        images, targets = batch
        return {"loss": ((model(images) - targets) ** 2).mean() * batch_size / 64}

    def evaluate_full_dataset(self, data_loader, model: nn.Module) -> Dict[str, Any]:
        return dict(zip(["P", "R", "mAP_at_0.5", "F1"], [0.1, 0.2, 0.3, 0.4]))


if __name__ == "__main__":
    opt = argparse.Namespace(accumulate=4, epochs=273)
    hyp = {"giou": 3.54, "lr0": 0.000579}
    batch_size = pedl.Constant(value=16, name="batch_size")
    init_lr = pedl.Constant(value=0.000579, name="init_lr")
    hyp["lr0"] = init_lr
    config = {
        "description": "yolov3_pytorch",
        "searcher": {
            "name": "single",
            "metric": "mAP_at_0.5",
            "max_steps": int(opt.epochs * batch_size * opt.accumulate / 100),
            "smaller_is_better": False,
        },
        "max_restarts": 0,
    }
    exp = pedl.Experiment(
        context_directory=str(pathlib.Path.cwd()),
        trial_def=YOLOv3Trial,
        make_data_loaders_fn=make_data_loaders,
        configuration=config,
    )
    exp.create()
