"""Contract: a task, which is what can be trained; its batches, its statistics, and hooks."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from t2t_torch.checkpoint.checkpoint import SinceReport, TrainerState
from t2t_torch.modality import Loss
from t2t_torch.mode import Split

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.model import Output
    from t2t_torch.pipeline.plan import PlanReport
    from t2t_torch.train.estimator import Estimator, TrainState
    from t2t_torch.train.problem_task import Origin


# Batches, and what the loop does with them.


Batch = dict[str, Tensor]
"""The rows of each feature, and of its annotations, by name."""


class BatchAdapter:
    """How the batches of a task are moved, split and weighed; here `Batch`es.

    Attributes:
      paddings: what fills up each text-like sequence, `pipeline.lengths.paddings`: padding is
        counted by them.  Without any a position is a row.

    Args:
      paddings: see above.
    """

    def __init__(self, paddings: Mapping[str, int] | None = None) -> None:
        self.paddings = dict(paddings or {})

    def to_device(self, batch: Any, device: torch.device) -> Any:
        """Returns the batch where the model computes."""
        return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}

    def rows_of(self, batch: Any) -> int:
        """Returns how many pieces a batch can be split into: its rows."""
        return len(next(iter(batch.values())))

    def split(self, batch: Any, pieces: int) -> list[Any]:
        """Splits a batch into at most so many pieces, of about as many rows each."""
        if pieces == 1:
            return [batch]
        names = list(batch)
        chunks = [batch[name].chunk(pieces) for name in names]
        return [dict(zip(names, parts, strict=True)) for parts in zip(*chunks, strict=True)]

    def tensors(self, batch: Any) -> dict[str, Tensor]:
        """Returns the tensors of a batch by name: messages and crash reports list them."""
        return dict(batch)

    def totals(self, loss: Loss, batch: Any) -> Tensor:
        """Returns [loss, weight, positions that hold data, positions] of a batch, [4] float64.

        Such totals add up over micro-batches and processes.

        Args:
          loss: of the batch.
          batch: on the device.
        """
        device = loss.weight.device
        paddings = {name: self.paddings[name] for name in self.paddings if name in batch}
        filled = torch.zeros([], dtype=torch.int64, device=device)
        for name, padding in paddings.items():
            filled += torch.count_nonzero(batch[name] != padding)
        positions = sum(batch[name].numel() for name in paddings)
        if not paddings:
            positions = self.rows_of(batch)
            filled += positions
        sizes = [filled, torch.full([], positions, device=device)]
        totals = [loss.sum.detach(), loss.weight, *sizes]
        return torch.stack([total.to(torch.float64) for total in totals])

    def divisor(self, totals: Tensor, processes: int) -> Tensor:
        """Returns what a step's summed gradients are divided by, []: the weight of its loss.

        Args:
          totals: of the step, over all processes, [4].
          processes: whose gradients are summed.
        """
        return totals[1]


# What happened since the last report, kept on the device so that no step waits for a number.


class TrainMeter:
    """Sums over the steps since the last report; steps that were skipped are only counted.

    What is counted goes into checkpoints: reports are those of a run that never stopped.

    Args:
      device: where the losses are.
      state: where the run stands.
    """

    def __init__(self, device: torch.device, state: TrainerState | None = None) -> None:
        state = state or TrainerState()
        since = state.since_report
        self._device = device
        self._tokens = torch.full([], state.tokens, dtype=torch.float64, device=device)
        self._skipped = torch.full([], state.skipped, dtype=torch.int64, device=device)
        self._in_a_row = torch.full([], state.skipped_in_a_row, dtype=torch.int64, device=device)
        self._on_the_way: tuple[Tensor, torch.cuda.Event] | None = None
        self._sums = torch.tensor(since.sums, dtype=torch.float64, device=device)
        norm = math.nan if since.grad_norm is None else since.grad_norm
        self._norm = torch.full([], norm, device=device)
        self._skipped_before = state.skipped - since.skipped  # at the last report
        self._steps = since.steps
        self._not_timed = since.sums[1], since.steps  # weight and steps of a process before
        self._seconds = 0.0
        self._since: float | None = None

    @property
    def steps(self) -> int:
        """Steps since the last report."""
        return self._steps

    def start_clock(self) -> None:
        """Training begins, or goes on after something else was done."""
        self._since = time.monotonic()

    def stop_clock(self) -> None:
        """Something else is done now that does not count for the speed of training."""
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = None

    def add(self, totals: Tensor, norm: Tensor) -> None:
        """Adds a step.

        Args:
          totals: of `BatchAdapter.totals`, summed over the step, [4].
          norm: of the gradient, [].
        """
        finite = (norm + totals[0]).isfinite()
        totals = torch.where(finite, totals, 0.0)
        self._sums += totals
        self._tokens += totals[1]
        self._norm = torch.where(finite, norm, self._norm)
        self._steps += 1
        self._skipped += ~finite
        self._in_a_row = torch.where(finite, 0, self._in_a_row + 1)

    def skipped_in_a_row(self) -> int:
        """Returns how many steps were skipped, one after another, up to the last.

        On a GPU up to the one before: that is known without waiting for the device.
        """
        if not self.is_late:
            return int(self._in_a_row)
        before, event = self._on_the_way, torch.cuda.Event()  # type: ignore[no-untyped-call]
        # Pinned: else the copy itself would wait for the device.
        copy = torch.empty([], dtype=torch.int64, pin_memory=True)
        self._on_the_way = (copy.copy_(self._in_a_row, non_blocking=True), event)
        event.record()
        if before is None:
            return 0
        before[1].synchronize()
        return int(before[0])

    @property
    def is_late(self) -> bool:
        """Whether `skipped_in_a_row` tells of the step before."""
        return self._device.type == "cuda"

    def skipped(self) -> int:
        """Returns the steps skipped since the run began."""
        return int(self._skipped)

    def note(self, state: TrainerState) -> None:
        """Writes into a state what is counted; waits for the device."""
        state.tokens, state.skipped = float(self._tokens), self.skipped()
        state.skipped_in_a_row = int(self._in_a_row)
        norm = float(self._norm)
        state.since_report = SinceReport(
            sums=tuple(self._sums.tolist()),
            grad_norm=norm if math.isfinite(norm) else None,
            steps=self._steps,
            skipped=state.skipped - self._skipped_before,
        )

    def read(self) -> dict[str, float]:
        """Returns the report of the steps since the last one, and begins anew."""
        loss, weight, filled, positions = self._sums.tolist()
        skipped, running = self.skipped(), self._since is not None
        nothing = math.nan if self._skipped_before < skipped else 0.0
        self.stop_clock()
        seconds = max(self._seconds, 1e-9)
        report = {
            "loss": loss / weight if weight > 0 else nothing,
            "grad_norm": float(self._norm),
            "tokens_per_second": (weight - self._not_timed[0]) / seconds,
            "steps_per_second": (self._steps - self._not_timed[1]) / seconds,
            "padding_fraction": 1.0 - filled / max(positions, 1.0),
            "skipped_steps": float(skipped),
        }
        self._sums = torch.zeros_like(self._sums)
        self._norm = torch.full([], math.nan, device=self._device)
        self._skipped_before, self._steps, self._seconds = skipped, 0, 0.0
        self._not_timed = 0.0, 0
        if running:
            self.start_clock()
        return report


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


class Metrics(Protocol):
    """Streaming metrics, exact: sums that add over batches and processes."""

    sums: Tensor
    """All that is known; it adds up over processes."""

    def update(self, output: Output, batch: Batch) -> None:
        """Adds a batch."""

    def result(self) -> dict[str, float]:
        """Returns each metric's value."""


class Evaluator:
    """One evaluation: passes of the model, and the metrics of all batches.

    Attributes:
      metrics: of the batches so far.

    Args:
      metrics: that have seen no batch yet.
    """

    def __init__(self, metrics: Any) -> None:
        self.metrics: Any = metrics

    def names(self) -> list[str] | None:
        """Returns the names of the metrics; None if only an evaluation can tell."""
        return list(self.metrics.result())

    def output(self, model: nn.Module, batch: Any) -> Any:
        """Returns the output of the model for a batch on the device."""
        return model(batch)

    def update(self, output: Any, batch: Any) -> None:
        """Adds the metrics of a batch."""
        self.metrics.update(output, batch)

    def synchronize(self, world: World) -> None:
        """Sums over all processes, after the last batch of each."""
        world.sum(self.metrics.sums)

    def result(self) -> dict[str, float]:
        """Returns the metrics that are numbers."""
        result: dict[str, float] = self.metrics.result()
        return result

    def arrays(self) -> dict[str, Tensor]:
        """Returns the metrics that are arrays."""
        return {}


class TaskState:
    """What a task does at each update, and what it remembers in checkpoints: here nothing."""

    def before_update(self, model: nn.Module) -> None:
        """Changes the finished gradients of a step in place, before the optimizer reads them."""

    def after_update(
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Called after each update, before its step is counted.

        Args:
          optimizer: of the model.
          state: where the run stands.
          skipped: [], 1.0 if nothing has moved, because the loss or its gradient was not finite.
        """

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns more numbers and arrays of the steps since the last report; in all processes."""
        return {}, {}

    def save(self, world: World) -> dict[str, Any]:
        """Returns what a checkpoint stores, as JSON values; called in all processes."""
        return {}

    def tensors(self) -> Mapping[str, Tensor]:
        """Returns the tensors that belong to the last `save`, by name; only the leader's count."""
        return {}

    def restore(self, state: dict[str, Any], tensors: Mapping[str, Tensor], world: World) -> None:
        """Loads what `save` and `tensors` returned; called once, when a run is resumed."""

    def restore_for_evaluation(
        self, model: nn.Module, state: dict[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Loads what of `save` and `tensors` an evaluation depends on."""


class Task(ABC):
    """What an `Estimator` trains.  It decides nothing about files, steps or processes.

    Attributes:
      name: stands in the names of metrics.
      hparams: of the model, the optimizer and the data.
      counted: what the loss is a mean over: "tokens" or "examples".
      accumulate_flag: the flag that makes `{}` batches of each process a step.
      batches: how its batches are moved, split and weighed.
      state: what it does at each update, and remembers in checkpoints.
      chosen: hyperparameters to report, by name; None: those of `hparams`.
      trained_with: what the run banner says of optimizer and losses; empty: the optimizer's class.
      overlaps_gradients: whether the backward pass itself averages gradients over processes; else
        they are averaged after it, and the model is not wrapped.
      origin: what a run directory needs to be loaded; None: a command has written that.
    """

    name: str
    hparams: HParams
    counted: str = "tokens"
    accumulate_flag: str = "--hparams=optimizer_multistep_accumulate_steps={}"
    batches: BatchAdapter
    state: TaskState = TaskState()
    chosen: Mapping[str, Any] | None = None
    trained_with: Sequence[str] = ()
    overlaps_gradients: bool = True
    origin: Origin | None = None

    @abstractmethod
    def model(self) -> nn.Module:
        """Returns a new model, drawn from torch's generator: `forward(batch) -> Output`."""

    def initialize(self, model: nn.Module) -> list[str]:
        """Loads what a new run's model begins with; returns lines for the user."""
        return []

    def objective(self, model: nn.Module) -> nn.Module:
        """Prepares a model for training; returns the module whose forward pass gives its losses.

        Args:
          model: on its device, with its weights.

        Returns:
          `forward(batch) -> Output`, with the losses of the batch; the model itself if nothing is
          added around it.
        """
        return model

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer of a model's parameters; its learning rate is set at every step."""

    @abstractmethod
    def schedule(self, train_steps: int) -> Callable[[float], float] | None:
        """Returns the learning rate as a function of the steps already done.

        None leaves it to the optimizer and to `state.after_update`.
        """

    @abstractmethod
    def train_batches(self, *, seed: int, start: int, rank: int, world_size: int) -> TrainSource:
        """Returns training batches from global batch `start` on, for one process of several."""

    @abstractmethod
    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> EvalSource:
        """Returns one pass over a split, for one process of several."""

    @abstractmethod
    def evaluator(self) -> Evaluator:
        """Returns an evaluation that has seen no batch yet."""


def reported_hparams(task: Task) -> Mapping[str, Any]:
    """Returns the hyperparameters that reports list, by name."""
    return task.hparams.model_dump(mode="json") if task.chosen is None else task.chosen


def total_loss(output: Output) -> Loss:
    """Returns the loss of a batch: of several targets the sum, each with the examples as weight.

    (`T2TModel.forward` gives each of several targets that weight.)  Their weights differ where an
    example lacks a target; the mean of them still adds up over batches.
    """
    losses = output.losses.values()
    sums = torch.stack([loss.sum for loss in losses])
    weights = torch.stack([loss.weight.float() for loss in losses])
    return Loss(sums.sum(), weights.mean())


# Contract: callbacks for training events.


class Hook:
    """Callbacks for training events; every method does nothing unless a subclass overrides it.

    A registered hook is made without arguments and chosen by name, also one of your own:

        @register_hook
        class PrintLoss(Hook):
            def after_step(self, estimator): ...

        t2t-trainer --hooks=print_loss --t2t_usr_dir=...

    All processes call each hook equally often, so that a hook may talk to the others; only
    `estimator.world.leads` should write.  A hook sees `estimator.model`, `.state`, `.task`,
    `.config`, `.world`, `.run` (the `TrainState`) and writes with `estimator.summary`.

    Attributes:
      in_banner: whether the run banner lists it.
    """

    in_banner = True

    def begin(self, estimator: Estimator) -> None:
        """Training is about to begin or to go on; `estimator.run` is there."""

    def before_update(self, estimator: Estimator) -> None:
        """The gradients of a step are finished and the weights not moved yet."""

    def after_step(self, estimator: Estimator) -> None:
        """`estimator.state.step` steps are done."""

    def before_evaluation(self, estimator: Estimator, split: Split) -> None:
        """The model is about to be called for each batch of a split, in its mode EVAL."""

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """The weights, or their average, were evaluated on a split."""

    def end(self, estimator: Estimator) -> None:
        """The estimator is closed; not after an error that ended the run."""

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint remembers for it: what JSON can say."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned when the checkpoint was saved."""


# Evaluation passes that all processes make together, where each holds a part of the weights.


_NONE, _BATCH, _STOP = range(3)  # what a process has; the greatest of all is what they do


def in_step(
    batches: Iterable[Batch], run: TrainState | None, world: World, stop: object = False
) -> Iterator[tuple[Batch, bool]]:
    """Yields (batch, whether it counts) until they end or a signal comes.

    Where weights are divided a pass needs all processes, so each makes as many as the one with most
    batches: what it makes again does not count.  A signal that one of them got ends all at once.

    Args:
      batches: of this process.
      run: the training that goes on, if one does.
      world: the processes.
      stop: true once a signal has come.
    """
    divided = run is not None and run.is_sharded
    waiting, last = iter(batches), None
    while True:
        batch = None if stop else next(waiting, None)
        word = _STOP if stop else _BATCH if batch is not None else _NONE
        if divided:
            word = world.maximum(word)
        if word != _BATCH:
            return
        if batch is not None:
            last = batch
        elif last is None and run is not None:
            last = next(run.source.one_of_each_shape())
        if last is not None:
            yield last, batch is not None
