"""The task of a trial: a user's `PyTorchTrial` under this library's loop.

An unmodified trial trains as a loop written by hand would: float32, nothing clipped, nothing
averaged, the learning rate as its optimizer and its scheduler have it.  Losses are means already,
so the batches of a step count alike, whatever they hold.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.loss import Loss
from t2t_torch.mode import Split
from t2t_torch.train.task import Task
from t2t_torch.trial import nested
from t2t_torch.trial.answers import (
    check_batch_pair,
    check_metrics,
    check_model,
    check_optimizer,
    join_metrics,
    total_of,
)
from t2t_torch.trial.averages import MetricAverages
from t2t_torch.trial.batches import TrialEvalBatches, TrialTrainBatches
from t2t_torch.trial.calling import call
from t2t_torch.trial.definition import TRAIN_BATCH
from t2t_torch.trial.lr_scheduler import LRScheduler
from t2t_torch.trial.plain_state import (
    restore_settings,
    restore_state,
    settings_of,
    state_of,
)
from t2t_torch.trial.training_report import TrainingReport

if TYPE_CHECKING:
    from t2t_torch.checkpoint.trainer_state import TrainerState
    from t2t_torch.compute.distributed import World
    from t2t_torch.hparam import HParams
    from t2t_torch.pipeline.plan import PlanReport
    from t2t_torch.trial.definition import Definition


class TrialBatch(NamedTuple):
    """What a user's loader has given.

    Attributes:
      number: of the global batch of the run, or of the evaluation.
      content: nested at will; of `evaluate_full_dataset` the loader itself.
    """

    number: int
    content: Any


class TrialTask(Task):
    """Trains and evaluates a trial.

    Attributes:
      definition: what the user wrote.
      trial: the instance of its class.
      chosen: its hyperparameters.

    Args:
      definition: what the user wrote.
      trial: made of its class.
      loaders: of training and of validation.
      chosen: hyperparameters.
      settings: what the loop reads: batches of a step, precision, clipping, a mean of weights.
      averages: whether the gradients of a step's batches are averaged, or summed.
      metric: of evaluations, that says what is best; None: nothing does.

    Raises:
      TrialError: the validation loader has no batch.
    """

    counted = "examples"

    def __init__(
        self,
        definition: Definition,
        trial: Any,
        loaders: tuple[Any, Any],
        *,
        chosen: Mapping[str, Any],
        settings: HParams,
        averages: bool = True,
        metric: str | None = None,
    ) -> None:
        self.name = definition.trial_class.__name__
        self.definition = definition
        self.trial = trial
        self.chosen = chosen
        self.hparams = settings
        self.paddings = {}
        self._loaders = loaders
        self._averages = averages
        self._metric = metric
        self._source: TrialTrainBatches | None = None
        self._scheduler: LRScheduler | None = None
        self._report = TrainingReport()

    def model(self) -> nn.Module:
        """Returns what `build_model` returns."""
        chosen = copy.deepcopy(dict(self.chosen))
        return check_model(call(self.trial.build_model, chosen, what="build_model"))

    def told_hparams(self) -> dict[str, Any]:
        """Returns the chosen hyperparameters by their dotted names."""
        return nested.leaves(dict(self.chosen))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the trial's own, and makes its scheduler."""
        chosen = copy.deepcopy(dict(self.chosen))
        made = call(self.trial.optimizer, model, chosen, what="optimizer")
        optimizer = check_optimizer(made, model)
        if self.definition.has("create_lr_scheduler"):
            found = call(self.trial.create_lr_scheduler, optimizer, what="create_lr_scheduler")
            if found is not None and not isinstance(found, LRScheduler):
                raise TrialError(
                    f"create_lr_scheduler returned {type(found).__name__}; an LRScheduler(scheduler"
                    ", step_every_batch=... or step_every_epoch=...) was expected."
                )
            self._scheduler = found
        return optimizer

    def learning_rate(self, train_steps: int) -> None:
        """Leaves it to the trial."""
        del train_steps

    def network(self, model: nn.Module, world: World) -> nn.Module:
        """Returns the model itself, whatever the trial asks of it; gradients are averaged later."""
        del world
        return model

    def train_batches(
        self, *, seed: int, start: int, rank: int, world_size: int
    ) -> NumberedBatches:
        """Returns the training loader's batches, in an order that depends on the seed alone."""
        place = {"start": start, "rank": rank, "world_size": world_size}
        self._source = TrialTrainBatches(self._loaders[0], seed=seed, **place)
        return NumberedBatches(self._source, start + rank, world_size)

    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> Any:
        """Returns one pass over the validation loader; for `evaluate_full_dataset` the loader.

        Raises:
          TrialError: there is nothing to evaluate with, or on.
        """
        if split is not Split.EVAL:
            raise TrialError(f"a trial has no split {split.value}: it has a validation loader.")
        loader = self._loaders[1]
        if self.definition.generation != TRAIN_BATCH or self.definition.has("evaluate_batch"):
            batches = TrialEvalBatches(loader, rank=rank, world_size=world_size)
            return NumberedBatches(batches, rank, world_size)
        if not self.definition.has("evaluate_full_dataset"):
            name = self.definition.trial_class.__name__
            raise TrialError(
                f"{name} has neither evaluate_batch nor evaluate_full_dataset: there is nothing to "
                "evaluate it with. Write one of them, or train with --schedule=train."
            )
        return [TrialBatch(0, loader)] if rank == 0 else []

    def evaluator(self) -> MetricAverages:
        """Returns means over batches that have seen nothing yet."""
        return MetricAverages(self._judge)

    @property
    def _judge(self) -> str:
        """The method that evaluates."""
        if self.definition.generation != TRAIN_BATCH:
            return "validation_metrics"
        has_batch = self.definition.has("evaluate_batch")
        return "evaluate_batch" if has_batch else "evaluate_full_dataset"

    def metric_names(self) -> None:
        """Only the first evaluation tells them."""

    def agree(self, evaluator: Any, world: World) -> None:
        """Lets the processes know each other's metrics."""
        evaluator.agree(world)

    def results(self, evaluator: Any) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the metrics that are numbers, and those that are arrays.

        Raises:
          TrialError: the metric that is to say what is best is not among the numbers.
        """
        numbers = evaluator.result()
        arrays = {name: torch.from_numpy(array) for name, array in evaluator.arrays().items()}
        if self._metric is not None and self._metric not in numbers:
            shape = arrays[self._metric].shape if self._metric in arrays else None
            fault = f"is an array of shape {list(shape)}" if shape else "is not among them"
            raise TrialError(
                f"searcher.metric is {self._metric!r}, which says what is best, and it {fault}. "
                f"{self._judge} returned these numbers: {', '.join(numbers) or 'none'}."
            )
        return numbers, arrays

    def loss(self, network: nn.Module, batch: Any) -> Loss:
        """Returns the loss of a batch; its weight is the number of its records."""
        losses, metrics = self._step(network, batch)
        total = total_of(losses, self._method).reshape(())
        self._report.add(join_metrics(losses, metrics))
        if self._averages:
            total = total / self._batches_of_a_step
        return Loss(total, torch.tensor(float(_records(batch.content)), device=total.device))

    @property
    def _method(self) -> str:
        return "train_batch" if self.definition.generation == TRAIN_BATCH else "losses"

    @property
    def _batches_of_a_step(self) -> int:
        return self.hparams.optimizer_multistep_accumulate_steps or 1

    def _step(self, network: nn.Module, batch: TrialBatch) -> tuple[Any, dict[str, Any]]:
        """Returns what the trial computes of a training batch: losses and metrics."""
        number, content = batch
        if self.definition.generation == TRAIN_BATCH:
            assert self._source is not None
            epoch = self._source.epoch_of(number)
            index = number // self._processes
            what = "train_batch"
            return call(self.trial.train_batch, content, network, epoch, index, what=what), {}
        inputs, labels = check_batch_pair(content)
        predictions = network(inputs)
        losses = self.trial.losses(predictions, labels)
        metrics = {}
        if self.definition.has("training_metrics"):
            what = "training_metrics"
            with torch.no_grad():
                method = self.trial.training_metrics
                found = call(method, predictions, labels, losses, what=what)
                metrics = check_metrics(found, what)
        return losses, metrics

    def totals(self, loss: Loss, batch: Any) -> Tensor:
        """Returns the loss, times the records, and the records, thrice."""
        del batch
        records = loss.weight.to(torch.float64)
        scale = records * (self._batches_of_a_step if self._averages else 1)
        return torch.stack([loss.sum.detach().to(torch.float64) * scale, records, records, records])

    def divisor(self, totals: Tensor, processes: int) -> Tensor:
        """Returns the number of processes, as their gradients are the means that are meant."""
        return torch.full([], float(processes), device=totals.device)

    def evaluated(self, model: nn.Module, batch: Any) -> Any:
        """Returns the metrics of a batch."""
        number, content = batch
        if self._judge == "evaluate_full_dataset":
            return self.trial.evaluate_full_dataset(content, model)
        if self._judge == "evaluate_batch":
            method = self.trial.evaluate_batch
            return call(method, content, model, number, what="evaluate_batch")
        inputs, labels = check_batch_pair(content)
        predictions = model(inputs)
        losses = self.trial.losses(predictions, labels)
        total_of(losses)
        method = self.trial.validation_metrics
        return call(method, predictions, labels, losses, what="validation_metrics")

    def to_device(self, batch: Any, device: torch.device) -> Any:
        """Returns the batch where the model computes; a loader stays where it is."""
        if batch.content is self._loaders[1]:
            return batch
        return batch._replace(content=nested.to_device(batch.content, device))

    def rows_of(self, batch: Any) -> int:
        """Returns 1: only the trial knows what its batches are made of."""
        del batch
        return 1

    def split(self, batch: Any, pieces: int) -> list[Any]:
        """Returns the batch, which cannot be divided."""
        del pieces
        return [batch]

    def tensors(self, batch: Any) -> dict[str, Tensor]:
        """Returns the tensors of a batch by their dotted names."""
        leaves = nested.leaves(batch.content).items()
        return {name or "batch": leaf for name, leaf in leaves if isinstance(leaf, Tensor)}

    def after_update(
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Steps the trial's scheduler as it asks, unless the optimizer has not moved."""
        del optimizer
        scheduler = self._scheduler
        if scheduler is None or bool(skipped):
            return
        if scheduler.step_every_batch:
            for _ in range(self._batches_of_a_step):
                scheduler.scheduler.step()
        if scheduler.step_every_epoch:
            assert self._source is not None
            first = state.batches_consumed
            before = self._source.epoch_of(first)
            after = self._source.epoch_of(first + state.batches_per_step)
            for _ in range(before, after):
                scheduler.scheduler.step()

    def report(self, world: World) -> dict[str, float]:
        """Returns the means of the losses and the training metrics."""
        return self._report.read(world)

    def state(self, optimizer: torch.optim.Optimizer, world: World) -> dict[str, Any]:
        """Returns the optimizer's settings, the scheduler's state and what was reported so far."""
        known: dict[str, Any] = {"settings": settings_of(optimizer)}
        if self._scheduler is not None:
            known["scheduler"] = state_of(self._scheduler.scheduler)
        known["report"] = self._report.sums(world)
        return known

    def restore(
        self, optimizer: torch.optim.Optimizer, state: dict[str, Any], world: World
    ) -> None:
        """Takes back what `state` returned."""
        self._processes = world.size
        if not state:
            return
        restore_settings(optimizer, state["settings"], self.definition.spec)
        if self._scheduler is not None and "scheduler" in state:
            restore_state(self._scheduler.scheduler, state["scheduler"])
        if world.leads:
            self._report.restore(state["report"])

    _processes = 1


class NumberedBatches:
    """The batches of one process with their numbers; a `TrainSource`, or an `EvalSource`.

    Attributes:
      source: of the batches.

    Args:
      source: of the batches.
      first: number of the first of them.
      step: from one number to the next.
    """

    def __init__(self, source: Any, first: int, step: int) -> None:
        self.source = source
        self._first = first
        self._step = step

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything that the order depends on."""
        return str(self.source.plan_fingerprint)

    @property
    def report(self) -> PlanReport:
        """What an epoch has."""
        found: PlanReport = self.source.report
        return found

    @property
    def resume_guarantee(self) -> str:
        """What holds when a run goes on from a checkpoint."""
        return str(self.source.resume_guarantee)

    def one_of_each_shape(self) -> Iterator[Any]:
        """Yields a batch of each number of records."""
        for batch in self.source.one_of_each_shape():
            yield TrialBatch(self._first, batch)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Any]:
        number = self._first
        for batch in self.source:
            yield TrialBatch(number, batch)
            number += self._step


def _records(content: Any) -> int:
    """Returns how many records a batch has: the rows of its first tensor; 1 if it has none."""
    for leaf in nested.leaves(content).values():
        if isinstance(leaf, Tensor) and leaf.ndim:
            return max(len(leaf), 1)
    return 1
