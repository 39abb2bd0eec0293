"""A model of one weight: what training makes of it can be written down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.modality import Loss
from t2t_torch.model import Output
from t2t_torch.pipeline.plan import PlanReport
from t2t_torch.train.task import BatchAdapter, Task

Pair = tuple[list[float], list[float]]


class OneWeight(nn.Module):
    """y = w x; the loss is the squared error of each example, and the examples are its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the loss."""
        errors = self.weight * batch["inputs"] - batch["targets"]
        loss = Loss(errors.square().sum(), torch.tensor(float(len(errors))))
        return Output({}, {"targets": loss})


class OneVariable(Task):
    """Learns a weight from batches that are given, by plain gradient descent.

    Args:
      batches: inputs and targets of each; they come again when they are over.
      rate: of learning, the same at each step.
      hparams: more of them.
    """

    name = "one_variable"
    counted = "examples"

    def __init__(self, batches: Sequence[Pair], rate: float, hparams: str = "") -> None:
        self.pairs = batches
        self.batches = BatchAdapter()
        plain = (
            f"optimizer=sgd,learning_rate_schedule=constant,learning_rate_constant={rate},"
            "clip_grad_norm=0,weight_decay=0"
        )
        self.hparams = registry.hparams("basic_params1").parse(plain).parse(hparams)

    def model(self) -> nn.Module:
        """Returns a new one."""
        return OneWeight()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns that of the hparams."""
        made: torch.optim.Optimizer = registry.optimizer("sgd")(model.parameters(), self.hparams)
        return made

    def schedule(self, train_steps: int) -> Callable[[float], float]:
        """Returns a constant."""
        return lambda step: self.hparams.learning_rate_constant

    def train_batches(self, *, seed: int, start: int, rank: int, world_size: int) -> Any:
        """Returns the batches from one on."""
        return _Source(self.pairs, start + rank, world_size)

    def eval_batches(self, split: Any, *, rank: int, world_size: int) -> Any:
        """Nothing is evaluated."""
        return []

    def evaluator(self) -> Any:
        """Nothing is evaluated."""
        raise NotImplementedError


class Statistics(OneWeight):
    """y = w x, and a running mean of x that only looks on."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics = nn.BatchNorm1d(1, affine=False, dtype=torch.float64)

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Returns the loss."""
        self.statistics(batch["inputs"][:, None])
        return super().forward(batch)


class WithStatistics(OneVariable):
    """Keeps statistics of what it reads."""

    def model(self) -> nn.Module:
        """Returns a new one."""
        return Statistics()


class _Source:
    plan_fingerprint = "2-onevariable"

    def __init__(self, batches: Sequence[Pair], start: int, step: int) -> None:
        self._batches = batches
        self._start = start
        self._step = step

    @property
    def report(self) -> PlanReport:
        count = sum(len(inputs) for inputs, _ in self._batches)
        return PlanReport(count, count, 0, 0, len(self._batches), count, 0.0)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for index in itertools.count(self._start, self._step):
            inputs, targets = self._batches[index % len(self._batches)]
            yield {
                "inputs": torch.tensor(inputs, dtype=torch.float64),
                "targets": torch.tensor(targets, dtype=torch.float64),
            }


def by_hand(
    batches: Sequence[Pair], rate: float, steps: int, *, each: int, clip: float = 0.0
) -> tuple[list[float], list[float]]:
    """Returns the mean loss of each step and the weight after it, in plain Python.

    Args:
      batches: inputs and targets of each.
      rate: of learning.
      steps: how many.
      each: batches of a step.
      clip: the largest gradient; 0 for any.
    """
    weight, losses, weights = 0.0, [], []
    for step in range(steps):
        numbers = [(step * each + k) % len(batches) for k in range(each)]
        pairs = [pair for n in numbers for pair in zip(*batches[n], strict=True)]
        losses.append(sum((weight * x - y) ** 2 for x, y in pairs) / len(pairs))
        gradient = sum(2.0 * x * (weight * x - y) for x, y in pairs) / len(pairs)
        if clip and abs(gradient) > clip:
            gradient = clip if gradient > 0 else -clip
        weight -= rate * gradient
        weights.append(weight)
    return losses, weights
