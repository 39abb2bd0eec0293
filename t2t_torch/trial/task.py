"""The task of a trial: a user's `PyTorchTrial` under this library's loop.

An unmodified trial trains as a loop written by hand would: float32, nothing clipped, nothing
averaged, the learning rate as its optimizer and its scheduler have it.  Losses are means already,
so the batches of a step count alike, whatever they hold.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.loss import Loss
from t2t_torch.mode import Split
from t2t_torch.model import Output
from t2t_torch.train.task import BatchAdapter, Evaluator, Task, TaskState
from t2t_torch.trial import nested
from t2t_torch.trial.attribute_state import AttributeState
from t2t_torch.trial.batches import NumberedBatches, TrialBatch, TrialEvalBatches, TrialTrainBatches
from t2t_torch.trial.definition import TRAIN_BATCH, call
from t2t_torch.trial.epoch_orders import isolated, mix
from t2t_torch.trial.metrics import (
    MetricAverages,
    TrainingReport,
    check_batch_pair,
    check_model,
    check_optimizer,
    check_training_metrics,
    join_metrics,
    total_of,
)
from t2t_torch.trial.pytorch_trial import reducers_of
from t2t_torch.trial.run_record import CLIP_NORM, CLIP_VALUE
from t2t_torch.trial.schedule import LRScheduler, Schedule

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import TrainerState
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.trial.definition import Definition


_ATTRIBUTES = "of_trial"
"""In the state of a task: what the trial keeps on itself."""


class TrialBatches(BatchAdapter):
    """Batches of a trial, which only the trial can split; those of a step count alike.

    Args:
      task: of the trial.
    """

    def __init__(self, task: TrialTask) -> None:
        super().__init__()
        self._task = task

    def to_device(self, batch: TrialBatch, device: torch.device) -> TrialBatch:
        """Returns the batch where the model computes; a loader stays where it is."""
        if batch.content is self._task.loaders[1]:
            return batch
        return batch._replace(content=nested.to_device(batch.content, device))

    def rows_of(self, batch: TrialBatch) -> int:
        """Returns 1: a batch cannot be split."""
        return 1

    def split(self, batch: TrialBatch, pieces: int) -> list[TrialBatch]:
        """Returns the batch, which cannot be split."""
        return [batch]

    def tensors(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Returns the tensors of a batch by their dotted names."""
        leaves = nested.leaves(batch.content).items()
        return {name or "batch": leaf for name, leaf in leaves if isinstance(leaf, Tensor)}

    def totals(self, loss: Loss, batch: TrialBatch) -> Tensor:
        """Returns the loss, times the records, and the records, thrice."""
        records = loss.weight.to(torch.float64)
        scale = records * (self._task.batches_of_a_step if self._task.averages else 1)
        return torch.stack([loss.sum.detach().to(torch.float64) * scale, records, records, records])

    def divisor(self, totals: Tensor, processes: int) -> Tensor:
        """Returns the number of processes: their gradients are means, and are averaged."""
        return torch.full([], float(processes), device=totals.device)


class TrialObjective(nn.Module):
    """The loss that a trial computes of a training batch.

    Args:
      task: of the trial.
      model: that is trained.
    """

    def __init__(self, task: TrialTask, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, batch: TrialBatch) -> Output:
        """Returns the loss of a batch; its weight is the number of its records."""
        task = self._task
        # torch's generator has its seed of this batch: what else the trial draws follows from it.
        random.seed(torch.initial_seed())
        np.random.seed(torch.initial_seed() % 2**32)
        method = "train_batch" if task.definition.generation == TRAIN_BATCH else "losses"
        losses, metrics = self._step(batch)
        total = total_of(losses, method).reshape(())
        task.state.training.add(join_metrics(losses, metrics, method))
        if task.averages:
            total = total / task.batches_of_a_step
        weight = torch.tensor(float(_records(batch.content)), device=total.device)
        return Output({}, {"loss": Loss(total, weight)})

    def _step(self, batch: TrialBatch) -> tuple[Any, dict[str, Any]]:
        """Returns what the trial computes of a training batch: losses and metrics."""
        task, trial, model = self._task, self._task.trial, self.model
        number, content = batch
        if task.definition.generation == TRAIN_BATCH:
            assert task.source is not None
            epoch = task.source.epoch_of(number)
            index = number // task.processes
            what = "train_batch"
            return call(trial.train_batch, content, model, epoch, index, what=what), {}
        inputs, labels = check_batch_pair(content)
        predictions = model(inputs)
        losses = trial.losses(predictions, labels)
        metrics = {}
        if task.definition.has("training_metrics"):
            with torch.no_grad():
                method = trial.training_metrics
                found = call(method, predictions, labels, losses, what="training_metrics")
                metrics = check_training_metrics(found)
        return losses, metrics


class TrialEvaluator(Evaluator):
    """Means of a trial's metrics over the batches of validation.

    Args:
      task: of the trial.
    """

    def __init__(self, task: TrialTask) -> None:
        super().__init__(MetricAverages(task.judge, reducers_of(task.trial)))
        self._task = task

    def names(self) -> None:
        """Only the first evaluation can tell."""

    def output(self, model: nn.Module, batch: TrialBatch) -> Any:
        """Returns the metrics of a batch; what it draws depends on its number alone."""
        with isolated(mix(0, "validation", batch.number)):
            return self._output(model, *batch)

    def _output(self, model: nn.Module, number: int, content: Any) -> Any:
        trial, judge = self._task.trial, self._task.judge
        if judge == "evaluate_full_dataset":
            return trial.evaluate_full_dataset(content, model)
        if judge == "evaluate_batch":
            return call(trial.evaluate_batch, content, model, number, what=judge)
        inputs, labels = check_batch_pair(content)
        predictions = model(inputs)
        losses = trial.losses(predictions, labels)
        total_of(losses)
        return call(trial.validation_metrics, predictions, labels, losses, what=judge)

    def synchronize(self, world: World) -> None:
        """Sums over all processes, which may know other metrics before.

        What an evaluation has moved, as a scheduler that the trial itself steps by a metric, is
        the leader's in all of them: each has seen other batches.
        """
        self.metrics.agree(world)
        if self._task.state.schedule is not None:
            self._task.state.schedule.follow_leader(world)
        super().synchronize(world)

    def result(self) -> dict[str, float]:
        """Returns the metrics that are numbers.

        Raises:
          TrialError: a metric that is to say what is best is not among the numbers.
        """
        numbers, arrays = super().result(), self.arrays()
        for metric, asked_by in self._task.watched.items():
            if metric in numbers:
                continue
            shape = arrays[metric].shape if metric in arrays else None
            fault = f"is an array of shape {list(shape)}" if shape else "is not among them"
            raise TrialError(
                f"{asked_by} is {metric!r}, which says what is best, and it {fault}. "
                f"{self._task.judge} returned these numbers: {', '.join(numbers) or 'none'}."
            )
        return numbers

    def arrays(self) -> dict[str, Tensor]:
        """Returns the metrics that are arrays."""
        return {name: torch.from_numpy(array) for name, array in self.metrics.arrays().items()}


class TrialState(TaskState):
    """A trial's schedulers, its attributes and the statistics of its training metrics.

    Attributes:
      schedule: when the trial's schedulers step; None before the optimizer is made.
      attributes: of the trial that checkpoints hold; None before the optimizer is made.
      training: metrics of training since the last report.

    Args:
      task: of the trial.
    """

    def __init__(self, task: TrialTask) -> None:
        self.schedule: Schedule | None = None
        self.attributes: AttributeState | None = None
        self.training = TrainingReport()
        self._task = task
        self._undo: Callable[[], None] = _nothing  # of what an evaluation's checkpoint restored
        self._tensors: dict[str, Tensor] = {}  # of the attributes, as `save` read them
        self._is_checked = False

    def before_update(self, model: nn.Module) -> None:
        """Clips as the hyperparameters say, with torch's functions, as PEDL did."""
        chosen = self._task.hyperparameters
        if chosen.get(CLIP_NORM) is not None:
            nn.utils.clip_grad_norm_(model.parameters(), chosen[CLIP_NORM])
        if chosen.get(CLIP_VALUE) is not None:
            nn.utils.clip_grad_value_(model.parameters(), chosen[CLIP_VALUE])

    def after_update(
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Steps the trial's scheduler as it asks.

        One that steps with batches does not where the optimizer has not moved; an epoch has ended
        all the same.
        """
        del optimizer
        if self.attributes is not None and not self._is_checked:  # not hours later, at a save
            self.attributes.check()
            self._is_checked = True
        if self.schedule is None or not self.schedule.steps_itself:
            return
        source = self._task.source
        assert source is not None
        first = state.batches_consumed
        before, after = map(source.epoch_of, (first, first + state.batches_per_step))
        batches = 0 if bool(skipped) else self._task.batches_of_a_step
        self.schedule.step(batches=batches, epochs=after - before)

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means of the losses and the training metrics."""
        return self.training.read(world)

    def save(self, world: World) -> dict[str, Any]:
        """Returns the optimizer's settings, the schedulers' states and what was reported so far.

        The values of the trial's attributes are among it, except tensors: see `tensors`.
        """
        assert self.schedule is not None and self.attributes is not None
        known = {**self.schedule.agreed_state(world), "report": self.training.state(world)}
        kept, self._tensors = self.attributes.state(world)
        return {**known, _ATTRIBUTES: kept} if kept else known

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors of the trial's attributes, as the last `save` read them."""
        return self._tensors

    def restore(self, state: dict[str, Any], tensors: Mapping[str, Tensor], world: World) -> None:
        """Loads what `save` returned."""
        if not state:
            return
        assert self.schedule is not None and self.attributes is not None
        self.schedule.restore(state)
        self.attributes.restore(_attributes_of(state), tensors, world.rank)
        if world.leads:
            self.training.restore(state["report"])

    def restore_for_evaluation(
        self, model: nn.Module, state: dict[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Gives the trial's attributes what a checkpoint holds, as its metrics may read them."""
        stored = _attributes_of(state)
        self._undo()  # an attribute that this checkpoint lacks is as it was made
        self._undo = _nothing
        if stored:
            if self.attributes is None or self.attributes.model is not model:
                self._task.optimizer(model)  # where a trial makes them, too
            assert self.attributes is not None
            self._undo = self.attributes.remember()
            self.attributes.restore(stored, tensors, 0)

    def attributes_kept(self) -> AbstractContextManager[None]:
        """Returns a context after which the trial's attributes are as before it."""
        assert self.attributes is not None
        return self.attributes.kept()


class TrialTask(Task):
    """Trains and evaluates a trial.

    Attributes:
      definition: what the user wrote.
      trial: the instance of its class.
      hyperparameters: that were chosen for it.
      loaders: of training and of validation.
      source: of the training batches, once they are opened.
      processes: that train together.
      averages: whether the gradients of a step's batches are averaged, or summed.
      watched: metrics that evaluations must return -> what names them.

    Args:
      definition: what the user wrote.
      trial: made of its class.
      loaders: of training and of validation.
      chosen: hyperparameters.
      settings: what the loop reads: batches of a step, precision, clipping, a mean of weights.
      averages: whether the gradients of a step's batches are averaged, or summed.
      metric: of evaluations, that says what is best; None: nothing does.
    """

    counted = "examples"
    accumulate_flag = "--global_batch_size for {} batches of each process in a step"
    overlaps_gradients = False  # a class around the model would hide what the trial's code reads
    state: TrialState

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
        self.hyperparameters = chosen
        self.chosen = nested.leaves(dict(chosen))
        self.hparams = settings
        self.loaders = loaders
        self.source: TrialTrainBatches | None = None
        self.processes = 1
        self.averages = averages
        self.watched = {metric: "searcher.metric"} if metric else {}
        self.batches = TrialBatches(self)
        self.state = TrialState(self)
        self._validation: dict[tuple[int, int], TrialEvalBatches] = {}  # by rank and processes

    def model(self) -> nn.Module:
        """Returns what `build_model` returns."""
        chosen = copy.deepcopy(dict(self.hyperparameters))
        return check_model(call(self.trial.build_model, chosen, what="build_model"))

    def objective(self, model: nn.Module) -> TrialObjective:
        """Returns the trial's own loss of the model."""
        return TrialObjective(self, model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the trial's own, and makes its scheduler."""
        self.state.schedule = None
        chosen = copy.deepcopy(dict(self.hyperparameters))
        made = call(self.trial.optimizer, model, chosen, what="optimizer")
        optimizer, found = check_optimizer(made, model), None
        if self.definition.has("create_lr_scheduler"):
            found = call(self.trial.create_lr_scheduler, optimizer, what="create_lr_scheduler")
            if found is not None and not isinstance(found, LRScheduler):
                raise TrialError(
                    f"create_lr_scheduler returned {type(found).__name__}; an LRScheduler(scheduler"
                    ", step_every_batch=... or step_every_epoch=...) was expected."
                )
        spec = self.definition.spec
        schedule = self.state.schedule = Schedule(optimizer, found, self.trial, spec)
        self.state.attributes = AttributeState(
            self.trial, model, optimizer, schedule.schedulers, spec
        )
        return optimizer

    def schedule(self, train_steps: int) -> None:
        """Leaves the learning rate to the trial."""

    def train_batches(self, *, seed: int, start: int, rank: int, world_size: int) -> Any:
        """Returns the training loader's batches, in an order that depends on the seed alone."""
        place = {"start": start, "rank": rank, "world_size": world_size}
        self.processes = world_size
        self.source = TrialTrainBatches(self.loaders[0], seed=seed, **place)
        return NumberedBatches(self.source, start + rank, world_size)

    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> Any:
        """Returns one pass over the validation loader; for `evaluate_full_dataset` the loader.

        Raises:
          TrialError: there is no such split, or the validation loader has no batch.
        """
        if split is not Split.EVAL:
            raise TrialError(f"a trial has no split {split.value}: it has a validation loader.")
        loader = self.loaders[1]
        if self.definition.generation != TRAIN_BATCH or self.definition.has("evaluate_batch"):
            if (rank, world_size) not in self._validation:  # kept, as it may have been counted
                found = TrialEvalBatches(loader, rank=rank, world_size=world_size)
                self._validation[rank, world_size] = found
            return NumberedBatches(self._validation[rank, world_size], rank, world_size)
        return [TrialBatch(0, loader)] if rank == 0 else []

    def evaluator(self) -> TrialEvaluator:
        """Returns an evaluation that has seen no batch yet."""
        return TrialEvaluator(self)

    @property
    def judge(self) -> str:
        """The method that evaluates."""
        if self.definition.generation != TRAIN_BATCH:
            return "validation_metrics"
        has_batch = self.definition.has("evaluate_batch")
        return "evaluate_batch" if has_batch else "evaluate_full_dataset"

    @property
    def batches_of_a_step(self) -> int:
        """The batches of a process in a step."""
        return self.hparams.optimizer_multistep_accumulate_steps or 1

    def watch(self, metric: str, asked_by: str) -> None:
        """Refuses evaluations that lack another metric, besides the searcher's.

        Args:
          metric: a number of evaluations.
          asked_by: what names it, for the message.
        """
        self.watched.setdefault(metric, asked_by)


def _nothing() -> None:
    """Undoes nothing."""


def _attributes_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `TrialState.save` holds of the trial's attributes.

    Raises:
      TrialError: it is in a form of before 0.1.0.
    """
    if "kept" in state:
        raise TrialError(
            "the checkpoint stores the trial's attributes in a form that this version does not "
            "read: a version before 0.1.0 wrote it. Use that version, or train anew."
        )
    return dict(state.get(_ATTRIBUTES, {}))


def _records(content: Any) -> int:
    """Returns how many records a batch has: the rows of its first tensor; 1 if it has none."""
    for leaf in nested.leaves(content).values():
        if isinstance(leaf, Tensor) and leaf.ndim:
            return max(len(leaf), 1)
    return 1
