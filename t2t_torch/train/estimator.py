"""The training loop: an estimator trains and evaluates a task in a run directory."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import t2t_torch
from t2t_torch import errors, mode, remote, reporter, signals
from t2t_torch.distributed import network
from t2t_torch.distributed.ordered_sum import OrderedSum
from t2t_torch.distributed.peers import is_of_exchange
from t2t_torch.distributed.precision import Precision, check_trainable
from t2t_torch.distributed.process_group import ONE_PROCESS, Agreement, World
from t2t_torch.loss import total_loss
from t2t_torch.optim.gradient import GradientFinisher, WeightAverage, WeightNoise
from t2t_torch.optim.parameter_groups import check_loaded
from t2t_torch.optim.settings import factor_names, reads_train_steps
from t2t_torch.run.checkpoint import Checkpoint, Snapshot, TrainerState
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.resuming import check_seed
from t2t_torch.run.tensors import optimizer_tensors
from t2t_torch.run.warm_start import WarmStartReport, warm_start
from t2t_torch.train import crash, memory, run_config, saving, stopping
from t2t_torch.train.pace import Pace
from t2t_torch.train.random_state import INITIALIZATION, restored_generators, seeded
from t2t_torch.train.summary import Summary, TrainProgress, banner, warm_start_lines
from t2t_torch.train.task import TrainMeter, in_step

if TYPE_CHECKING:
    from t2t_torch.run.directory import RunDirectory
    from t2t_torch.train.digests import StepDigests
    from t2t_torch.train.task import Batch, Hook, Task, TrainSource

    NumberedBatches = list[tuple[int, Batch]]
    """(Number of the global batch, batch on the device) of micro-batches."""


class TrainState:
    """State of a training loop in one process.

    Attributes:
      task: the task to train.
      model: the model whose weights are saved.
      objective: module that returns the losses of a batch: the model, or a wrapper for training.
      network: the objective as executed: compiled, or with gradients summed over processes.
      optimizer: optimizer of the model's parameters.
      finish_gradients: converts summed gradients to the optimizer's input.
      weight_noise: noise added to the weights, if set in hparams.
      learning_rate: learning rate as a function of the position in the schedule; None if the
        optimizer has its own.
      pace: position in the schedule after some steps.
      source: source of the batches.
      batches: endless iterator of (number of the global batch, batch on the device).
      ordered: sums of the gradients in a fixed order, if enabled.
      precision: number type of the network's computation.
      average: running mean of the weights, if enabled.
      meter: statistics of the steps since the last report.
      device: device of the model.
      processes: number of training processes.
      recent: (completed steps, batches) of the last two steps; values on a GPU are read one step
        late.
      pieces: pieces of a batch in the last step; more than 1 if memory ran out.
      digests: digests of the steps, if the run logs them.
      has_updated: True if this process has completed a step.
      is_exchanging: True if the current pass has started to communicate with other processes.

    Args:
      task: the task to train.
      model: the model on its device, with the weights to start from.
      source: source of batches from `state.batches_consumed` on.
      state: position of the run.
      world: the training processes.
      pace: position in the learning-rate schedule.
      train_steps: steps of the schedule.
      in_order: True to sum gradients in an order that no number of processes changes.

    Raises:
      HParamsError: the model cannot be trained with these hparams.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        source: TrainSource,
        state: TrainerState,
        world: World,
        *,
        pace: Pace,
        train_steps: int,
        in_order: bool = False,
    ) -> None:
        hparams = task.hparams
        check_trainable(model, hparams, world.device)
        self.task, self.model, self.source, self.pace = task, model, source, pace
        self.device, self.processes = world.device, world.size
        self.precision = Precision.of(hparams, world.device)
        if state.loss_scale:
            self.precision.load(state.loss_scale, state.loss_scale_steps)
        self.objective = task.objective(model)
        # Before the optimizer: it may replace parameters.
        if task.overlaps_gradients:
            self.network = network.network(self.objective, hparams, world, in_order=in_order)
        else:
            self.network = network.replicate(self.objective, world)
        self.optimizer = task.optimizer(model)
        self.finish_gradients = GradientFinisher.of(hparams, model, self.optimizer)
        self.weight_noise = WeightNoise.of(hparams, model)
        self.learning_rate = task.schedule(train_steps)
        self._size, self._end = state.batches_per_step, state.batches_consumed
        self.ordered: OrderedSum | None = None
        if in_order:
            self.ordered = OrderedSum(model, self._size, self._end, world)
        self._number = self._end + world.rank
        numbers = itertools.count(self._number, world.size)
        self.batches: Iterator[tuple[int, Batch]] = (
            (number, task.batches.to_device(batch, world.device))
            for number, batch in zip(numbers, source, strict=False)
        )
        self.average = WeightAverage.of(hparams, model)
        self.meter = TrainMeter(world.device, state)
        self.recent: collections.deque[tuple[int, NumberedBatches]] = collections.deque(maxlen=2)
        self.pieces = 1
        self.digests: StepDigests | None = None
        self.has_updated = self.is_exchanging = False

    def load(self, checkpoint: Checkpoint, state: TrainerState, world: World) -> None:
        """Loads the optimizer, the average and the task's state from a checkpoint.

        Raises:
          CheckpointError: the checkpoint belongs to another model or optimizer.
        """
        self.task.state.restore(state.task, checkpoint.task_tensors(), world)
        checkpoint.load_optimizer(self.optimizer, self.model)
        if self.average is not None:
            checkpoint.load_average(self.average, self.model)

    @property
    def is_sharded(self) -> bool:
        """True if each process holds a shard of the weights; then passes communicate, too."""
        return network.is_sharded(self.network)

    def snapshot(self, state: TrainerState) -> Snapshot:
        """Copies the run's state; for a sharded model, the shard of this process."""
        tensors = self.task.state.tensors()
        return Snapshot.take(self.model, self.optimizer, state, self.average, tensors)

    def next_batches(self) -> NumberedBatches:
        """Returns this process's micro-batches of the next step, with global batch numbers.

        If the processes do not divide a step, each takes one more in some steps.
        """
        self._end += self._size
        count = len(range(self._number, self._end, self.processes))
        self._number += count * self.processes
        return list(itertools.islice(self.batches, count))


def train_step(
    run: TrainState,
    state: TrainerState,
    world: World,
    batches: NumberedBatches,
    before_update: Callable[[], None] = lambda: None,
) -> tuple[Tensor, Tensor]:
    """Runs the optimizer step after `state.step` completed steps.

    The update is skipped if the loss or the gradient norm is not finite.  torch's fused optimizers
    check this on the device, which avoids synchronization.

    Args:
      run: the training state.
      state: position of the run; its step and its position in the data advance.
      world: the training processes.
      batches: `run.next_batches()`.
      before_update: called when the gradients are final, before the weights are updated.

    Returns:
      `BatchAdapter.totals` of the step over all processes, [4]; the gradient norm, [].
    """
    task, optimizer, step = run.task, run.optimizer, state.step
    run.recent.append((step, batches))
    _notify(run.objective, "at_step", step)

    network.share_buffers(run.model, world.size)
    compute = functools.partial(_gradients, run, batches, state.seed, world)
    checks = run.digests
    totals = compute() if checks is None else checks.passes(step + 1, batches, compute)
    if not task.automatic_optimization:
        norm = task.state.gradient_norm().to(run.device)
        skipped = (~(totals[0] + norm).isfinite()).float()
        _complete(run, state, totals, norm, skipped)
        return totals, norm

    # The gradient of the mean loss, clipped.
    _drop_frozen(optimizer, step)
    weight = task.batches.divisor(totals, world.size)
    if run.precision.scale is not None:
        weight = weight * run.precision.scale
    averaged = 1 if run.ordered is not None else world.size
    norm = run.finish_gradients(weight, averaged, seed=state.seed, step=step)
    task.state.before_update(run.model)
    before_update()
    if checks is not None:
        checks.check(waits=False)

    # The update, with the scheduled learning rate.
    skipped = (~(totals[0] + norm).isfinite()).float()
    _set_learning_rate(run, state)
    _update(run, skipped)
    if run.weight_noise is not None:
        run.weight_noise(optimizer.param_groups, seed=state.seed, step=step, skipped=skipped)
    run.precision.update(skipped)
    _complete(run, state, totals, norm, skipped)
    if checks is not None:
        checks.after_update(state.step, totals)
    return totals, norm


def _sum(run: TrainState, totals: Tensor, world: World) -> Tensor:
    """Sums the gradients, unless the passes have done it, and the totals over all processes."""
    if run.ordered is not None:
        return run.ordered.finish()
    if (
        world.size > 1
        and run.task.automatic_optimization
        and not network.exchanges_gradients(run.network)
    ):
        network.average_gradients(run.model, world.size)
    return world.sum(totals)


def _complete(
    run: TrainState, state: TrainerState, totals: Tensor, norm: Tensor, skipped: Tensor
) -> None:
    """Counts a step after the update of its weights."""
    if not run.has_updated:  # fail now, not after an hour, if the optimizer's state cannot be saved
        optimizer_tensors(run.optimizer, run.model)
        run.has_updated = True
    run.task.state.after_update(run.optimizer, state, skipped)
    _notify(run.model, "after_step")
    if run.average is not None:
        run.average.update(run.model, state.step + 1, state.mean_begun)
    state.step += 1
    state.batches_consumed += state.batches_per_step
    run.meter.add(totals, norm)


def _notify(module: nn.Module, method: str, *arguments: int) -> None:
    """Calls a method of a module, if the module has it."""
    call: Any = getattr(module, method, None)
    if call is not None:
        call(*arguments)


def _drop_frozen(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Drops the gradients of parameters that `unfreeze_schedule` still keeps frozen."""
    for group in optimizer.param_groups:
        if group.get("unfreeze_step", 0) > step:
            for parameter in group["params"]:
                parameter.grad = None


def _set_learning_rate(run: TrainState, state: TrainerState) -> None:
    """Sets the learning rate of each parameter group, unless the optimizer has its own."""
    if run.learning_rate is not None:
        rate = run.learning_rate(run.pace.position(state.step)) * state.plateau_factor
        for group in run.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
            group["updates"] = state.step


def _update(run: TrainState, skipped: Tensor) -> None:
    """Updates the weights, unless `skipped`, [], is 1, and clears the gradients."""
    optimizer: Any = run.optimizer
    if getattr(optimizer, "_step_supports_amp_scaling", False):  # like torch's GradScaler
        optimizer.found_inf = skipped
        optimizer.step()
        del optimizer.found_inf
    elif not skipped:
        optimizer.step()
    optimizer.zero_grad()


_MOST_PIECES = 64  # maximum number of pieces of a batch


def _gradients(run: TrainState, batches: NumberedBatches, seed: int, world: World) -> Tensor:
    """Accumulates the gradients of a step's micro-batches, over all processes.

    Losses are sums, so a batch may be computed in pieces with the same total gradient (with
    dropout, that of another random draw).  This is done for a single step when memory runs out.

    Args:
      run: the training state.
      batches: (number of the global batch, batch) of this process's micro-batches.
      seed: random seed of the run.
      world: the training processes.

    Returns:
      The totals of the step over all processes, [4]; NaN if memory runs out even for a batch of one
      row: then the step is skipped, as if its loss were not finite.

    Raises:
      T2TError: memory ran out after other processes started to wait for this process's gradients.
    """
    pieces = 1
    while True:
        run.pieces = pieces
        try:
            totals = _passes(run, batches, seed, pieces)
            break
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not memory.is_out_of_memory(error):
                raise
            if run.processes > 1 and run.is_exchanging:
                raise _others_wait(error) from error
            message = str(error).splitlines()[0]
        # Outside the handler: the traceback holds references to the tensors of the pass.
        run.optimizer.zero_grad()
        gc.collect()
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
        rows = max(run.task.batches.rows_of(batch) for _, batch in batches)
        if pieces >= min(rows, _MOST_PIECES):
            reason = f"Even {pieces} pieces are too large" if pieces > 1 else "It cannot be divided"
            _warn(run, batches, f"{message}. {reason}: the step is skipped")
            totals = _no_gradients(run, batches)
            break
        pieces *= 2
        _warn(run, batches, f"{message}. The step is computed again in {pieces} pieces a batch")
    return _sum(run, totals, world)


def _passes(run: TrainState, batches: NumberedBatches, seed: int, pieces: int) -> Tensor:
    """Runs the forward and backward passes of a step; returns the totals."""
    totals = torch.zeros(4, dtype=torch.float64, device=run.device)
    ordered = run.ordered
    if ordered is not None:
        batches = ordered.begin(batches)
    parts = [
        (number, index, part)
        for number, batch in batches
        for index, part in enumerate(run.task.batches.split(batch, pieces))
    ]
    for i, (number, index, batch) in enumerate(parts):
        is_last = i + 1 == len(parts)
        with (
            seeded(seed, number, run.device, piece=index),
            network.accumulating(run.network, more=not is_last),
        ):
            run.is_exchanging = run.is_sharded
            with run.precision.autocast():
                loss = total_loss(run.network(batch))
            run.is_exchanging |= is_last and network.exchanges_gradients(run.network)
            if run.task.automatic_optimization:
                scaled = loss.sum if run.precision.scale is None else loss.sum * run.precision.scale
                scaled.backward()  # type: ignore[no-untyped-call]
        totals += run.task.batches.totals(loss, batch)
        if ordered is not None and (is_last or parts[i + 1][0] != number):
            ordered.add(number, totals)
            totals = torch.zeros_like(totals)
    return totals


def _no_gradients(run: TrainState, batches: NumberedBatches) -> Tensor:
    """Returns NaN totals, and joins the gradient sums so that other processes do not hang."""
    if run.ordered is not None:
        run.ordered.begin(batches)
    if run.processes > 1 and network.exchanges_gradients(run.network):
        _, batch = batches[0]
        try:
            smallest = run.task.batches.split(batch, run.task.batches.rows_of(batch))[0]
            with run.precision.autocast():
                loss = total_loss(run.network(smallest))
            (loss.sum * 0.0).backward()  # type: ignore[no-untyped-call]
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not memory.is_out_of_memory(error):
                raise
            raise _others_wait(error) from error
    return torch.full([4], torch.nan, dtype=torch.float64, device=run.device)


def _warn(run: TrainState, batches: NumberedBatches, message: str) -> None:
    shapes = ", ".join(
        f"batch {number}: "
        + " ".join(f"{name} {list(t.shape)}" for name, t in run.task.batches.tensors(batch).items())
        for number, batch in batches
    )
    reporter.message(f"warning: {message} ({shapes})")


def _others_wait(error: BaseException) -> errors.T2TError:
    """Returns the error for a pass that cannot be repeated: some gradients are already sent."""
    return errors.T2TError(
        f"memory ran out while other processes wait for this one's gradients: {error}. The "
        "earlier checkpoints are intact. Resume with a smaller --hparams=batch_size and a larger "
        "optimizer_multistep_accumulate_steps, in another --output_dir with "
        "--warm_start_from, or with activation_checkpointing=True in this one."
    )


class Estimator:
    """Trains and evaluates a task in a run directory.

    Training resumes bit-exactly from the newest complete checkpoint: weights, optimizer state,
    position in the data and random numbers are functions of the step alone.

    Attributes:
      state: position of the run.
      signal: number of the signal that requested a stop, 0 if there was none.
      run: the training state, once training has started.
      train_steps: steps of the run, once training has started; `end` may be earlier.
      saving: writer of checkpoints.

    Args:
      task: the task to train.
      directory: the run directory.
      config: run length, checkpointing and evaluation settings.
      world: the training processes.
      stop: stop request, checked between batches.
      hooks: callbacks for training events.
      reports: True to write evaluations to the run directory.
    """

    def __init__(
        self,
        task: Task,
        directory: RunDirectory,
        config: run_config.RunConfig,
        *,
        world: World = ONE_PROCESS,
        stop: signals.StopRequest | None = None,
        hooks: Sequence[Hook] = (),
        reports: bool = True,
    ) -> None:
        self.task = task
        self.directory = directory
        self.config = config
        self.world = world
        self.hooks = hooks
        self.checkpoints = CheckpointDirectory(
            directory.path,
            keep=config.keep_checkpoint_max,
            keep_best=config.keep_checkpoint_best,
            keep_every=config.keep_checkpoint_every,
            keep_every_n_hours=config.keep_checkpoint_every_n_hours,
            is_hurried=lambda: bool(self._stop.signal),
        )
        self.saving = saving.Saving(self.checkpoints, config, world)
        self.state = TrainerState(version=t2t_torch.__version__)
        self.signal = 0
        self.run: TrainState | None = None
        self.train_steps = config.train_steps
        self.summary = Summary(directory.path, leads=world.leads and reports)
        self._stop = signals.StopRequest() if stop is None else stop  # false until a signal arrives
        self._agree = Agreement(world, 5)
        self._model: nn.Module | None = None
        self._precision: Precision | None = None
        self._progress = TrainProgress(config.train_steps, shown=world.leads, counted=task.counted)
        self._stop_asked = self._ends_early = self._has_lost_peer = False

    def train(self, until: int, *, must_save: bool = True) -> None:
        """Trains until `until` steps are completed or a signal arrives; saves at the end.

        Args:
          until: steps, counted from the start of the run.
          must_save: True to fail if the last checkpoint cannot be written, instead of printing a
            warning.  After a signal and at the end of the run this is always an error.

        Raises:
          CheckpointError: the run cannot be resumed because it is locked, corrupt, or of other
            data; or the last checkpoint cannot be written.
          NotFiniteError: the loss was not finite in too many consecutive steps.
        """
        run, state, config = self.begin(), self.state, self.config
        run.network.train()
        run.meter.start_clock()
        started, before = time.monotonic(), state.seconds
        while state.step < until and not self._must_stop():
            train_step(run, state, self.world, run.next_batches(), self._before_update)
            state.seconds = before + time.monotonic() - started
            self._check_skipped(run)
            for hook in self.hooks:
                hook.after_step(self)
            self._progress.advance(state.step)
            if config.reports_at(state.step):
                self._report(run)
            if saving.saves_at(config, state.step):
                self.save()
        run.meter.stop_clock()
        ends = self.signal != 0 or self.is_done
        if state.step and (must_save or ends or self.saving.step != state.step):
            self.save(must_succeed=must_save or ends)
        if run.meter.steps and self.is_done:
            self._report(run)  # the last steps, fewer than log_step_count_steps
        if self.is_done and run.pace.is_shortened:
            limit, steps = f"--train_seconds={config.train_seconds}", self.train_steps
            self.say(f"step {state.step}: {limit} ends the run, of {steps:,} steps")

    @property
    def evaluated(self) -> nn.Module:
        """The model in evaluation; of sharded weights the whole network, which gathers them."""
        run = self.run
        return (run.network if run is not None and run.is_sharded else self.model).eval()

    def averaged(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context in which the model has its averaged weights, if the run keeps them."""
        average = self.run.average if self.run is not None else None
        return average.applied(self.model) if average is not None else contextlib.nullcontext()

    @torch.no_grad()
    def evaluate(self, split: mode.Split | None = None) -> dict[str, float]:
        """Returns the metrics of the current weights, and writes them to the summaries.

        Uses the averaged weights if the run keeps an average.  Nothing is returned or written if a
        signal interrupts the evaluation.

        Args:
          split: split to evaluate; `config.eval_split` by default.
        """
        split = split or self.config.eval_split
        model = self.evaluated
        network.share_buffers(self.model, self.world.size)
        evaluator = self.task.evaluator()
        evaluator.in_order = self.config.deterministic_world > 0
        rank, size = self.world.rank, self.world.size
        batches = self.task.eval_batches(split, rank=rank, world_size=size)
        limit = self.config.eval_steps
        share = -(-max(limit - rank, 0) // size) if limit else None  # batches of this process
        for hook in self.hooks:
            hook.before_evaluation(self, split)
        with self.averaged():
            shown = self._progress.evaluation(batches, share, split.value)
            for batch, counts in in_step(shown, self.run, self.world, self._stop):
                on_device = self.task.batches.to_device(batch, self.world.device)
                with self.precision.autocast():
                    output = evaluator.output(model, on_device)
                if counts:
                    evaluator.update(output, on_device)
        evaluator.synchronize(self.world)
        if self.is_stop_requested():
            return {}
        results, arrays = evaluator.result(), evaluator.arrays()
        self.summary.write(_reported(split), self.state.step, results, arrays)
        names = stopping.short_names([name for name in results if "_per_label/" not in name])
        metrics = "  ".join(f"{short} {results[name]:.4f}" for name, short in names.items())
        part = f"  ({limit} batches)" if share is not None and share < len(batches) else ""
        self.say(f"step {self.state.step}  {_reported(split)}:  {metrics}{part}")
        for hook in self.hooks:
            hook.after_report(self, _reported(split), results)
            hook.after_evaluation(self, split, results)
        return results

    def begin(self) -> TrainState:
        """Locks the run directory and creates the training state from the newest checkpoint.

        Called by the first `train`; later calls do nothing.

        Raises:
          CheckpointError: see `train`.
        """
        if self.run is not None:
            return self.run
        newest = self.newest_checkpoint(repair=True)
        self._take_state(newest)
        source = run_config.open_data(self.task, self.config, self.world, self.state, newest)
        lines: list[str] = []
        warm: WarmStartReport | None = None
        if newest is not None:
            newest.load_model(self.model)
        else:
            lines, warm = self._initialize()
        self.train_steps = steps = run_config.steps_of_run(self.config, self.state)
        pace = Pace(self.directory.path, steps, self.config.train_seconds, self.state)
        pace.begin(self.world)
        if pace.is_annealing and not stopping.stop_reason(self.state, self.config):
            pace.give_up_annealing(self.state.step)
        run = TrainState(
            self.task,
            self.model,
            source,
            self.state,
            self.world,
            pace=pace,
            train_steps=steps,
            in_order=self.config.deterministic_world > 0,
        )
        self._precision = run.precision
        if newest is not None:
            run.load(newest, self.state, self.world)
        self._ends_early = bool(self.world.maximum(int(pace.is_out_of_time(self.state))))
        with self.world.leader_first() as leads:
            if leads:
                if self.task.origin is not None:  # a run started in Python
                    self.task.origin.claim(self.directory, self.task.hparams, self.train_steps)
                # A run with no steps left changes no files.
                if newest is None or not self.is_done or not self.directory.exists:
                    self.directory.commit()  # only after all checks have passed
                for line in [*lines, *warm_start_lines(self.directory.path, warm)]:
                    self.say(line)
        self.run = run
        self.summary.start(self.state.step)
        for line in banner(run, self.state, self.config, self.hooks, self.train_steps):
            self.say(line)
        self._progress.start(self.state.step, self.train_steps, self.config.train_seconds)
        for hook in self.hooks:
            hook.restore(self.state.hooks.get(type(hook).__name__, {}))
            hook.begin(self)
        network.prepare(run, self.world, self._stop, self.say)
        return run

    def _initialize(self) -> tuple[list[str], WarmStartReport | None]:
        """Sets the weights of a new run; returns lines for the user, and what was loaded."""
        lines, source = self.task.initialize(self.model), self.config.warm_start_from
        if not source:
            if self.task.hparams.lora_rank and not lines:
                lines.append(
                    "warning: lora_rank adapts a model with random weights, which stay so. Start "
                    "from a trained one with --warm_start_from."
                )
            return lines, None
        warm = warm_start(self.model, source, patterns=self.config.warm_start_patterns)
        warnings = check_loaded(self.model, self.task.hparams, warm.missing, warm.by_token)
        return [*lines, *warnings], warm

    def _take_state(self, newest: Checkpoint | None) -> None:
        if newest is None:
            given = self.config.random_seed
            self.state.seed = run_config.DEFAULT_SEED if given is None else given
            return
        self.state = newest.trainer_state()
        self.state.version = t2t_torch.__version__
        check_seed(self.state, newest.path, self.config.random_seed)

    def newest_checkpoint(self, *, repair: bool = False) -> Checkpoint | None:
        """Returns the newest complete checkpoint or None, the same in all processes.

        Args:
          repair: True to lock the directory and move corrupt checkpoints aside.

        Raises:
          CheckpointError: all checkpoints are corrupt, or the directory is locked.
        """
        newest = None
        with self.world.leader_first() as leads:
            if leads:
                if repair:
                    self.directory.lock()
                newest = self.checkpoints.newest(repair=repair)
                if repair:
                    remote.push(self.directory.path)  # the processes of other nodes fetch it
        step = self.world.from_leader(newest.step if newest else -1)
        if newest or step < 0:
            return newest
        # Verified by the leader; it may be deleted by now without the lock: see restore_newest.
        path = self.checkpoints.path / f"ckpt-{step}"
        return self.checkpoints.at(step) if repair else Checkpoint(step, path)

    def save(self, *, must_succeed: bool = False) -> None:
        """Saves a checkpoint of this step, unless it exists; returns before it is written.

        Args:
          must_succeed: True to wait until the checkpoint is complete.  Otherwise a write error is
            reported and counted at the next step, and training continues, unless
            `config.on_save_error` is "fail".

        Raises:
          CorruptionError: the run logs digests, and its state has changed since the last update.
          SaveError: the checkpoint could not be written, and `must_succeed` or the settings require
            it.
        """
        if (run := self.begin()).digests is not None:
            run.digests.check()
        self.saving.save(run, self.state, self.hooks, must_succeed=must_succeed)

    def restore(self, checkpoint: Checkpoint, *, weights: bool = True) -> None:
        """Restores the weights, unless they are not needed, and the step for evaluation."""
        state = checkpoint.trainer_state()
        if weights:
            checkpoint.load_model(self.model, averaged=True)
            tensors = checkpoint.task_tensors()
            self.task.state.restore_for_evaluation(self.model, state.task, tensors)
        self.state = state

    def restore_newest(self, beyond: int = -1, *, weights: bool = True) -> Checkpoint | None:
        """Restores the newest complete checkpoint; retries if a trainer deletes it meanwhile.

        Args:
          beyond: steps; checkpoints with at most this many steps are ignored.
          weights: False to restore the step alone.

        Returns:
          The restored checkpoint, the same in all processes; None if there is none.

        Raises:
          CheckpointError: all checkpoints are corrupt, or the newest does not fit the model.
        """
        while True:
            newest = self.newest_checkpoint()
            if newest is None or newest.step <= beyond:
                return None
            restore = functools.partial(self.restore, weights=weights)
            deleted = self.checkpoints.deleted_during(restore, newest)
            if not self.world.maximum(int(deleted)):
                return newest

    def judge(self, watched: stopping.Watched, value: float, loss: float = math.nan) -> None:
        """Applies the rules for a monitored metric: early stopping, plateaus, averaging of weights.

        Args:
          watched: the metric.
          value: its value at this step.
          loss: the loss at this step, which decides between equal values; NaN: unknown.
        """
        before = self.state
        state = stopping.after_evaluation(before, watched, value, self.config, loss)
        state = stopping.with_mean(state, watched, value, self.task.hparams.swa_patience)
        self.state = state
        if before.mean_begun < 0 <= state.mean_begun:
            self.say(f"step {state.step}: the mean of the weights begins")
        if state.plateau_factor != before.plateau_factor:
            self.say(
                f"step {state.step}: {self.config.eval_early_stopping_metric} stands "
                f"still; the learning rate is {state.plateau_factor:g} times its "
                "schedule's"
            )

    def request_stop(self, reason: str) -> None:
        """Ends the run before the next step, as its time limit does: saved, and evaluated if due.

        For hooks; a call in one process is enough.  The same command continues the run.

        Args:
          reason: why, printed.
        """
        if not self._stop_asked:
            self.say(f"step {self.state.step}: a hook ends the run: {reason}")
        self._stop_asked = True

    def is_stop_requested(self) -> bool:
        """True if any process has received a signal; synchronizes all processes."""
        self.signal = self.world.maximum(self._stop.signal)
        return self.signal != 0

    @property
    def is_done(self) -> bool:
        """True if the step or time limit of the run is reached; known once training has started."""
        return self.state.step >= self.end or self._ends_early

    @property
    def end(self) -> int:
        """The step at which the run ends, as it is planned now; see `train/pace.py`."""
        return (
            min(self.train_steps, self.run.pace.end) if self.run is not None else self.train_steps
        )

    @property
    def has_ended(self) -> bool:
        """True if the run is complete, or was stopped early by a rule."""
        return self.is_done or bool(self.stop_reason())

    def stop_reason(self) -> str:
        """Returns why the run has ended early; "" if it continues, as to its schedule's end."""
        run, reason = self.begin(), stopping.stop_reason(self.state, self.config)
        falls = run.learning_rate and any(map(reads_train_steps, factor_names(self.task.hparams)))
        has_ended = self.is_done or self.directory.ended_at() == self.state.step
        return reason if not falls or has_ended else ""

    def anneal(self) -> None:
        """Begins the end of the schedule if patience has ended, unless the run has ended."""
        reason = stopping.stop_reason(self.state, self.config)
        pace = self.begin().pace
        if reason and not self.stop_reason() and not pace.is_annealing:
            pace.anneal(self.state, self.world)
            self.say(f"step {self.state.step}: {reason}; its schedule ends at step {self.end}")

    def _must_stop(self) -> bool:
        """Saves if a save is due by time; returns True if all processes leave the loop now."""
        failed = self.world.leads and self.saving.has_failed()
        state, pace = self.state, self.begin().pace
        ended = self._stop_asked or pace.is_out_of_time(state)
        due = pace.is_due(state)
        self.signal, agreed_to_save, agreed_to_end, agreed_to_fail, agreed_to_plan = self._agree(
            self._stop.signal, self.saving.is_due(), ended, failed, due
        )
        if agreed_to_plan:
            pace.replan(state, self.world)
            self._progress.expect(pace.end)
        if agreed_to_fail:
            with self.world.leader_first() as leads:
                if leads:
                    self.saving.report_failures()
        self._ends_early |= bool(agreed_to_end)
        if agreed_to_save:
            self.save()
        return self.signal != 0 or self.is_done

    def _before_update(self) -> None:
        for hook in self.hooks:
            hook.before_update(self)

    def _check_skipped(self, run: TrainState) -> None:
        """Ends the run after too many consecutive steps that are not finite."""
        skipped = run.meter.skipped_in_a_row()
        step, batches = run.recent[0 if run.meter.is_late else -1]
        if skipped:
            self.say(f"step {step + 1}: the loss or its gradient is not finite; skipped")
        if skipped and skipped >= self.config.max_consecutive_nonfinite:
            raise crash.dump(
                self.directory.path, run, self.state.seed, step, batches, self.world.rank, skipped
            )

    def _report(self, run: TrainState) -> None:
        report = run.meter.read()
        report["learning_rate"] = max(group["lr"] for group in run.optimizer.param_groups)
        report["checkpoint_failures"] = float(self.saving.failures)
        report["seconds"] = self.state.seconds
        report["memory_mib"] = memory.peak_memory(self.world.device)
        numbers, arrays = self.task.state.report(self.world)
        report.update(numbers)
        self.summary.write("train", self.state.step, report, arrays)
        self._progress.report(self.state.step, report)
        for hook in self.hooks:
            hook.after_report(self, "train", report)

    def say(self, line: str) -> None:
        """Prints a line in the leading process."""
        self._progress.say(line)

    def close(self) -> None:
        """Closes the reports and unlocks the run directory."""
        self._agree.finish(failed=self._has_lost_peer)
        self.saving.close()
        if self.run is not None:
            for hook in self.hooks:
                hook.end(self)
        self._progress.close()
        self.summary.close()
        self.directory.unlock()

    @property
    def model(self) -> nn.Module:
        """The model on its device; created on first access."""
        if self._model is None:
            with seeded(self.state.seed, INITIALIZATION, self.world.device):
                self._model = memory.new_model(self.task, self.world.device)
        return self._model

    @property
    def precision(self) -> Precision:
        """The number type of the model's computation."""
        if self._precision is None:
            self._precision = Precision.of(self.task.hparams, self.world.device)
        return self._precision

    def __enter__(self) -> Estimator:
        self._generators = restored_generators()
        self._generators.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self._has_lost_peer = is_of_exchange(error)
        if self._has_lost_peer and self.run is not None:
            self.saving.save_alone(self.run, self.state, self.hooks)
        if kind is not None:
            self.hooks = ()  # not a regular end of training
        try:
            self.close()
        finally:
            self._generators.__exit__(None, None, None)


def _reported(split: mode.Split) -> str:
    """Returns the name in reports; "train" is reserved for the statistics of training steps."""
    return "train_data" if split is mode.Split.TRAIN else split.value
