"""What can be trained: the contract between a task and the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from t2t_torch.compute.network import network
from t2t_torch.modality import Loss
from t2t_torch.mode import Split
from t2t_torch.train.batch import Batch, rows_of, split_rows, to_device
from t2t_torch.train.tally import totals_of

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.compute.distributed import World
    from t2t_torch.hparam import HParams
    from t2t_torch.model import Output
    from t2t_torch.pipeline.plan import PlanReport
    from t2t_torch.train.run_directory import RunDirectory


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
      accumulate_flag: what a user says to have `{}` batches of each process in a step.
    """

    name: str
    hparams: HParams
    paddings: Mapping[str, int]
    counted: str = "tokens"
    accumulate_flag: str = "--hparams=optimizer_multistep_accumulate_steps={}"

    @abstractmethod
    def model(self) -> nn.Module:
        """Returns a new model, drawn from torch's generator: `forward(batch) -> Output`."""

    def first_weights(self, model: nn.Module) -> list[str]:
        """Gives a new run's model what it begins with; returns what to tell of it; nothing here."""
        return []

    def describe(self, directory: RunDirectory, train_steps: int) -> None:  # noqa: B027
        """Claims a run directory that no command has claimed; nothing where no command reads it."""

    def make_ready(self, model: nn.Module) -> None:  # noqa: B027 (most tasks have nothing to do)
        """Gives a model what it needs to be trained, and not to be evaluated; nothing here."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer of a model's parameters; its learning rate is set at every step."""

    @abstractmethod
    def learning_rate(self, train_steps: int) -> Callable[[float], float] | None:
        """Returns the learning rate as a function of the steps already done.

        None leaves it to the optimizer and to `after_update`.
        """

    @abstractmethod
    def train_batches(self, *, seed: int, start: int, rank: int, world_size: int) -> TrainSource:
        """Returns training batches from global batch `start` on, for one process of several."""

    @abstractmethod
    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> EvalSource:
        """Returns one pass over a split, for one process of several."""

    @abstractmethod
    def evaluator(self) -> Evaluator:
        """Returns metrics that have seen nothing yet."""

    def metric_names(self) -> list[str] | None:
        """Returns what evaluations will report; None if only an evaluation can tell."""
        return list(self.evaluator().result())

    def agree(self, evaluator: Evaluator, world: World) -> None:  # noqa: B027 (as above)
        """Makes the sums of all processes addable, after the last batch; they are, mostly."""

    def results(self, evaluator: Evaluator) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the metrics of an evaluation that are numbers, and those that are arrays."""
        return evaluator.result(), {}

    def network(self, model: nn.Module, world: World) -> nn.Module:
        """Returns the model as it is trained: see `compute.network`."""
        return network(model, self.hparams, world)

    def loss(self, network: nn.Module, batch: Batch) -> Loss:
        """Returns the loss of a batch on the device: a sum and a weight, which add up."""
        return total_loss(network(batch))

    def totals(self, loss: Loss, batch: Batch) -> Tensor:
        """Returns what a step's report is made of, [4]: see `totals_of`."""
        return totals_of(loss, batch, self.paddings)

    def divisor(self, totals: Tensor, processes: int) -> Tensor:
        """Returns what a step's summed gradients are divided by, []: the weight of its loss.

        Args:
          totals: of the step, over all processes, [4].
          processes: whose gradients are summed.
        """
        return totals[1]

    def clip_gradients(self, model: nn.Module) -> None:  # noqa: B027 (most tasks clip by hparams)
        """Clips the finished gradients of a step in place, before the optimizer sees them."""

    def evaluated(self, model: nn.Module, batch: Batch) -> Any:
        """Returns what the evaluator is given with a batch on the device: the model's output."""
        return model(batch)

    def to_device(self, batch: Batch, device: torch.device) -> Batch:
        """Returns the batch where the model computes."""
        return to_device(batch, device)

    def rows_of(self, batch: Batch) -> int:
        """Returns how many pieces a batch can be divided into."""
        return rows_of(batch)

    def split(self, batch: Batch, pieces: int) -> list[Batch]:
        """Divides a batch whose pass does not fit in memory into at most so many."""
        return split_rows(batch, pieces)

    def tensors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the tensors of a batch by name, to be told and kept of a step that failed."""
        return batch

    def after_update(  # noqa: B027 (most tasks have nothing to do)
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Is told of each update, before its step is counted; nothing here.

        Args:
          optimizer: of the model.
          state: where the run stands.
          skipped: [], 1.0 if nothing has moved, as the loss or its gradient was not finite.
        """

    def told_hparams(self) -> dict[str, Any]:
        """Returns what TensorBoard's page of hyperparameters tells of the run."""
        return self.hparams.model_dump(mode="json")

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns more numbers and arrays of the steps since the last report; in all processes."""
        return {}, {}

    def state(self, optimizer: torch.optim.Optimizer, world: World) -> dict[str, Any]:
        """Returns what a checkpoint keeps of a task that remembers; called in all processes."""
        return {}

    def tensors_of_state(self) -> Mapping[str, Tensor]:
        """Returns the tensors that belong to the last `state`, by name; a checkpoint copies them.

        Only the leader's are stored.
        """
        return {}

    def restore(  # noqa: B027 (most tasks have nothing to do)
        self,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
        tensors: Mapping[str, Tensor],
        world: World,
    ) -> None:
        """Takes back `state` and its tensors; called once, when a run is resumed."""

    def restore_for_evaluation(  # noqa: B027 (as above)
        self, model: nn.Module, state: dict[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Takes back what of `state` and its tensors an evaluation depends on."""


def total_loss(output: Output) -> Loss:
    """Returns the loss of a batch: of several targets the sum, each with the examples as weight.

    (`T2TModel.forward` gives each of several targets that weight.)  Their weights differ where an
    example lacks a target; the mean of them still adds up over batches.
    """
    losses = output.losses.values()
    sums = torch.stack([loss.sum for loss in losses])
    weights = torch.stack([loss.weight.float() for loss in losses])
    return Loss(sums.sum(), weights.mean())
