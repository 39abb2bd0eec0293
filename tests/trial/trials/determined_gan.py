"""Trial of the shape of determined-ai/determined 0.26.0, examples/gan/gan_mnist_pytorch."""

import numpy as np
import torch
from determined.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial
from determined.tensorboard.metric_writers.pytorch import TorchWriter
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce


class Counting(PyTorchCallback):
    def __init__(self):
        self.epochs, self.validations = [], 0

    def on_training_epoch_end(self, epoch_idx):
        self.epochs.append(epoch_idx)

    def on_validation_end(self, metrics):
        assert "real" in metrics and "median" in metrics
        self.validations += 1

    def on_checkpoint_save_start(self, checkpoint):
        checkpoint["validations"] = self.validations

    def on_checkpoint_load_start(self, checkpoint):
        self.loaded = checkpoint["validations"]

    def state_dict(self):
        return {"epochs": self.epochs, "validations": self.validations}

    def load_state_dict(self, state_dict):
        self.epochs, self.validations = state_dict["epochs"], state_dict["validations"]


class GANTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        size = context.get_hparam("latent_dim")
        net = [nn.Linear(size, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)]
        self.generator = context.wrap_model(nn.Sequential(*net))
        self.discriminator = context.wrap_model(nn.Linear(4, 1))
        lr = context.get_hparam("lr")
        self.opt_g = context.wrap_optimizer(torch.optim.Adam(self.generator.parameters(), lr=lr))
        self.opt_d = context.wrap_optimizer(
            torch.optim.SGD(self.discriminator.parameters(), lr=lr, momentum=0.9)
        )
        self.lr_g = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.LambdaLR(self.opt_g, lr_lambda=lambda epoch: 0.5**epoch),
            step_mode=LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )
        self.lr_d = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.opt_d, 1, gamma=0.9),
            step_mode=LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP,
            frequency=2,
        )
        self.median = context.wrap_reducer(lambda values: np.median(values), name="median")
        self.logger = context.get_tensorboard_writer()
        self.older_logger = TorchWriter()

    def build_callbacks(self):
        self.counting = Counting()
        return {"counting": self.counting}

    def build_training_data_loader(self):
        rows = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
        return DataLoader(rows, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        rows = torch.randn(16, 4, generator=torch.Generator().manual_seed(2))
        return DataLoader(rows, batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.generator.requires_grad_(True)
        self.discriminator.requires_grad_(False)
        noise = torch.randn(len(batch), self.context.get_hparam("latent_dim"))
        made = self.generator(self.context.to_device(noise))
        g_loss = bce(self.discriminator(made), torch.ones(len(batch), 1))
        self.context.backward(g_loss)
        self.context.step_optimizer(self.opt_g)
        self.generator.requires_grad_(False)
        self.discriminator.requires_grad_(True)
        real = bce(self.discriminator(batch), torch.ones(len(batch), 1))
        fake = bce(self.discriminator(made.detach()), torch.zeros(len(batch), 1))
        self.context.backward((real + fake) / 2)
        self.context.step_optimizer(
            self.opt_d, clip_grads=lambda params: nn.utils.clip_grad_norm_(params, 0.5)
        )
        self.median.update(g_loss.item())
        return {"loss": (real + fake) / 2, "g_loss": g_loss}

    def evaluate_batch(self, batch):
        scores = self.discriminator(batch)
        self.median.update(scores.mean().item())
        return {"real": bce(scores, torch.ones(len(batch), 1))}
