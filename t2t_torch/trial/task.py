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
import torch.distributed as dist
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.loss import Loss
from t2t_torch.mode import Split
from t2t_torch.train.task import Task
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


class TrialTask(Task):
    """Trains and evaluates a trial.

    Attributes:
      definition: what the user wrote.
      trial: the instance of its class.
      chosen: its hyperparameters.
      loaders: of training and of validation.

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
        self.loaders = loaders
        self._averages = averages
        self._asked = {metric: "searcher.metric"} if metric else {}
        self._source: TrialTrainBatches | None = None
        self._schedule: Schedule | None = None
        self._attributes: AttributeState | None = None
        self._undo: Callable[[], None] = _nothing  # of what an evaluation's checkpoint restored
        self._tensors: dict[str, Tensor] = {}  # of the attributes, as `state` found them
        self._is_checked = False
        self._report = TrainingReport()
        self._validation: dict[tuple[int, int], TrialEvalBatches] = {}  # by rank and processes
        self._processes = 1

    def model(self) -> nn.Module:
        """Returns what `build_model` returns."""
        chosen = copy.deepcopy(dict(self.chosen))
        return check_model(call(self.trial.build_model, chosen, what="build_model"))

    def told_hparams(self) -> dict[str, Any]:
        """Returns the chosen hyperparameters by their dotted names."""
        return nested.leaves(dict(self.chosen))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the trial's own, and makes its scheduler."""
        self._schedule = None
        chosen = copy.deepcopy(dict(self.chosen))
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
        self._schedule = Schedule(optimizer, found, self.trial, spec)
        self._attributes = AttributeState(
            self.trial, model, optimizer, self._schedule.schedulers, spec
        )
        return optimizer

    def learning_rate(self, train_steps: int) -> None:
        """Leaves it to the trial."""
        del train_steps

    def network(self, model: nn.Module, world: World) -> nn.Module:
        """Returns the model itself, with the leader's weights; gradients are averaged later.

        A class of its own around it would hide what the trial's code asks of its model.
        """
        self._processes = world.size
        if world.size > 1:  # what a user's code draws from the clock differs
            for parameter in model.parameters():
                dist.broadcast(parameter.data, src=0)
        return model

    def train_batches(self, *, seed: int, start: int, rank: int, world_size: int) -> Any:
        """Returns the training loader's batches, in an order that depends on the seed alone."""
        place = {"start": start, "rank": rank, "world_size": world_size}
        self._source = TrialTrainBatches(self.loaders[0], seed=seed, **place)
        return NumberedBatches(self._source, start + rank, world_size)

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

    def evaluator(self) -> MetricAverages:
        """Returns means over batches that have seen nothing yet."""
        return MetricAverages(self._judge, reducers_of(self.trial))

    @property
    def _judge(self) -> str:
        """The method that evaluates."""
        if self.definition.generation != TRAIN_BATCH:
            return "validation_metrics"
        has_batch = self.definition.has("evaluate_batch")
        return "evaluate_batch" if has_batch else "evaluate_full_dataset"

    def watch(self, metric: str, asked_by: str) -> None:
        """Refuses evaluations that lack another metric, besides the searcher's.

        Args:
          metric: a number of evaluations.
          asked_by: what names it, for the message.
        """
        self._asked.setdefault(metric, asked_by)

    def metric_names(self) -> None:
        """Only the first evaluation tells them."""

    def agree(self, evaluator: Any, world: World) -> None:
        """Lets the processes know each other's metrics.

        What an evaluation has moved, as a scheduler that the trial itself steps by a metric, is
        the leader's in all of them: each has seen other batches.
        """
        evaluator.agree(world)
        if self._schedule is not None:
            self._schedule.follow_leader(world)

    def results(self, evaluator: Any) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the metrics that are numbers, and those that are arrays.

        Raises:
          TrialError: a metric that is to say what is best is not among the numbers.
        """
        numbers = evaluator.result()
        arrays = {name: torch.from_numpy(array) for name, array in evaluator.arrays().items()}
        for metric, asked_by in self._asked.items():
            if metric in numbers:
                continue
            shape = arrays[metric].shape if metric in arrays else None
            fault = f"is an array of shape {list(shape)}" if shape else "is not among them"
            raise TrialError(
                f"{asked_by} is {metric!r}, which says what is best, and it {fault}. "
                f"{self._judge} returned these numbers: {', '.join(numbers) or 'none'}."
            )
        return numbers, arrays

    def loss(self, network: nn.Module, batch: Any) -> Loss:
        """Returns the loss of a batch; its weight is the number of its records."""
        # torch's generator has its seed of this batch: what else the trial draws follows from it.
        random.seed(torch.initial_seed())
        np.random.seed(torch.initial_seed() % 2**32)
        losses, metrics = self._step(network, batch)
        total = total_of(losses, self._method).reshape(())
        self._report.add(join_metrics(losses, metrics, self._method))
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
            with torch.no_grad():
                method = self.trial.training_metrics
                found = call(method, predictions, labels, losses, what="training_metrics")
                metrics = check_training_metrics(found)
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

    def clip_gradients(self, model: nn.Module) -> None:
        """Clips as the hyperparameters say, with torch's functions, as PEDL did."""
        if self.chosen.get(CLIP_NORM) is not None:
            nn.utils.clip_grad_norm_(model.parameters(), self.chosen[CLIP_NORM])
        if self.chosen.get(CLIP_VALUE) is not None:
            nn.utils.clip_grad_value_(model.parameters(), self.chosen[CLIP_VALUE])

    def evaluated(self, model: nn.Module, batch: Any) -> Any:
        """Returns the metrics of a batch; what it draws depends on its number alone."""
        with isolated(mix(0, "validation", batch.number)):
            return self._evaluated(model, *batch)

    def _evaluated(self, model: nn.Module, number: int, content: Any) -> Any:
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
        if batch.content is self.loaders[1]:
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
        """Steps the trial's scheduler as it asks.

        One that steps with batches does not where the optimizer has not moved; an epoch has ended
        all the same.
        """
        del optimizer
        if self._attributes is not None and not self._is_checked:  # not hours later, at a save
            self._attributes.check()
            self._is_checked = True
        if self._schedule is None or not self._schedule.steps_itself:
            return
        assert self._source is not None
        first = state.batches_consumed
        before, after = map(self._source.epoch_of, (first, first + state.batches_per_step))
        batches = 0 if bool(skipped) else self._batches_of_a_step
        self._schedule.step(batches=batches, epochs=after - before)

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means of the losses and the training metrics."""
        return self._report.read(world)

    def state(self, optimizer: torch.optim.Optimizer, world: World) -> dict[str, Any]:
        """Returns the optimizer's settings, the schedulers' states and what was reported so far.

        The values of the trial's attributes are among it, but for the tensors: see
        `tensors_of_state`.
        """
        del optimizer
        assert self._schedule is not None and self._attributes is not None
        known = {**self._schedule.agreed_state(world), "report": self._report.state(world)}
        kept, self._tensors = self._attributes.state(world)
        return {**known, _ATTRIBUTES: kept} if kept else known

    def tensors_of_state(self) -> dict[str, Tensor]:
        """Returns the tensors of the trial's attributes, as the last `state` found them."""
        return self._tensors

    def restore(
        self,
        optimizer: torch.optim.Optimizer,
        state: dict[str, Any],
        tensors: Mapping[str, Tensor],
        world: World,
    ) -> None:
        """Takes back what `state` returned."""
        del optimizer
        if not state:
            return
        assert self._schedule is not None and self._attributes is not None
        self._schedule.restore(state)
        self._attributes.restore(_attributes_of(state), tensors, world.rank)
        if world.leads:
            self._report.restore(state["report"])

    def restore_for_evaluation(
        self, model: nn.Module, state: dict[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Gives the trial's attributes what a checkpoint holds, as its metrics may read them."""
        stored = _attributes_of(state)
        self._undo()  # an attribute that this checkpoint lacks is as it was made
        self._undo = _nothing
        if stored:
            if self._attributes is None or self._attributes.model is not model:
                self.optimizer(model)  # where a trial makes them, too
            assert self._attributes is not None
            self._undo = self._attributes.remember()
            self._attributes.restore(stored, tensors, 0)

    def attributes_kept(self) -> AbstractContextManager[None]:
        """Returns a context after which the trial's attributes are as before it."""
        assert self._attributes is not None
        return self._attributes.kept()


def _nothing() -> None:
    """Undoes nothing."""


def _attributes_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `TrialTask.state` holds of the trial's attributes.

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
