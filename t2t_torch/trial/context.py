"""Context of Determined's PyTorchTrial: wrapped models and optimizers, steps, reducers, callbacks.

    class MyTrial(PyTorchTrial):
        def __init__(self, context):
            self.model = context.wrap_model(Net(context.get_hparam("hidden_size")))
            self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

        def train_batch(self, batch, epoch_idx, batch_idx):
            loss = self.model(batch)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

The trial computes gradients and updates itself; `task.py` runs it in the training loop.
Source: determined-ai/determined, harness/determined/pytorch, 0.13 to 0.38.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import inspect
import itertools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from absl import logging
from torch import Tensor, nn

from t2t_torch.distributed.network import average_gradients
from t2t_torch.distributed.process_group import World
from t2t_torch.errors import TrialError
from t2t_torch.trial import nested, pytorch_trial
from t2t_torch.trial.schedule import LRScheduler


class ContextScheduler(LRScheduler):
    """Learning rate scheduler with Determined's step modes; its `LRScheduler`.

    It has the methods of `scheduler`: `step`, `get_last_lr`, `state_dict`.

    Args:
      scheduler: scheduler of torch.
      step_mode: when `step()` is called.
      frequency: number of epochs, batches or optimizer steps between two calls.
    """

    class StepMode(enum.Enum):
        """Events after which a scheduler is stepped."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: Any, frequency: int = 1) -> None:
        mode = self.StepMode[step_mode.name]  # that of an installed package is another class
        each_epoch = mode is self.StepMode.STEP_EVERY_EPOCH
        each_batch = not each_epoch and mode is not self.StepMode.MANUAL_STEP
        super().__init__(scheduler, each_batch, each_epoch)
        self.step_mode, self.frequency = mode, frequency

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":  # before `__init__`, as in copies
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def after_batch(self, batch: int, epoch: int, *, batches_per_step: int, ends: bool) -> None:
        """Steps the scheduler after a batch, as its mode and frequency require.

        Args:
          batch: number of the batch in this process, from 0.
          epoch: number of the epoch, from 0.
          batches_per_step: batches of this process in an optimizer step.
          ends: True for the last batch of the epoch.
        """
        if self.step_mode is self.StepMode.STEP_EVERY_EPOCH:
            due = ends and (epoch + 1) % self.frequency == 0
        else:
            by_step = self.step_mode is self.StepMode.STEP_EVERY_OPTIMIZER_STEP
            period = self.frequency * (batches_per_step if by_step else 1)
            due = self.step_every_batch and (batch + 1) % period == 0
        if due:
            self.step()


class PyTorchCallback:
    """Callbacks of a trial's `build_callbacks`; every method does nothing unless overridden."""

    def on_training_start(self) -> None:
        """Called before training starts or resumes."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Called before the first batch of an epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Called after the last batch of an epoch."""

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Called after each report of training, with the means and the metrics of each batch."""

    def on_before_optimizer_step(self, parameters: Iterator[Tensor]) -> None:
        """Called before each update (0.12); the gradients may be changed in place."""

    def on_validation_start(self) -> None:
        """Called before each evaluation."""

    def on_validation_epoch_start(self) -> None:
        """Called before the batches of an evaluation."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """Called after the batches of an evaluation, with the metrics of each."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Called after each evaluation, with its metrics."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Called with the entries of `on_checkpoint_save_start` when a run resumes."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Called with a dict that takes entries for the checkpoint: numbers, texts, lists."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of this callback for a checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of a checkpoint."""


class ClipGradsL2Norm(PyTorchCallback):
    """Clips the gradients by their L2 norm before each update (0.12)."""

    def __init__(self, clipping_threshold: float) -> None:
        self._threshold = clipping_threshold

    def on_before_optimizer_step(self, parameters: Iterator[Tensor]) -> None:
        """Clips the gradients in place."""
        nn.utils.clip_grad_norm_(parameters, self._threshold)


class ClipGradsL2Value(ClipGradsL2Norm):
    """Clips each number of the gradients before each update (0.12)."""

    def on_before_optimizer_step(self, parameters: Iterator[Tensor]) -> None:
        """Clips the gradients in place."""
        nn.utils.clip_grad_value_(parameters, self._threshold)


UNCALLED = (
    "on_trial_startup on_trial_shutdown on_checkpoint_end on_checkpoint_write_end "
    "on_checkpoint_upload_end"
).split()
"""Callbacks about a cluster and its storage, which are not called."""


class MetricReducer(ABC):
    """Metric that is computed from the values of all processes."""

    @abstractmethod
    def reset(self) -> None:
        """Drops all values."""

    @abstractmethod
    def per_slot_reduce(self) -> Any:
        """Returns the contribution of this process."""

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Returns the metric, or a dict of metrics, from the contributions of all processes."""


class SimpleReducer(MetricReducer):
    """Metric that a function computes from the list of all values.

    Args:
      fn: function of the values of all processes.
    """

    def __init__(self, fn: Callable[[list[Any]], Any]) -> None:
        self.fn = fn
        self.values: list[Any] = []

    def update(self, value: Any) -> None:
        """Adds a value, usually one for each batch."""
        self.values.append(value)

    def reset(self) -> None:
        """Drops all values."""
        self.values = []

    def per_slot_reduce(self) -> Any:
        """Returns the values of this process."""
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Returns the result of the function, for the values in the order of the batches."""
        batches = itertools.zip_longest(*per_slot_metrics, fillvalue=self)  # self: no batch
        return self.fn([value for value in itertools.chain(*batches) if value is not self])


class Reducers:
    """The reducers of a trial.

    Attributes:
      all: all reducers.
      of_training: reducers of training, with the names of their metrics.
      of_validation: reducers of validation, with the names of their metrics.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.of_training: list[tuple[Any, str | None]] = []
        self.of_validation: list[tuple[Any, str | None]] = []

    def states(self) -> list[dict[str, Any]]:
        """Returns copies of the values, for `restore`."""
        return [copy.deepcopy(vars(reducer)) for reducer in self.all]

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Restores the values of training after a validation."""
        for reducer, state in zip(self.all, states, strict=True):
            vars(reducer).clear()
            vars(reducer).update(state)


def reduce_metrics(reducers: Sequence[tuple[Any, str | None]], world: World) -> dict[str, Any]:
    """Returns the metrics of reducers over all processes; a collective call.

    Args:
      reducers: reducers with the names of their metrics; None: the reducer returns a dict.
      world: the processes that train together.

    Raises:
      TrialError: a reducer without a name returned no dict, or one with a name a dict.
    """
    metrics: dict[str, Any] = {}
    if not reducers:
        return metrics
    slots = world.gather([reducer.per_slot_reduce() for reducer, _ in reducers])
    for (reducer, name), values in zip(reducers, zip(*slots, strict=True), strict=True):
        value = reducer.cross_slot_reduce(list(values))
        if isinstance(value, Mapping) is not (name is None):
            fn = getattr(reducer, "fn", type(reducer))
            raise TrialError(
                f"The reducer {getattr(fn, '__name__', fn)} returned a {type(value).__name__}. "
                "With wrap_reducer(..., name=...) it returns one metric, without a name a dict."
            )
        metrics.update({name: value} if name is not None else value)
    return metrics


class DistributedContext:
    """Number and count of the training processes, under Determined's names.

    Args:
      world: the processes that train together.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.rank, self.size = world.rank, world.size
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.cross_rank = self.rank // self.local_size
        self.cross_size = self.size // self.local_size

    def get_rank(self) -> int:
        """Returns the number of this process, from 0."""
        return self.rank

    def get_local_rank(self) -> int:
        """Returns the number of this process on its machine, from 0."""
        return self.local_rank

    def get_size(self) -> int:
        """Returns the number of processes."""
        return self.size

    def get_num_agents(self) -> int:
        """Returns the number of machines."""
        return self.cross_size

    def allgather(self, stuff: Any) -> list[Any]:
        """Returns the values of all processes, in all of them."""
        return self._world.gather(stuff)

    def gather(self, stuff: Any) -> list[Any] | None:
        """Returns the values of all processes in process 0, and None in the others."""
        values = self._world.gather(stuff)
        return values if self.rank == 0 else None

    def broadcast(self, stuff: Any) -> Any:
        """Returns the value of process 0."""
        return self._world.gather(stuff)[0]


class ExperimentalContext:
    """`context.experimental`: automatic mixed precision and checks of the data.

    Attributes:
      uses_amp: whether `use_amp` was called, and a GPU computes.
      moves_batches: whether batches are moved to the device before the trial receives them.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.uses_amp = False
        self.moves_batches = True

    def use_amp(self) -> None:
        """Computes in float16 with a gradient scaler on a GPU; a CPU computes in float32."""
        if self._context.device.type != "cuda":
            logging.info("context.experimental.use_amp() has no effect on a CPU: float32 is used.")
            return
        self._context.wrap_scaler(torch.amp.GradScaler("cuda"))
        self.uses_amp = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accepted without effect: any loader may be returned."""

    def disable_auto_to_device(self) -> None:
        """Leaves batches where the loader puts them."""
        self.moves_batches = False


class PyTorchTrialContext:
    """Context of a trial: settings, wrapped objects, position in training, updates.

    Attributes:
      device: device of the models.
      distributed: number and count of the processes.
      experimental: mixed precision and checks.
      models: wrapped models.
      optimizers: wrapped optimizers.
      lr_schedulers: wrapped schedulers.
      scalers: wrapped gradient scalers.
      reducers: wrapped metrics.
      callbacks: result of `build_callbacks`, by name.
      norm: [], the gradient norm over the updates of the last step; NaN or infinity if one of them
        was skipped.
      updates: number of `step_optimizer` calls of the last step.

    Args:
      world: the processes that train together.
      aggregation_frequency: batches of this process in an optimizer step.
      averages: whether the gradients of a step's batches are averaged instead of summed.
      clip_grad_norm: maximum norm of the gradients of an update; 0: no limit.
    """

    def __init__(
        self,
        world: World,
        *,
        aggregation_frequency: int = 1,
        averages: bool = True,
        clip_grad_norm: float = 0.0,
    ) -> None:
        self._world = world
        self._averages = averages
        self._clip_grad_norm = clip_grad_norm
        self.aggregation_frequency = aggregation_frequency
        self.device = world.device
        self.distributed = DistributedContext(world)
        self.experimental = ExperimentalContext(self)
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[ContextScheduler] = []
        self.scalers: list[Any] = []
        self.reducers = Reducers()
        self.callbacks: dict[str, Any] = {}
        self.norm = torch.zeros([])
        self.updates = 0
        self._losses = torch.zeros([])  # sum over the step
        self._epoch = self._batch = 0
        self._starts = self._ends = self._is_training = False
        self._is_last = True
        self._tensorboard: Any = None

    get_hparam = staticmethod(pytorch_trial.get_hyperparameter)
    get_hparams = staticmethod(pytorch_trial.get_hyperparameters)
    get_data_config = staticmethod(pytorch_trial.get_data_config)
    get_experiment_config = staticmethod(pytorch_trial.get_experiment_config)
    get_experiment_id = staticmethod(pytorch_trial.get_experiment_id)
    get_trial_id = staticmethod(pytorch_trial.get_trial_id)

    def get_trial_seed(self) -> int:
        """Returns the seed of the experiment."""
        return int(self.get_experiment_config()["reproducibility"]["experiment_seed"])

    def get_global_batch_size(self) -> int:
        """Returns the number of records in a batch of all processes.

        Raises:
          TrialError: the configuration has no hyperparameter global_batch_size.
        """
        return int(self.get_hparam("global_batch_size"))

    def get_per_slot_batch_size(self) -> int:
        """Returns the number of records in a batch of one process.

        Raises:
          TrialError: the configuration has no hyperparameter global_batch_size.
        """
        return self.get_global_batch_size() // self.distributed.size

    def wrap_model(self, model: nn.Module) -> nn.Module:
        """Registers a model and moves it to the device; returns it."""
        model = model.to(self.device)
        if not any(model is other for other in self.models):
            self.models.append(model)
        return model

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        backward_passes_per_step: int = 1,
        fp16_compression: bool = False,
        average_aggregated_gradients: bool = True,
    ) -> torch.optim.Optimizer:
        """Registers an optimizer of wrapped models; returns it.

        The other arguments, of Determined up to 0.13, have no effect.
        """
        if not any(optimizer is other for other in self.optimizers):
            self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: Any, step_mode: Any, frequency: int = 1
    ) -> ContextScheduler:
        """Registers a scheduler of a wrapped optimizer; returns it with its step mode.

        Raises:
          TrialError: the scheduler or its step mode is invalid.
        """
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and all(optimizer is not known for known in self.optimizers):
            raise TrialError(
                f"wrap_lr_scheduler was given a {type(lr_scheduler).__name__} of an optimizer that "
                "is not wrapped. Call context.wrap_optimizer first, and give the scheduler the "
                "result."
            )
        wrapped = ContextScheduler(lr_scheduler, step_mode, frequency)
        self.lr_schedulers.append(wrapped)
        return wrapped

    def wrap_scaler(self, scaler: Any) -> Any:
        """Registers a gradient scaler; returns it. On a CPU torch's scaler does nothing."""
        self.scalers.append(scaler)
        return scaler

    def wrap_reducer(
        self,
        reducer: Any,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Any:
        """Registers a metric that is no mean over batches; returns its `MetricReducer`.

        Args:
          reducer: a `MetricReducer`, or a function of the list of all values.
          name: name of the metric; None: the reducer returns a dict.
          for_training: whether training reports it.
          for_validation: whether validation reports it.
        """
        if not callable(getattr(reducer, "per_slot_reduce", None)):
            reducer = SimpleReducer(reducer)
        self.reducers.all.append(reducer)
        if for_training:
            self.reducers.of_training.append((reducer, name))
        if for_validation:
            self.reducers.of_validation.append((reducer, name))
        return reducer

    def autocast_forward_pass(self, to_wrap: nn.Module) -> nn.Module:
        """Lets a model compute in float16 on a GPU; a CPU computes in float32."""
        if self.device.type == "cuda":
            forward: Any = torch.autocast("cuda", torch.float16)(to_wrap.forward)
            to_wrap.forward = forward
        return to_wrap

    def configure_apex_amp(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an error: apex is not supported.

        Raises:
          TrialError: always.
        """
        raise TrialError(
            "context.configure_apex_amp: apex is not supported. Call "
            "context.experimental.use_amp() instead, or set optimizations.precision: bfloat16."
        )

    def set_profiler(self, *_: Any, **__: Any) -> None:
        """Accepted without effect, with a warning: t2t-trainer --profile records a profile."""
        logging.warning("context.set_profiler has no effect.")

    def to_device(self, data: Any) -> Any:
        """Returns a nested batch on the device."""
        return nested.to_device(data, self.device)

    def get_tensorboard_path(self) -> Path:
        """Returns the directory of the trial's own TensorBoard events."""
        return TorchWriter.path()

    def get_tensorboard_writer(self) -> Any:
        """Returns torch's `SummaryWriter`, created at its first use."""
        self._tensorboard = self._tensorboard or TorchWriter().writer
        return self._tensorboard

    def current_train_epoch(self) -> int:
        """Returns the number of the epoch, from 0."""
        return self._epoch

    def current_train_batch(self) -> int:
        """Returns the number of the batch in this process, from 0."""
        return self._batch

    def is_epoch_start(self) -> bool:
        """Returns True for the first batch of an epoch."""
        return self._starts

    def is_epoch_end(self) -> bool:
        """Returns True for the last batch of an epoch."""
        return self._ends

    def get_stop_requested(self) -> bool:
        """Returns False: the loop stops a run after the step, without the trial."""
        return False

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Raises an error if a stop is requested: a trial cannot end its run.

        Raises:
          TrialError: `stop_requested` is True.
        """
        if stop_requested:
            raise TrialError(
                "context.set_stop_requested(True) is not supported. End training by a metric with "
                "--eval_early_stopping_steps, or raise determined.InvalidHP."
            )

    @contextlib.contextmanager
    def batch(
        self, batch: int, epoch: int, *, starts: bool, ends: bool, is_last: bool
    ) -> Iterator[None]:
        """Sets the position for a call of `train_batch`.

        Args:
          batch: number of the batch in this process, from 0.
          epoch: number of the epoch, from 0.
          starts: True for the first batch of the epoch.
          ends: True for the last batch of the epoch.
          is_last: True for the last batch of an optimizer step.
        """
        self._batch, self._epoch, self._is_last = batch, epoch, is_last
        self._starts, self._ends, self._is_training = starts, ends, True
        if (batch + 1) % self.aggregation_frequency == 1 % self.aggregation_frequency:
            self.norm, self.updates = torch.zeros([], device=self.device), 0
            self._losses = torch.zeros([], device=self.device)
        if starts:
            self.notify("on_training_epoch_start", epoch)
        try:
            with self.autocast():
                yield
        finally:
            self._is_training = False
        if self.experimental.uses_amp and is_last:
            self.scalers[0].update()
        for scheduler in self.lr_schedulers:
            scheduler.after_batch(
                batch, epoch, batches_per_step=self.aggregation_frequency, ends=ends
            )
        if ends:
            self.notify("on_training_epoch_end", epoch)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context of a forward pass."""
        if self.experimental.uses_amp:
            return torch.autocast("cuda", torch.float16)
        return contextlib.nullcontext()

    def backward(self, loss: Tensor, *arguments: Any, **named: Any) -> None:
        """Computes the gradients of a loss, with the arguments of `Tensor.backward`.

        Raises:
          TrialError: it is called outside of `train_batch`.
        """
        if not self._is_training:
            raise TrialError("context.backward was called outside of train_batch.")
        self._losses += loss.detach().sum().to(self._losses)
        if self.experimental.uses_amp:
            loss = self.scalers[0].scale(loss)
        loss.backward(*arguments, **named)  # type: ignore[no-untyped-call]

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Any], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Updates the parameters of an optimizer; does nothing before the last batch of a step.

        Gradients are averaged over processes. An update without a scaler is skipped if a
        loss or a gradient of the step is not finite.

        Args:
          optimizer: result of `wrap_optimizer`.
          clip_grads: function that clips the gradients of the parameters it is given.
          auto_zero_grads: whether to clear the gradients afterwards.
          scaler: scaler of the losses, if the trial scales them itself.

        Raises:
          TrialError: the optimizer is not wrapped; or gradients of several batches are accumulated
            without being cleared.
        """
        if all(optimizer is not known for known in self.optimizers):
            raise TrialError(
                f"step_optimizer was given a {type(optimizer).__name__} that is not wrapped: call "
                "context.wrap_optimizer in __init__."
            )
        if self.aggregation_frequency > 1 and not auto_zero_grads:
            raise TrialError(
                "step_optimizer(auto_zero_grads=False) cannot be combined with "
                f"optimizations.aggregation_frequency: {self.aggregation_frequency}."
            )
        if not self._is_last:
            return
        held = nn.ParameterList(p for group in optimizer.param_groups for p in group["params"])
        if self._world.size > 1:
            average_gradients(held, self._world.size)
        parameters = [p for p in held if p.grad is not None]
        if self._averages and self.aggregation_frequency > 1:
            for parameter in parameters:
                parameter.grad.div_(self.aggregation_frequency)
        if scaler is None and self.experimental.uses_amp:
            scaler = self.scalers[0]
        if scaler is not None and clip_grads is not None and self.experimental.uses_amp:
            scaler.unscale_(optimizer)
        self.notify("on_before_optimizer_step", parameters)
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads) if grads else torch.zeros([])
        if self._clip_grad_norm:
            nn.utils.clip_grad_norm_(parameters, self._clip_grad_norm)
        if clip_grads is not None:
            clip_grads(list(held))
        if scaler is not None:
            scaler.step(optimizer)
        elif bool((norm + self._losses).isfinite()):
            optimizer.step()
        self.norm = torch.hypot(self.norm, norm.detach().to(self.norm))
        self.updates += 1
        if auto_zero_grads:
            optimizer.zero_grad()

    def notify(self, event: str, *arguments: Any) -> None:
        """Calls a method of all callbacks that have it."""
        for callback in self.callbacks.values():
            method = getattr(callback, event, None)
            if method is None:
                continue
            if event == "on_training_epoch_start" and not inspect.signature(method).parameters:
                method()  # before 0.14
            else:
                method(*arguments)

    def set_callbacks(self, callbacks: Any) -> None:
        """Takes the result of `build_callbacks`; warns about callbacks that are not called."""
        self.callbacks = {str(name): callback for name, callback in callbacks.items()}
        for name, callback in self.callbacks.items():
            if unused := [event for event in UNCALLED if hasattr(callback, event)]:
                logging.warning("The callback %s has %s: not called.", name, ", ".join(unused))


class _LazyWriter:
    """`SummaryWriter` that creates its files at the first call of a method."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # a second to import

            self._writer = SummaryWriter(str(self._path))
        return getattr(self._writer, name)


class TorchWriter:
    """TensorBoard writer of Determined's trials up to 0.26.

    Attributes:
      writer: torch's `SummaryWriter`, created at its first use.
    """

    def __init__(self) -> None:
        self.writer = _LazyWriter(self.path())

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        """Writes a number."""
        self.writer.add_scalar(name, value, step)

    def reset(self) -> None:
        """Flushes the events."""
        self.writer.flush()

    @staticmethod
    def path() -> Path:
        """Returns the directory of the trial's own TensorBoard events."""
        run = pytorch_trial.get_run_directory()
        return (run or Path(tempfile.gettempdir()) / f"t2t_torch-{os.getuid()}") / "trial"


class WrappedModels(nn.ModuleDict):
    """Several models of one trial, by the names of the trial's attributes."""

    def forward(self, *_: Any, **__: Any) -> NoReturn:
        """Raises an error: several models have no common output.

        Raises:
          TrialError: always.
        """
        raise TrialError(
            f"The trial wraps several models ({', '.join(self)}), so there is no single model to "
            "decode with or to export. Load one of them from model.safetensors of the checkpoint."
        )


class JointOptimizer(torch.optim.Optimizer):
    """Several optimizers of one trial: one state for checkpoints, updated one by one.

    Args:
      optimizers: optimizers of different parameters.

    Raises:
      ValueError: two optimizers train the same parameter.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = tuple(optimizers)
        super().__init__([group for one in optimizers for group in one.param_groups], {})
        for one in self.optimizers:
            self.state.update(one.state)
        self._share()

    def _share(self) -> None:
        for one in self.optimizers:
            one.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state into all optimizers."""
        groups = [group for one in self.optimizers for group in one.param_groups]
        super().load_state_dict(state_dict)
        for own, loaded in zip(groups, self.param_groups, strict=True):
            own.update(loaded)
        self.param_groups = groups
        self._share()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Raises an error: the trial steps its optimizers.

        Raises:
          TrialError: always.
        """
        raise TrialError("The optimizers of a trial are stepped by context.step_optimizer.")
