"""A model of a few numbers, with a tied table and a buffer, and checkpoints of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from t2t_torch.run.checkpoint import Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory


class Tied(nn.Module):
    """A table that is both ends, something of its own, and numbers that nobody trains."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 3)
        self.middle = nn.Linear(3, 3)
        self.softmax = nn.Linear(3, size, bias=False)
        self.softmax.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("seen", torch.tensor(size))


class Mean:
    """A running mean of the weights."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.held = tensors

    def tensors(self) -> dict[str, Tensor]:
        """Its numbers."""
        return self.held

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Takes them back."""
        self.held = dict(tensors)


@pytest.fixture
def tied() -> type[Tied]:
    """The model's class; its argument is the size of its vocabulary."""
    return Tied


@pytest.fixture
def mean() -> type[Mean]:
    """The class of a running mean."""
    return Mean


@pytest.fixture
def trained() -> Callable[..., tuple[Tied, torch.optim.Optimizer]]:
    """Makes a model and an optimizer that have done two steps."""

    def make(size: int = 4) -> tuple[Tied, torch.optim.Optimizer]:
        torch.manual_seed(size)
        model = Tied(size)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
        for _ in range(2):
            output = model.softmax(model.middle(model.embedding(torch.arange(size))))
            output.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    return make


@pytest.fixture
def snapshot(trained: Any) -> Callable[..., Snapshot]:
    """Makes a snapshot of a step."""

    def make(step: int = 1, average: Any = None, **state: Any) -> Snapshot:
        return Snapshot.take(*trained(), TrainerState(step=step, **state), average)

    return make


@pytest.fixture
def save(snapshot: Callable[..., Snapshot]) -> Callable[..., CheckpointDirectory]:
    """Saves checkpoints of some steps; returns their directory."""

    def make(folder: Path, steps: Iterable[int], **options: Any) -> CheckpointDirectory:
        directory = CheckpointDirectory(folder, **options)
        for step in steps:
            directory.save(snapshot(step))
        return directory

    return make
