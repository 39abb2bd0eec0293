# ruff: noqa
import torch
from torch import nn


class Squeeze(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(-1)
