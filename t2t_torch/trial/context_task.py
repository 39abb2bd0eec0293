"""Task of a trial with Determined's context, which computes gradients and updates itself."""

from __future__ import annotations

import inspect
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.loss import Loss
from t2t_torch.model import Output
from t2t_torch.trial import nested
from t2t_torch.trial.attribute_state import AttributeState
from t2t_torch.trial.batches import TrialBatch
from t2t_torch.trial.context import JointOptimizer, PyTorchTrialContext, WrappedModels
from t2t_torch.trial.metrics import (
    OF_THE_LOOP,
    MetricAverages,
    as_array,
    check_metrics,
    check_model,
    check_optimizer,
    check_step,
    join_metrics,
    total_of,
)
from t2t_torch.trial.pytorch_trial import reducers_of
from t2t_torch.trial.schedule import NOT_PLAIN, LRScheduler, Schedule, from_plain, to_plain
from t2t_torch.trial.task import TrialBatches, TrialEvaluator, TrialObjective, TrialState, TrialTask

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import TrainerState
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.trial.definition import Definition

_GRADIENT = "gradient_of_model/"
"""Prefix of gradients that a trial keeps after a step, in the tensors of a checkpoint."""


class ContextBatches(TrialBatches):
    """Batches that stay where they are if the trial moves them itself."""

    def to_device(self, batch: TrialBatch, device: torch.device) -> TrialBatch:
        """Returns the batch on the model's device."""
        assert isinstance(self._task, ContextTask)
        moves = self._task.context.experimental.moves_batches
        return super().to_device(batch, device) if moves else batch


class ContextObjective(TrialObjective):
    """Calls `train_batch`, which also updates the weights."""

    _task: ContextTask

    def forward(self, batch: TrialBatch) -> Output:
        """Returns the loss that `train_batch` reports, without a graph.

        Raises:
          TrialError: no optimizer was stepped.
        """
        task, context = self._task, self._task.context
        random.seed(torch.initial_seed())  # as in `TrialObjective`
        np.random.seed(torch.initial_seed() % 2**32)
        assert task.source is not None
        number, content = batch
        epoch, place = task.source.place(number)
        index, frequency = number // task.processes, context.aggregation_frequency
        is_last = (index + 1) % frequency == 0
        position = {
            "starts": place < task.processes,
            "ends": task.source.place(number + task.processes)[0] > epoch,
            "is_last": is_last,
        }
        with context.batch(index, epoch, **position):
            result = task.trial.train_batch(batch=content, epoch_idx=epoch, batch_idx=index)
        if is_last and not context.updates:
            raise TrialError(
                "train_batch did not call context.step_optimizer, so nothing was trained. Call "
                "context.backward(loss) and context.step_optimizer(optimizer)."
            )
        with torch.no_grad():
            total = self._total(result)
        metrics = result if isinstance(result, dict) else {"loss": result}
        joined = join_metrics(metrics, {}, "train_batch")
        task.state.training.add(joined)
        task.state.note(joined)
        if task.averages:
            total = total / task.batches_of_a_step
        weight = torch.tensor(float(max(task.rows_of(content), 1)), device=total.device)
        return Output({}, {"loss": Loss(total, weight)})

    def _total(self, result: Any) -> Tensor:
        """Returns the loss of a batch, []: the metric "loss", or the first number.

        Raises:
          TrialError: `train_batch` returned no metrics.
        """
        if not isinstance(result, dict | Tensor) or (isinstance(result, dict) and not result):
            kind = "nothing" if result is None or result == {} else f"a {type(result).__name__}"
            raise TrialError(
                f"train_batch returned {kind}; a dict of metrics such as {{'loss': loss}} was "
                "expected. Is a return missing?"
            )
        if isinstance(result, dict):
            check_metrics(result, "train_batch", reserved=OF_THE_LOOP)
            result = result["loss"] if "loss" in result else next(iter(result.values()))
        if not isinstance(result, Tensor):
            result = torch.from_numpy(as_array(result)).to(self._task.context.device)
        return total_of(result.detach().float(), "train_batch").reshape(())


class ContextMetrics(MetricAverages):
    """Means over batches, and the metrics of the trial's reducers.

    Attributes:
      reduced: metrics of the reducers, known after the last batch.
      outputs: metrics of each batch, for `on_validation_epoch_end`.
    """

    def __init__(self, what: str, context: PyTorchTrialContext, reducers: Any) -> None:
        super().__init__(what, reducers)
        self._context = context
        self.reduced: dict[str, Any] = {}
        self.outputs: list[Any] = []

    def update(self, metrics: Any, batch: object = None) -> None:
        """Adds a batch's metrics, which may be empty if there are reducers."""
        if metrics or not self._context.reducers.of(training=False):
            super().update(metrics, batch)
        self.outputs.append(metrics)

    def _means(self) -> dict[str, Any]:
        only_reduced = self.reduced and len(self.sums) == 1
        means = {} if only_reduced else super()._means()
        return means | {name: as_array(value) for name, value in self.reduced.items()}


class ContextEvaluator(TrialEvaluator):
    """Calls `evaluate_batch` or `evaluate_full_dataset` by their arguments' names."""

    _task: ContextTask

    def __init__(self, task: ContextTask) -> None:
        super().__init__(task)
        self.metrics = ContextMetrics(task.evaluation_method, task.context, reducers_of(task.trial))
        self._of_training = task.context.reducers.states()
        task.context.reducers.reset(training=False)
        task.context.notify("on_validation_start")
        task.context.notify("on_validation_epoch_start")

    def _output(self, model: nn.Module, number: int, content: Any) -> Any:
        trial = self._task.trial
        with self._task.context.autocast():
            if self._task.evaluation_method == "evaluate_full_dataset":
                return trial.evaluate_full_dataset(data_loader=content)
            if "batch_idx" in inspect.signature(trial.evaluate_batch).parameters:
                return trial.evaluate_batch(batch=content, batch_idx=number)
            return trial.evaluate_batch(batch=content)

    def synchronize(self, world: World) -> None:
        """Sums over all processes, reduces the trial's own metrics and calls its callbacks."""
        context = self._task.context
        self.metrics.reduced = context.reducers.result(world, training=False)
        context.reducers.restore(self._of_training)
        if self.metrics.reduced:
            check_metrics(self.metrics.reduced, "wrap_reducer")
        super().synchronize(world)
        context.notify("on_validation_epoch_end", self.metrics.outputs)
        context.notify("on_validation_end", {**self.metrics.result(), **self.metrics.arrays()})
        if self._task.state.schedule is not None:  # callbacks may step a scheduler
            self._task.state.schedule.follow_leader(world)


class _Stateful:
    """Schedulers, scalers and callbacks of a trial as one scheduler."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def step(self) -> None:
        """Does nothing: the context steps its schedulers."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the objects, whose states are stored by name."""
        context = self._context
        schedulers = {f"scheduler{i}": one.scheduler for i, one in enumerate(context.lr_schedulers)}
        scalers = {f"scaler{i}": scaler for i, scaler in enumerate(context.scalers)}
        return {**schedulers, **scalers, **context.callbacks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does nothing: the objects have their states already."""


class ContextState(TrialState):
    """Schedulers, scalers, callbacks, attributes and metrics of a trial."""

    _task: ContextTask

    def __init__(self, task: ContextTask) -> None:
        super().__init__(task)
        self._batch_metrics: list[dict[str, Any]] = []
        self._gradients: dict[str, Tensor] = {}

    def note(self, metrics: dict[str, Any]) -> None:
        """Keeps a batch's metrics for callbacks that take them."""
        if self._task.context.callbacks:
            self._batch_metrics.append(metrics)

    def after_update(
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Checks once that the trial's attributes can be stored."""
        if self.attributes is not None and not self._is_checked:
            self.attributes.check()
            self._is_checked = True

    def gradient_norm(self) -> Tensor:
        """Returns the gradient norm of the updates in the last step, []."""
        return self._task.context.norm

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns the means of the metrics, and the metrics of the trial's reducers."""
        numbers, arrays = super().report(world)
        reducers = self._task.context.reducers
        for name, value in reducers.result(world, training=True).items():
            array = as_array(value)
            if array.size == 1:
                numbers[name] = array.item()
            else:
                arrays[name] = torch.from_numpy(array)
        reducers.reset(training=True)
        self._task.context.notify("on_training_workload_end", dict(numbers), self._batch_metrics)
        self._batch_metrics = []
        return numbers, arrays

    def save(self, world: World) -> dict[str, Any]:
        """Returns the state of `TrialState`, and the entries of `on_checkpoint_save_start`.

        Raises:
          TrialError: an entry has no JSON form.
        """
        state = super().save(world)
        entries: dict[str, Any] = {}
        self._task.context.notify("on_checkpoint_save_start", entries)
        plain = to_plain(entries)
        if plain is NOT_PLAIN:
            raise TrialError(
                "on_checkpoint_save_start added an entry that a checkpoint cannot hold: "
                f"{', '.join(entries)}. Numbers, texts, tensors, lists and dicts were expected."
            )
        named = self._task.context_model().named_parameters()
        kept = {n: p.grad.detach().clone() for n, p in named if p.grad is not None}
        self._gradients = {f"{_GRADIENT}{name}": gradient for name, gradient in kept.items()}
        return {**state, "entries": plain} if entries else state

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors of the attributes, and gradients that the trial has not cleared."""
        return {**super().tensors(), **self._gradients}

    def restore(self, state: dict[str, Any], tensors: Mapping[str, Tensor], world: World) -> None:
        """Restores the result of `save`."""
        if "entries" in state:
            entries = from_plain({}, state["entries"])
            self._task.context.notify("on_checkpoint_load_start", entries)
        super().restore(state, tensors, world)
        for name, parameter in self._task.context_model().named_parameters():
            if f"{_GRADIENT}{name}" in tensors:
                parameter.grad = tensors[f"{_GRADIENT}{name}"].to(parameter, copy=True)


class ContextTask(TrialTask):
    """Training and evaluation of a trial with Determined's context.

    Attributes:
      context: context of the trial.

    Args:
      definition: imported definition of the trial.
      trial: instance of the trial class.
      loaders: training and validation loaders.
      context: context that the trial was created with.
      chosen: chosen hyperparameters.
      settings: settings of the loop.
      averages: whether the gradients of a step's batches are averaged instead of summed.
      metric: evaluation metric that selects the best checkpoint; None: no selection.

    Raises:
      TrialError: the trial's methods, or the precision, are not supported.
    """

    automatic_optimization = False

    def __init__(
        self,
        definition: Definition,
        trial: Any,
        loaders: tuple[Any, Any],
        *,
        context: PyTorchTrialContext,
        chosen: Mapping[str, Any],
        settings: HParams,
        averages: bool = True,
        metric: str | None = None,
    ) -> None:
        if settings.activation_dtype == "float16":
            raise TrialError(
                "optimizations.mixed_precision (O1, O2, O3) or precision: float16 cannot be "
                "combined with context.step_optimizer. Call context.experimental.use_amp(), or set "
                "precision: bfloat16."
            )
        super().__init__(
            definition,
            trial,
            loaders,
            chosen=chosen,
            settings=settings,
            averages=averages,
            metric=metric,
        )
        self.context = context
        self.batches = ContextBatches(self)
        self.state: ContextState = ContextState(self)
        self._model: nn.Module | None = None
        _check_signature(trial.train_batch, "train_batch", "batch", "epoch_idx", "batch_idx")
        if definition.has("build_callbacks"):
            context.set_callbacks(trial.build_callbacks())

    def context_model(self) -> nn.Module:
        """Returns the wrapped model, or all of them as one module."""
        if self._model is None:
            self._model = model_of(self.trial, self.context)
        return self._model

    model = context_model

    def rows_of(self, content: Any) -> int:
        """Returns the number of records in a batch, by `get_batch_length` if the trial has it."""
        if self.definition.has("get_batch_length"):
            return int(self.trial.get_batch_length(content))
        return nested.rows_of(content)

    def objective(self, model: nn.Module) -> ContextObjective:
        """Returns the module that calls `train_batch`."""
        return ContextObjective(self, model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the wrapped optimizer, or all of them as one.

        Raises:
          TrialError: there is none, or it trains parameters of other models.
        """
        context, spec = self.context, self.definition.spec
        if not context.optimizers:
            raise TrialError(
                f"{self.name} wraps no optimizer: call context.wrap_optimizer in __init__."
            )
        for wrapped in context.optimizers:
            check_step(wrapped, "wrap_optimizer was given")
        first, *more = context.optimizers
        self.trained_with = [type(one).__name__ for one in context.optimizers]
        optimizer = JointOptimizer(context.optimizers) if more else first
        check_optimizer(optimizer, model)
        schedule = Schedule(optimizer, LRScheduler(_Stateful(context)), self.trial, spec)
        known = [
            *(one.scheduler for one in context.lr_schedulers),
            *context.lr_schedulers,
            *context.optimizers,
            *context.scalers,
            *context.callbacks.values(),
            *context.reducers,
        ]
        self.state.schedule = schedule
        self.state.attributes = AttributeState(self.trial, model, optimizer, known, spec)
        context.notify("on_training_start")
        return optimizer

    def evaluator(self) -> ContextEvaluator:
        """Returns a new evaluator."""
        return ContextEvaluator(self)


def model_of(trial: Any, context: PyTorchTrialContext) -> nn.Module:
    """Returns the wrapped model of a trial, or all of them as one module, by attribute name.

    Raises:
      TrialError: there is none, or it has no parameters to train.
    """
    if not context.models:
        raise TrialError(
            f"{type(trial).__name__} wraps no model: call context.wrap_model in __init__."
        )
    if len(context.models) == 1:
        return check_model(context.models[0], "wrap_model")
    names = {id(value): name for name, value in vars(trial).items()}
    return WrappedModels(
        {names.get(id(model), f"model{i}"): model for i, model in enumerate(context.models)}
    )


def _check_signature(method: Any, name: str, *arguments: str) -> None:
    try:
        inspect.signature(method).bind(**dict.fromkeys(arguments))
    except TypeError as error:
        raise TrialError(
            f"{name} must accept the arguments {', '.join(arguments)} by name: {error}."
        ) from None
