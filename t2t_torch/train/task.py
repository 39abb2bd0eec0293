"""The `Task` interface, with its batches and statistics, and the `Hook` interface."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from t2t_torch.modality import Loss
from t2t_torch.mode import Split
from t2t_torch.run.checkpoint import SinceReport, TrainerState

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.model import Output
    from t2t_torch.pipeline.plan import PlanReport
    from t2t_torch.train.estimator import Estimator, TrainState
    from t2t_torch.train.problem_task import Origin


Batch = dict[str, Tensor]
"""The rows of each feature, and of its annotations, by name."""


class BatchAdapter:
    """Moves, splits and weighs the batches of a task; this class handles `Batch`.

    Attributes:
      paddings: padding value of each text-like sequence, `pipeline.lengths.paddings`; used to count
        padding.  If empty, a position is a row.

    Args:
      paddings: see above.
    """

    def __init__(self, paddings: Mapping[str, int] | None = None) -> None:
        self.paddings = dict(paddings or {})

    def to_device(self, batch: Any, device: torch.device) -> Any:
        """Returns the batch on a device."""
        return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}

    def rows_of(self, batch: Any) -> int:
        """Returns the number of rows, which is the maximum number of pieces of a split."""
        return len(next(iter(batch.values())))

    def split(self, batch: Any, pieces: int) -> list[Any]:
        """Splits a batch into at most `pieces` pieces with similar numbers of rows."""
        if pieces == 1:
            return [batch]
        names = list(batch)
        chunks = [batch[name].chunk(pieces) for name in names]
        return [dict(zip(names, parts, strict=True)) for parts in zip(*chunks, strict=True)]

    def tensors(self, batch: Any) -> dict[str, Tensor]:
        """Returns the tensors of a batch by name, for messages and crash reports."""
        return dict(batch)

    def totals(self, loss: Loss, batch: Any) -> Tensor:
        """Returns [loss, weight, positions with data, positions] of a batch, [4] float64.

        Totals are summed over micro-batches and processes.

        Args:
          loss: loss of the batch.
          batch: batch on the device.
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
        """Returns the divisor of a step's summed gradients, []: the weight of its loss.

        Args:
          totals: totals of the step over all processes, [4].
          processes: number of processes whose gradients are summed.
        """
        return totals[1]


class TrainMeter:
    """Sums over the steps since the last report; skipped steps are only counted.

    Checkpoints store the statistics, so a resumed run reports the same values as an uninterrupted
    one.

    Args:
      device: device of the losses.
      state: position of the run.
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
        self._not_timed = since.sums[1], since.steps  # weight and steps of an earlier process
        self._seconds = 0.0
        self._since: float | None = None

    @property
    def steps(self) -> int:
        """The number of steps since the last report."""
        return self._steps

    def start_clock(self) -> None:
        """Starts the clock when training starts or continues."""
        self._since = time.monotonic()

    def stop_clock(self) -> None:
        """Stops the clock while other work is done that does not count for the training speed."""
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = None

    def add(self, totals: Tensor, norm: Tensor) -> None:
        """Adds a step.

        Args:
          totals: `BatchAdapter.totals`, summed over the step, [4].
          norm: gradient norm, [].
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
        """Returns the number of consecutive skipped steps up to the last step.

        On a GPU up to the step before the last, which is known without synchronization.
        """
        if not self.is_late:
            return int(self._in_a_row)
        before, event = self._on_the_way, torch.cuda.Event()  # type: ignore[no-untyped-call]
        # Pinned: otherwise the copy itself would synchronize.
        copy = torch.empty([], dtype=torch.int64, pin_memory=True)
        self._on_the_way = (copy.copy_(self._in_a_row, non_blocking=True), event)
        event.record()
        if before is None:
            return 0
        before[1].synchronize()
        return int(before[0])

    @property
    def is_late(self) -> bool:
        """True if `skipped_in_a_row` refers to the step before the last."""
        return self._device.type == "cuda"

    def skipped(self) -> int:
        """Returns the number of skipped steps since the start of the run."""
        return int(self._skipped)

    def note(self, state: TrainerState) -> None:
        """Writes the statistics into a state; synchronizes with the device."""
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
        """Returns the report of the steps since the last report, and resets the statistics."""
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
    """Endless training batches from a position on, for example `pipeline.loader.TrainBatches`."""

    @property
    def plan_fingerprint(self) -> str:
        """A hash of everything that determines the order of the batches."""

    @property
    def report(self) -> PlanReport:
        """Counts of the examples that the batch plan keeps, drops and pads."""

    def one_of_each_shape(self) -> Iterator[Batch]:
        """Yields a batch of each shape that occurs; used to compile layers."""

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of this process."""


class EvalSource(Protocol):
    """One pass over a split, for example `pipeline.loader.OnePass`."""

    def __len__(self) -> int:
        """Returns the number of batches of this process."""

    def __iter__(self) -> Iterator[Batch]:
        """Yields each batch once."""


class Metrics(Protocol):
    """Exact streaming metrics: sums that add up over batches and processes, and rows."""

    sums: Tensor
    """The state that may be summed over processes."""

    rows: dict[str, list[Tensor]]
    """The state that may be joined over processes, [n, size] each."""

    def update(self, output: Output, batch: Batch) -> None:
        """Adds a batch."""

    def result(self) -> dict[str, float]:
        """Returns the value of each metric."""


class Evaluator:
    """One evaluation: forward passes of the model, and the metrics of all batches.

    Attributes:
      metrics: metrics of the batches so far.
      in_order: True to add batches in an order that no number of processes changes: sorted by
        value.

    Args:
      metrics: metrics without any batches.
    """

    in_order = False

    def __init__(self, metrics: Any) -> None:
        self.metrics: Any = metrics
        self._parts: list[Tensor] = []  # the sums of each batch

    def names(self) -> list[str] | None:
        """Returns the names of the metrics; None if they are known only after an evaluation."""
        return list(self.metrics.result())

    def output(self, model: nn.Module, batch: Any) -> Any:
        """Returns the output of the model for a batch on the device."""
        return model(batch)

    def update(self, output: Any, batch: Any) -> None:
        """Adds the metrics of a batch."""
        self.metrics.update(output, batch)
        if self.in_order:
            self._parts.append(self.metrics.sums.clone())
            self.metrics.sums.zero_()

    def synchronize(self, world: World) -> None:
        """Sums the metrics over all processes, after the last batch of each."""
        if self.in_order:
            if every := [part for parts in world.gather(self._parts) for part in parts]:
                self.metrics.sums.copy_(torch.stack(every).sort(dim=0).values.sum(0))
        else:
            world.sum(self.metrics.sums)
        for rows in self.metrics.rows.values():
            rows[:] = world.gather(torch.cat(rows))
            if self.in_order:
                joined = torch.cat(rows)
                rows[:] = [joined[torch.from_numpy(np.lexsort(joined.T.numpy()))]]

    def result(self) -> dict[str, float]:
        """Returns the scalar metrics."""
        result: dict[str, float] = self.metrics.result()
        return result

    def arrays(self) -> dict[str, Tensor]:
        """Returns the array metrics."""
        return {}


class TaskState:
    """Callbacks at each update, and checkpoint data, of a task; empty by default."""

    def before_update(self, model: nn.Module) -> None:
        """Changes the final gradients of a step in place, before the optimizer reads them."""

    def after_update(
        self, optimizer: torch.optim.Optimizer, state: TrainerState, skipped: Tensor
    ) -> None:
        """Called after each update, before its step is counted.

        Args:
          optimizer: optimizer of the model.
          state: position of the run.
          skipped: [], 1.0 if the update was skipped because the loss or its gradient was not
            finite.
        """

    def gradient_norm(self) -> Tensor:
        """Returns the gradient norm of the last step, [], if the objective updates the weights."""
        raise NotImplementedError

    def report(self, world: World) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Returns more numbers and arrays for the steps since the last report, in all processes."""
        return {}, {}

    def save(self, world: World) -> dict[str, Any]:
        """Returns the JSON values to store in a checkpoint; called in all processes."""
        return {}

    def tensors(self) -> Mapping[str, Tensor]:
        """Returns the tensors of the last `save`, by name; only the leader's are stored."""
        return {}

    def restore(self, state: dict[str, Any], tensors: Mapping[str, Tensor], world: World) -> None:
        """Loads the values of `save` and `tensors`; called once, when a run is resumed."""

    def restore_for_evaluation(
        self, model: nn.Module, state: dict[str, Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Loads the values of `save` and `tensors` that affect evaluation."""


class Task(ABC):
    """A training task for an `Estimator`.  It does not handle files, steps or processes.

    Attributes:
      name: name used in the names of metrics.
      hparams: hyperparameters of the model, the optimizer and the data.
      counted: unit that the loss is averaged over: "tokens" or "examples".
      accumulate_flag: the flag that sets `{}` batches of each process per step.
      batches: operations on the batches.
      state: callbacks at each update and the checkpoint data of the task.
      chosen: hyperparameters to report, by name; None: those of `hparams`.
      trained_with: optimizer and losses in the run banner; empty: the optimizer's class.
      overlaps_gradients: True if the backward pass averages gradients over processes; otherwise
        they are averaged afterwards and the model is not wrapped.
      evaluates_in_order: True if the first batches of an evaluation are the same in any number of
        processes.
      automatic_optimization: True if the loop computes gradients and updates the weights; otherwise
        the forward pass of the objective does both, and `state.gradient_norm` reports it.
      origin: information for loading the run directory; None: written by a command.
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
    evaluates_in_order: bool = True
    automatic_optimization: bool = True
    origin: Origin | None = None

    @abstractmethod
    def model(self) -> nn.Module:
        """Returns a new model, initialized with torch's generator: `forward(batch) -> Output`."""

    def initialize(self, model: nn.Module) -> list[str]:
        """Loads the initial weights of a new run's model; returns lines for the user."""
        return []

    def objective(self, model: nn.Module) -> nn.Module:
        """Prepares a model for training; returns the module whose forward pass computes the losses.

        Args:
          model: the model on its device, with its weights.

        Returns:
          `forward(batch) -> Output`, with the losses of the batch; the model itself if it needs no
          wrapper.
        """
        return model

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer of a model; its learning rate is set at every step."""

    @abstractmethod
    def schedule(self, train_steps: int) -> Callable[[float], float] | None:
        """Returns the learning rate as a function of completed steps.

        None leaves it to the optimizer and to `state.after_update`.
        """

    @abstractmethod
    def train_batches(
        self, *, seed: int, start: int, rank: int, world_size: int, batches_per_step: int = 0
    ) -> TrainSource:
        """Returns training batches from global batch `start` on, for one process.

        Args:
          seed: seed of the order.
          start: number of global batches already consumed by all processes.
          rank: rank of this process.
          world_size: number of processes.
          batches_per_step: micro-batches of all processes in a step; 0: as the hyperparameters say.
        """

    @abstractmethod
    def eval_batches(self, split: Split, *, rank: int, world_size: int) -> EvalSource:
        """Returns one pass over a split, for one process."""

    @abstractmethod
    def evaluator(self) -> Evaluator:
        """Returns a new evaluation without any batches."""


def reported_hparams(task: Task) -> Mapping[str, Any]:
    """Returns the hyperparameters for reports, by name."""
    return task.hparams.model_dump(mode="json") if task.chosen is None else task.chosen


class Hook:
    """Callbacks for training events; every method does nothing unless a subclass overrides it.

    A registered hook is created without arguments and chosen by name, including user-defined ones:

        @register_hook
        class PrintLoss(Hook):
            def after_step(self, estimator): ...

        t2t-trainer --hooks=print_loss --t2t_usr_dir=...

    All processes call each hook equally often, so hooks may communicate; only
    `estimator.world.leads` should write.  A hook reads `estimator.model`, `.state`, `.task`,
    `.config`, `.world`, `.run` (the `TrainState`) and writes with `estimator.summary`.
    `estimator.request_stop(reason)` ends the run.

    Attributes:
      in_banner: True to list the hook in the run banner.
    """

    in_banner = True

    def begin(self, estimator: Estimator) -> None:
        """Called before training starts or resumes; `estimator.run` is available."""

    def before_update(self, estimator: Estimator) -> None:
        """Called when the gradients of a step are final, before the weights are updated."""

    def after_step(self, estimator: Estimator) -> None:
        """Called after step number `estimator.state.step`."""

    def after_report(self, estimator: Estimator, split: str, values: Mapping[str, float]) -> None:
        """Called after numbers were written to the summaries.

        Args:
          estimator: the estimator.
          split: "train" for statistics of training since the last report; else the split.
          values: numbers by name.
        """

    def before_evaluation(self, estimator: Estimator, split: Split) -> None:
        """Called before the model evaluates the batches of a split, in mode EVAL."""

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """Called after the weights, or their average, were evaluated on a split."""

    def after_rating(self, estimator: Estimator) -> None:
        """Called after the watched metric of this step was recorded, which ranks its checkpoint."""

    def end(self, estimator: Estimator) -> None:
        """Called when the estimator is closed, but not after an error that ended the run."""

    def state(self) -> dict[str, Any]:
        """Returns the JSON values to store for this hook in a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the values that `state` returned for the checkpoint."""


_NONE, _BATCH, _STOP = range(3)  # state of a process; the maximum over all decides


def in_step(
    batches: Iterable[Batch], run: TrainState | None, world: World, stop: object = False
) -> Iterator[tuple[Batch, bool]]:
    """Yields (batch, True if it counts) until the batches end or a signal arrives.

    With sharded weights a pass needs all processes, so each makes as many passes as the process
    with most batches; its repeated batches do not count.  A signal in one process ends all at once.

    Args:
      batches: batches of this process.
      run: the current training, if any.
      world: the processes.
      stop: true once a signal was received.
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
