"""Task of a trial: trains a user's `PyTorchTrial` in this library's training loop.

An unmodified trial trains as in a hand-written loop: float32, no clipping, no averaging of weights,
the learning rate of its optimizer and scheduler.  Losses are means already, so all batches of a
step have equal weight.

A trial with Determined's context computes gradients and updates itself: `ContextTask`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import itertools
import random
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.errors import ConfigError, TrialError
from t2t_torch.loss import Loss
from t2t_torch.mode import Split
from t2t_torch.model import Output
from t2t_torch.train.task import BatchAdapter, Evaluator, Task, TaskState
from t2t_torch.trial import metrics, nested
from t2t_torch.trial.attribute_state import AttributeState
from t2t_torch.trial.context import (
    JointOptimizer,
    PyTorchTrialContext,
    WrappedModels,
    reduce_metrics,
)
from t2t_torch.trial.epoch_orders import (
    TrialBatch,
    TrialEvalBatches,
    TrialTrainBatches,
    isolated,
    mix,
)
from t2t_torch.trial.pytorch_trial import reducers_of
from t2t_torch.trial.schedule import NOT_PLAIN, LRScheduler, Schedule, from_plain, to_plain
from t2t_torch.trial.user_code import CONTEXT, DOCUMENTED, TRAIN_BATCH, call

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.run.checkpoint import TrainerState
    from t2t_torch.trial.user_code import Definition


_ATTRIBUTES = "of_trial"
"""Key of the trial's attributes in the state of a task."""

_GRADIENT = "gradient_of_model/"
"""Prefix of gradients that a trial keeps after a step, in the tensors of a checkpoint."""


CLIP_NORM, CLIP_VALUE = "clip_grad_l2_norm", "clip_grad_val"
"""PEDL's hyperparameters for gradient clipping: by global norm, or by value."""


class TrialBatches(BatchAdapter):
    """Batches of a trial: opaque, and of equal weight within a step.

    Args:
      task: task of the trial.
    """

    def __init__(self, task: TrialTask) -> None:
        super().__init__()
        self._task = task

    def to_device(self, batch: TrialBatch, device: torch.device) -> TrialBatch:
        """Returns the batch on the model's device; a loader is not moved."""
        moves = self._task.context.experimental.moves_batches
        if batch.content is self._task.loaders[1] or not moves:
            return batch
        return batch._replace(content=nested.to_device(batch.content, device))

    def rows_of(self, batch: TrialBatch) -> int:
        """Returns 1: a batch cannot be split."""
        return 1

    def tensors(self, batch: TrialBatch) -> dict[str, Tensor]:
        """Returns the tensors of a batch by dotted name."""
        leaves = nested.leaves(batch.content).items()
        return {name or "batch": leaf for name, leaf in leaves if isinstance(leaf, Tensor)}

    def totals(self, loss: Loss, batch: TrialBatch) -> Tensor:
        """Returns [4]: the scaled loss, then the number of records three times."""
        records = loss.weight.to(torch.float64)
        scale = records * (self._task.batches_of_a_step if self._task.averages else 1)
        return torch.stack([loss.sum.detach().to(torch.float64) * scale, records, records, records])

    def divisor(self, totals: Tensor, processes: int) -> Tensor:
        """Returns the number of processes: gradients are means and are averaged over processes."""
        return torch.full([], float(processes), device=totals.device)


class TrialObjective(nn.Module):
    """Training loss of a batch, computed by the trial.

    Args:
      task: task of the trial.
      model: the trained model.
    """

    def __init__(self, task: TrialTask, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, batch: TrialBatch) -> Output:
        """Returns the loss of a batch, weighted by its number of records."""
        task = self._task
        # torch's generator is seeded for this batch: other random numbers of the trial derive from
        # it.
        random.seed(torch.initial_seed())
        np.random.seed(torch.initial_seed() % 2**32)
        total, reported = task.step(self.model, batch)
        task.state.add(reported)
        total = total.reshape(())
        if task.averages:
            total = total / task.batches_of_a_step
        weight = torch.tensor(float(max(task.rows_of(batch.content), 1)), device=total.device)
        return Output({}, {"loss": Loss(total, weight)})


class TrialEvaluator(Evaluator):
    """Means of a trial's metrics over the validation batches, and the metrics of its reducers.

    Args:
      task: task of the trial.
    """

    def __init__(self, task: TrialTask) -> None:
        super().__init__(metrics.MetricAverages(task.evaluation_method, reducers_of(task.trial)))
        self._task = task
        self._outputs: list[Any] = []  # for callbacks
        self._of_training = task.context.reducers.states()
        for reducer, _ in task.context.reducers.of_validation:
            reducer.reset()
        task.context.notify("on_validation_start")
        task.context.notify("on_validation_epoch_start")

    def names(self) -> None:
        """Returns None: the names are unknown before the first evaluation."""

    def output(self, model: nn.Module, batch: TrialBatch) -> Any:
        """Returns the metrics of a batch; random numbers depend only on the batch's number."""
        with isolated(mix(0, "validation", batch.number)):
            return self._task.evaluate(model, *batch)

    def update(self, output: Any, batch: TrialBatch) -> None:
        """Adds a batch's metrics, which may be empty if there are reducers."""
        if not self._task.context.reducers.of_validation or output:
            super().update(output, batch)
        if self._task.context.callbacks:
            self._outputs.append(output)

    def synchronize(self, world: World) -> None:
        """Sums over all processes, which may have different metrics so far; notifies callbacks.

        State changed by the evaluation, such as a scheduler that the trial steps by a metric, is
        copied from the leader, because processes evaluate different batches.
        """
        context, schedule = self._task.context, self._task.state.schedule
        self.metrics.reduced = reduce_metrics(context.reducers.of_validation, world)
        context.reducers.restore(self._of_training)
        if self.metrics.reduced:
            metrics.check_metrics(self.metrics.reduced, "wrap_reducer")
        self.metrics.agree(world)
        if schedule is not None:
            schedule.follow_leader(world)
        if context.callbacks:
            context.notify("on_validation_epoch_end", self._outputs)
            context.notify("on_validation_end", {**self.metrics.result(), **self.metrics.arrays()})
            if schedule is not None:  # callbacks may step a scheduler
                schedule.follow_leader(world)

    def result(self) -> dict[str, float]:
        """Returns the scalar metrics.

        Raises:
          TrialError: a watched metric is not among them.
        """
        numbers, arrays = super().result(), self.arrays()
        for metric, setting in self._task.watched.items():
            if metric in numbers:
                continue
            shape = arrays[metric].shape if metric in arrays else None
            fault = f"is an array of shape {list(shape)}" if shape else "is not among them"
            raise TrialError(
                f"{setting} is {metric!r}, which selects the best checkpoint, and it {fault}. "
                f"{self._task.evaluation_method} returned these numbers: "
                f"{', '.join(numbers) or 'none'}."
            )
        return numbers

    def arrays(self) -> dict[str, Tensor]:
        """Returns the array metrics."""
        return {name: torch.from_numpy(array) for name, array in self.metrics.arrays().items()}


class TrialTaskState(TaskState):
    """Schedulers, scalers, callbacks, attributes and training metrics of a trial.

    Attributes:
      schedule: stepping of the trial's schedulers; None before the optimizer is created.
      attributes: attributes stored in checkpoints; None before the optimizer is created.
      training: training metrics since the last report.

    Args:
      task: task of the trial.
    """

    def __init__(self, task: TrialTask) -> None:
        self.schedule: Schedule | None = None
        self.attributes: AttributeState | None = None
        self.training = metrics.TrainingReport()
        self._task = task
        self._undo: Callable[[], None] = lambda: None  # reverts an evaluation's restore
        self._tensors: dict[str, Tensor] = {}  # tensors of the attributes, read by `save`
        self._is_checked = False
        self._batch_metrics: list[dict[str, Any]] = []  # for callbacks

    def add(self, reported: dict[str, Any]) -> None:
        """Adds the losses and metrics of a training batch."""
        self.training.add(reported)
        if self._task.context.callbacks:
            self._batch_metrics.append(reported)

    def gradient_norm(self) -> Tensor:
        """Returns the gradient norm of the updates in the last step, []."""
        return self._task.context.norm

    def before_update(self, model: nn.Module) -> None:
        """Clips gradients by the hyperparameters, with torch's functions, as in PEDL."""
        chosen = self._task.hyperparameters
        if chosen.get(CLIP_NORM) is not None:
            nn.utils.clip_grad_norm_(model.parameters(), chosen[CLIP_NORM])
        if chosen.get(CLIP_VALUE) is not None:
            nn.utils.clip_grad_value_(model.parameters(), chosen[CLIP_VALUE])

    def after_update(
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Steps the trial's scheduler.

        A scheduler that steps per batch is not stepped if the optimizer skipped its step; ends of
        epochs count in either case.
        """
        del optimizer
        if self.attributes is not None and not self._is_checked:  # not only at a save
            self.attributes.check()
            self._is_checked = True
        if self.schedule is None or not self.schedule.steps_itself:
            return
        first = state.batches_consumed
        (before, _), (after, _) = map(
            self._task.source.place, (first, first + state.batches_per_step)
        )
        batches = 0 if bool(skipped) else self._task.batches_of_a_step
        self.schedule.step(batches=batches, epochs=after - before)

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means of the losses and metrics, and the metrics of the trial's reducers."""
        reducers = self._task.context.reducers.of_training
        numbers, arrays = self.training.read(world, reduce_metrics(reducers, world))
        for reducer, _ in reducers:
            reducer.reset()
        self._task.context.notify("on_training_workload_end", dict(numbers), self._batch_metrics)
        self._batch_metrics = []
        return numbers, arrays

    def save(self, world: World) -> dict[str, Any]:
        """Returns the state of optimizer settings, schedulers and unreported training metrics.

        Includes the trial's attributes, except tensors (see `tensors`), and the entries of
        `on_checkpoint_save_start`.

        Raises:
          TrialError: an entry has no JSON form.
        """
        assert self.schedule is not None and self.attributes is not None
        state = {**self.schedule.agreed_state(world), "report": self.training.state(world)}
        attributes, self._tensors = self.attributes.state(world)
        state |= {_ATTRIBUTES: attributes} if attributes else {}
        entries: dict[str, Any] = {}
        self._task.context.notify("on_checkpoint_save_start", entries)
        plain = to_plain(entries)
        if plain is NOT_PLAIN:
            raise TrialError(
                "on_checkpoint_save_start added an entry that a checkpoint cannot hold: "
                f"{', '.join(entries)}. Numbers, texts, tensors, lists and dicts were expected."
            )
        if not self._task.automatic_optimization:  # the trial may keep gradients
            for name, parameter in self.attributes.model.named_parameters():
                if parameter.grad is not None:
                    self._tensors[f"{_GRADIENT}{name}"] = parameter.grad.detach().clone()
        return {**state, "entries": plain} if entries else state

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors of the attributes, and gradients that the trial has not cleared."""
        return self._tensors

    def restore(self, state: dict[str, Any], tensors: Mapping[str, Tensor], world: World) -> None:
        """Restores the result of `save`."""
        if not state:
            return
        assert self.schedule is not None and self.attributes is not None
        if "entries" in state:
            self._task.context.notify("on_checkpoint_load_start", from_plain({}, state["entries"]))
        self.schedule.restore(state)
        self.attributes.restore(state.get(_ATTRIBUTES, {}), tensors, world.rank)
        for name, parameter in self.attributes.model.named_parameters():
            if f"{_GRADIENT}{name}" in tensors:
                parameter.grad = tensors[f"{_GRADIENT}{name}"].to(parameter, copy=True)
        if world.leads:
            self.training.restore(state["report"])

    def restore_for_evaluation(
        self, model: nn.Module, state: dict[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Restores the trial's attributes from a checkpoint, as its metrics may read them."""
        stored = state.get(_ATTRIBUTES, {})
        self._undo()  # resets attributes that this checkpoint lacks
        self._undo = lambda: None
        if stored:
            if self.attributes is None or self.attributes.model is not model:
                self._task.optimizer(model)  # some trials create attributes here
            assert self.attributes is not None
            self._undo = self.attributes.remember()
            self.attributes.restore(stored, tensors, 0)


@dataclasses.dataclass(eq=False, repr=False)
class TrialTask(Task):
    """Training and evaluation of a trial.

    Attributes:
      definition: imported definition of the trial.
      trial: instance of the trial class.
      loaders: training and validation loaders.
      context: wrapped objects, reducers and callbacks; of trials without a context none.
      hyperparameters: chosen hyperparameters.
      hparams: settings of the loop: batches per step, precision, clipping, averaging of weights.
      averages: whether the gradients of a step's batches are averaged instead of summed.
      metric: evaluation metric that selects the best checkpoint; None: no selection.
      source: training batches, once they are opened.
      processes: number of processes that train together.
      watched: required evaluation metrics -> the setting that names each.
    """

    counted = "examples"
    accumulate_flag = "--global_batch_size for {} batches of each process in a step"
    overlaps_gradients = False  # a DDP wrapper would hide attributes that the trial reads

    definition: Definition
    trial: Any
    loaders: tuple[Any, Any]
    context: PyTorchTrialContext
    hyperparameters: Mapping[str, Any]
    hparams: HParams
    averages: bool = True
    metric: str | None = None
    source: TrialTrainBatches = dataclasses.field(init=False)
    processes: int = dataclasses.field(default=1, init=False)
    state: TrialTaskState = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.name = self.definition.trial_class.__name__
        self.chosen = nested.leaves(dict(self.hyperparameters))
        self.watched = {self.metric: "searcher.metric"} if self.metric else {}
        self.batches = TrialBatches(self)
        self.state = TrialTaskState(self)
        batches = functools.partial(TrialEvalBatches, self.loaders[1])
        self._validation = functools.cache(batches)  # counting may be expensive

    def model(self) -> nn.Module:
        """Returns the result of `build_model`."""
        return model_of(self.definition, self.trial, self.context, self.hyperparameters)

    def rows_of(self, content: Any) -> int:
        """Returns the number of records in a batch."""
        return nested.rows_of(content)

    def step(self, model: nn.Module, batch: TrialBatch) -> tuple[Tensor, dict[str, Any]]:
        """Returns the loss of a training batch, of one element, and its losses and metrics."""
        trial, (number, content), reported = self.trial, batch, dict[str, Any]()
        if self.definition.generation == TRAIN_BATCH:
            what, (epoch, _) = "train_batch", self.source.place(number)
            index = number // self.processes
            losses = call(trial.train_batch, content, model, epoch, index, what=what)
            return metrics.total_of(losses, what), metrics.join_metrics(losses, reported, what)
        inputs, labels = metrics.check_batch_pair(content)
        predictions = model(inputs)
        losses = trial.losses(predictions, labels)
        if self.definition.has("training_metrics"):
            with torch.no_grad():
                method = trial.training_metrics
                reported = call(method, predictions, labels, losses, what="training_metrics")
        return metrics.total_of(losses), metrics.join_metrics(losses, reported)

    def evaluate(self, model: nn.Module, number: int, content: Any) -> Any:
        """Returns the metrics of a validation batch, or of the whole loader."""
        trial, method = self.trial, self.evaluation_method
        if method == "evaluate_full_dataset":
            return trial.evaluate_full_dataset(content, model)
        if method == "evaluate_batch":
            return call(trial.evaluate_batch, content, model, number, what=method)
        inputs, labels = metrics.check_batch_pair(content)
        predictions = model(inputs)
        losses = trial.losses(predictions, labels)
        metrics.total_of(losses)
        return call(trial.validation_metrics, predictions, labels, losses, what=method)

    def objective(self, model: nn.Module) -> TrialObjective:
        """Returns the training objective of the model."""
        return TrialObjective(self, model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the trial's optimizer; also creates its scheduler."""
        self.state.schedule = None
        chosen = copy.deepcopy(dict(self.hyperparameters))
        method = self.trial.optimizer
        if not callable(method):  # the method has set `self.optimizer`
            method = types.MethodType(type(self.trial).optimizer, self.trial)
        result = call(method, model, chosen, what="optimizer")
        optimizer, scheduler = metrics.check_optimizer(result, model), None
        if self.definition.has("create_lr_scheduler"):
            scheduler = call(self.trial.create_lr_scheduler, optimizer, what="create_lr_scheduler")
            if scheduler is not None and not isinstance(scheduler, LRScheduler):
                raise TrialError(
                    f"create_lr_scheduler returned {type(scheduler).__name__}; an LRScheduler("
                    "scheduler, step_every_batch=... or step_every_epoch=...) was expected."
                )
        self._keep(model, optimizer, scheduler)
        return optimizer

    def _keep(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: LRScheduler | None
    ) -> None:
        """Creates the state that checkpoints store."""
        spec, context = self.definition.spec, self.context
        schedule = self.state.schedule = Schedule(optimizer, scheduler, self.trial, spec)
        wrapped = (context.lr_schedulers, context.optimizers, context.scalers)
        known = [
            *(schedule.schedulers() if self.automatic_optimization else ()),
            *(one.scheduler for one in context.lr_schedulers),
            *itertools.chain(*wrapped, context.callbacks.values(), context.reducers.all),
        ]
        self.state.attributes = AttributeState(self.trial, model, optimizer, known, spec)

    def schedule(self, train_steps: int) -> None:
        """Returns None: the trial controls the learning rate."""

    def train_batches(  # type: ignore[override]  # the kind of run refuses another batch
        self, *, seed: int, start: int, rank: int, world_size: int
    ) -> Any:
        """Returns the training loader's batches; their order depends only on the seed."""
        place = {"start": start, "rank": rank, "world_size": world_size}
        self.processes = world_size
        self.source = TrialTrainBatches(self.loaders[0], seed=seed, **place)
        return self.source

    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> Any:
        """Returns one pass over the validation loader; the loader for `evaluate_full_dataset`.

        Raises:
          TrialError: the split does not exist, or the validation loader is empty.
        """
        if split is not Split.EVAL:
            raise TrialError(f"a trial has no split {split.value}: it has a validation loader.")
        if self.evaluation_method != "evaluate_full_dataset":
            return self._validation(rank=rank, world_size=world_size)
        return [TrialBatch(0, self.loaders[1])] if rank == 0 else []

    def evaluator(self) -> TrialEvaluator:
        """Returns a new evaluator."""
        return TrialEvaluator(self)

    @property
    def evaluation_method(self) -> str:
        """The name of the evaluation method."""
        if self.definition.generation == DOCUMENTED:
            return "validation_metrics"
        has_batch = self.definition.has("evaluate_batch")
        return "evaluate_batch" if has_batch else "evaluate_full_dataset"

    @property
    def batches_of_a_step(self) -> int:
        """The number of batches per process in a step."""
        return self.hparams.optimizer_multistep_accumulate_steps or 1


def check_clipping(chosen: Mapping[str, Any], clip_grad_norm: float) -> None:
    """Checks the hyperparameters that the training loop reads.

    Args:
      chosen: chosen values, nested.
      clip_grad_norm: value in `optimizations`; 0 disables clipping.

    Raises:
      ConfigError: a value is not a positive number, or several clipping methods are chosen.
    """
    given = {f"hyperparameters.{name}": chosen.get(name) for name in (CLIP_NORM, CLIP_VALUE)}
    ways = {name: value for name, value in given.items() if value is not None}
    for name, value in ways.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(
                f"{name}: {value!r}: a positive number was expected; gradients are clipped by it. "
                "Leave it out, or set it to null, to clip none."
            )
    if clip_grad_norm:
        ways["optimizations.clip_grad_norm"] = clip_grad_norm
    if len(ways) > 1:
        raise ConfigError(f"{' and '.join(ways)} both clip gradients: keep one of them.")


class _Stateful:
    """Schedulers, scalers and callbacks of a trial as one scheduler, which nobody steps."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def state_dict(self) -> dict[str, Any]:
        """Returns the objects, whose states are stored by name."""
        context = self._context
        schedulers = {f"scheduler{i}": one.scheduler for i, one in enumerate(context.lr_schedulers)}
        scalers = {f"scaler{i}": scaler for i, scaler in enumerate(context.scalers)}
        return {**schedulers, **scalers, **context.callbacks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does nothing: the objects have their states already."""


class ContextTask(TrialTask):
    """Training and evaluation of a trial with Determined's context.

    Raises:
      TrialError: the trial's methods, or the precision, are not supported.
    """

    automatic_optimization = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hparams.activation_dtype == "float16":
            raise TrialError(
                "optimizations.mixed_precision (O1, O2, O3) or precision: float16 cannot be "
                "combined with context.step_optimizer. Call context.experimental.use_amp(), or set "
                "precision: bfloat16."
            )
        self._model: nn.Module | None = None
        if self.definition.has("build_callbacks"):
            self.context.set_callbacks(self.trial.build_callbacks())

    def model(self) -> nn.Module:
        """Returns the wrapped model, or all of them as one module."""
        if self._model is None:
            self._model = super().model()
        return self._model

    def rows_of(self, content: Any) -> int:
        """Returns the number of records in a batch, by `get_batch_length` if the trial has it."""
        if self.definition.has("get_batch_length"):
            return int(self.trial.get_batch_length(content))
        return nested.rows_of(content)

    def step(self, model: nn.Module, batch: TrialBatch) -> tuple[Tensor, dict[str, Any]]:
        """Returns the loss of a batch and its metrics, after its update.

        The loss is the metric "loss", or the first one.

        Raises:
          TrialError: no optimizer was stepped, or `train_batch` returned no metrics.
        """
        context, (number, content) = self.context, batch
        epoch, place = self.source.place(number)
        index, frequency = number // self.processes, context.aggregation_frequency
        is_last = (index + 1) % frequency == 0
        position = {
            "starts": place < self.processes,
            "ends": self.source.place(number + self.processes)[0] > epoch,
            "is_last": is_last,
        }
        with context.batch(index, epoch, **position):
            losses = self.trial.train_batch(batch=content, epoch_idx=epoch, batch_idx=index)
        if is_last and not context.updates:
            raise TrialError(
                "train_batch did not call context.step_optimizer, so nothing was trained. Call "
                "context.backward(loss) and context.step_optimizer(optimizer)."
            )
        total, what = losses, "train_batch"
        if not isinstance(losses, Tensor):
            metrics.check_metrics(losses, what, reserved=metrics.OF_THE_LOOP)
            total = losses["loss"] if "loss" in losses else next(iter(losses.values()))
        if not isinstance(total, Tensor):
            total = torch.from_numpy(metrics.as_array(total)).to(context.device)
        with torch.no_grad():
            total = metrics.total_of(total.detach().float(), what)
        return total, metrics.join_metrics(losses, {}, what)

    def evaluate(self, model: nn.Module, number: int, content: Any) -> Any:
        """Calls `evaluate_batch` or `evaluate_full_dataset` by their arguments' names."""
        method = getattr(self.trial, self.evaluation_method)
        is_full = self.evaluation_method == "evaluate_full_dataset"
        given = {"data_loader" if is_full else "batch": content}
        if not is_full and "batch_idx" in inspect.signature(method).parameters:
            given["batch_idx"] = number
        with self.context.autocast():
            return method(**given)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the wrapped optimizer, or all of them as one.

        Raises:
          TrialError: there is none, or it trains parameters of other models.
        """
        context = self.context
        if not context.optimizers:
            raise TrialError(
                f"{self.name} wraps no optimizer: call context.wrap_optimizer in __init__."
            )
        for wrapped in context.optimizers:
            metrics.check_step(wrapped, "wrap_optimizer was given")
        first, *more = context.optimizers
        self.trained_with = [type(one).__name__ for one in context.optimizers]
        optimizer = JointOptimizer(context.optimizers) if more else first
        metrics.check_optimizer(optimizer, model)
        self._keep(model, optimizer, LRScheduler(_Stateful(context)))
        context.notify("on_training_start")
        return optimizer


def model_of(
    definition: Definition, trial: Any, context: PyTorchTrialContext, chosen: Mapping[str, Any]
) -> nn.Module:
    """Returns the result of `build_model`, or the model that a trial with a context wraps.

    Several wrapped models are one module, by attribute name.

    Args:
      definition: definition of the trial.
      trial: instance of the trial class.
      context: wrapped objects.
      chosen: chosen hyperparameters.

    Raises:
      TrialError: there is none, or it has no parameters to train.
    """
    if definition.generation != CONTEXT:
        given = copy.deepcopy(dict(chosen))
        return metrics.check_model(call(trial.build_model, given, what="build_model"))
    if not context.models:
        raise TrialError(
            f"{type(trial).__name__} wraps no model: call context.wrap_model in __init__."
        )
    if len(context.models) == 1:
        return metrics.check_model(context.models[0], "wrap_model")
    names = {id(value): name for name, value in vars(trial).items()}
    return WrappedModels(
        {names.get(id(model), f"model{i}"): model for i, model in enumerate(context.models)}
    )
