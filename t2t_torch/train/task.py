"""What can be trained: the contract between a task and the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from t2t_torch.mode import Split

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.model import Output
    from t2t_torch.pipeline.plan import PlanReport

Batch = dict[str, Tensor]


class TrainSource(Protocol):
    """Endless training batches from a position on; `pipeline.loader.TrainBatches` is one."""

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything that the order depends on."""

    @property
    def report(self) -> PlanReport:
        """What the plan keeps, drops and pads."""

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape that batches have; asked for where layers are compiled."""

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of this process."""


class EvalSource(Protocol):
    """One pass over a split; `pipeline.loader.ChainedBatches` is one."""

    def __len__(self) -> int:
        """Returns the number of batches of this process."""

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch once."""


class Evaluator(Protocol):
    """Streaming metrics, exact: sums that add over batches and processes."""

    sums: Tensor
    """All that is known; it adds up over processes."""

    def update(self, output: Output, batch: Batch) -> None:
        """Adds a batch."""

    def result(self) -> dict[str, float]:
        """Returns each metric's value."""


class Task(ABC):
    """What an `Estimator` trains.  It decides nothing about files, steps or processes.

    Attributes:
      name: stands in the names of metrics.
      hparams: of the model, the optimizer and the data.
      paddings: what fills up each text-like sequence of a batch: padding is counted by them.
      counted: what the loss is a mean over: "tokens" or "examples".
    """

    name: str
    hparams: HParams
    paddings: Mapping[str, int]
    counted: str = "tokens"

    @abstractmethod
    def model(self) -> nn.Module:
        """Returns a new model, drawn from torch's generator: `forward(batch) -> Output`."""

    def first_weights(self, model: nn.Module) -> list[str]:
        """Gives a new run's model what it begins with; returns what to tell of it; nothing here."""
        return []

    def make_ready(self, model: nn.Module) -> None:  # noqa: B027 (most tasks have nothing to do)
        """Gives a model what it needs to be trained, and not to be evaluated; nothing here."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer of a model's parameters; its learning rate is set at every step."""

    @abstractmethod
    def learning_rate(self, train_steps: int) -> Callable[[float], float]:
        """Returns the learning rate as a function of the steps already done."""

    @abstractmethod
    def train_batches(self, *, seed: int, start: int, rank: int, world_size: int) -> TrainSource:
        """Returns training batches from global batch `start` on, for one process of several."""

    @abstractmethod
    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> EvalSource:
        """Returns one pass over a split, for one process of several."""

    @abstractmethod
    def evaluator(self) -> Evaluator:
        """Returns metrics that have seen nothing yet."""
