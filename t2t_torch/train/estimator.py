"""The training loop: an estimator trains and evaluates a task in a run directory."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import t2t_torch
from t2t_torch.checkpoint.checkpoint import Checkpoint, Snapshot, TrainerState
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.checkpoint.tensors import optimizer_tensors
from t2t_torch.checkpoint.warm_start import WarmStartReport, warm_start
from t2t_torch.distributed.network import (
    accumulating,
    average_gradients,
    compiled_layers,
    exchanges_gradients,
    is_sharded,
    network,
    replicate,
    share_buffers,
)
from t2t_torch.distributed.precision import Precision, check_trainable
from t2t_torch.distributed.process_group import ONE_PROCESS, Agreement, World
from t2t_torch.errors import T2TError
from t2t_torch.mode import Split
from t2t_torch.optim.gradient import GradientFinisher, WeightAverage, WeightNoise
from t2t_torch.train.crash import INITIALIZATION, dump, seed_batch
from t2t_torch.train.memory import is_out_of_memory, new_model, peak_memory
from t2t_torch.train.run_config import DEFAULT_SEED, RunConfig, check_seed, open_data, steps_of_run
from t2t_torch.train.saving import Saving
from t2t_torch.train.stopping import (
    StopRequest,
    Watched,
    after_evaluation,
    short_names,
    with_mean,
)
from t2t_torch.train.summary import Progress, Summary, banner, warm_start_lines
from t2t_torch.train.task import TrainMeter, in_step, total_loss

if TYPE_CHECKING:
    from t2t_torch.train.run_directory import RunDirectory
    from t2t_torch.train.task import Batch, Hook, Task, TrainSource

    NumberedBatches = list[tuple[int, Batch]]
    """(Number of the global batch, batch on the device) of micro-batches."""


# What a training loop works with: model, optimizer, learning rate, batches.


@dataclasses.dataclass
class TrainState:
    """What a training loop works with.

    Attributes:
      task: what is trained.
      model: whose weights are saved.
      objective: gives the losses of a batch; the model, or what training adds around it.
      network: the objective as it is run: compiled, or with its gradients summed over processes.
      optimizer: of the model's parameters.
      finish_gradients: turns summed gradients into the optimizer's.
      weight_noise: moves the weights besides, if hparams set it.
      learning_rate: a function of the steps done; None where the optimizer has its own.
      source: where the batches come from.
      batches: endless (number of the global batch, batch on the device).
      accumulate: micro-batches of a step in this process.
      precision: the type of number that the network computes with.
      average: the running mean of the weights, if there is one.
      tally: statistics of the steps since the last report.
      device: where the model computes.
      processes: that train together.
      recent: (steps done before, batches) of the last two steps, because a GPU's numbers are read a
        step late.
      has_updated: whether this process has done a step.
      is_exchanging: whether the pass under way has begun to exchange numbers with other processes.
    """

    task: Task
    model: nn.Module
    objective: nn.Module
    network: nn.Module
    optimizer: torch.optim.Optimizer
    finish_gradients: GradientFinisher
    weight_noise: WeightNoise | None
    learning_rate: Callable[[float], float] | None
    source: TrainSource
    batches: Iterator[tuple[int, Batch]]
    accumulate: int
    precision: Precision
    average: WeightAverage | None
    tally: TrainMeter
    device: torch.device
    processes: int
    recent: collections.deque[tuple[int, NumberedBatches]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=2)
    )
    has_updated: bool = False
    is_exchanging: bool = False

    @classmethod
    def create(
        cls,
        task: Task,
        model: nn.Module,
        source: TrainSource,
        state: TrainerState,
        world: World,
        *,
        train_steps: int,
    ) -> TrainState:
        """Makes what the loop of one process needs.

        Args:
          task: what is trained.
          model: on its device, with the weights that training goes on from.
          source: batches from `state.batches_consumed` on.
          state: where the run stands.
          world: the processes that train together.
          train_steps: steps at which the run ends.

        Raises:
          HParamsError: the model cannot be trained with these hparams.
        """
        hparams = task.hparams
        check_trainable(model, hparams, world.device)
        precision = Precision.of(hparams, world.device)
        if state.loss_scale:
            precision.load(state.loss_scale, state.loss_scale_steps)
        objective = task.objective(model)
        # Before the optimizer: it may replace parameters.
        if task.overlaps_gradients:
            wrapped = network(objective, hparams, world)
        else:
            wrapped = replicate(objective, world)
        optimizer = task.optimizer(model)
        numbers = itertools.count(state.batches_consumed + world.rank, world.size)
        return cls(
            task=task,
            model=model,
            objective=objective,
            network=wrapped,
            optimizer=optimizer,
            finish_gradients=GradientFinisher.of(hparams, model, optimizer),
            weight_noise=WeightNoise.of(hparams, model),
            learning_rate=task.schedule(train_steps),
            source=source,
            batches=(
                (number, task.batches.to_device(batch, world.device))
                for number, batch in zip(numbers, source, strict=False)
            ),
            accumulate=state.batches_per_step // world.size,
            precision=precision,
            average=WeightAverage.of(hparams, model),
            tally=TrainMeter(world.device, state),
            device=world.device,
            processes=world.size,
        )

    def load(self, checkpoint: Checkpoint, state: TrainerState, world: World) -> None:
        """Loads the optimizer, the average and the state of the task from a checkpoint.

        Raises:
          CheckpointError: it is of another model or optimizer.
        """
        self.task.state.restore(state.task, checkpoint.task_tensors(), world)
        checkpoint.load_optimizer(self.optimizer, self.model)
        if self.average is not None:
            checkpoint.load_average(self.average, self.model)

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a part of the weights: then passes exchange them, too."""
        return is_sharded(self.network)

    def snapshot(self, state: TrainerState) -> Snapshot:
        """Copies the run's state; where it is divided, what this process holds of it."""
        kept = self.task.state.tensors()
        return Snapshot.take(self.model, self.optimizer, state, self.average, kept)

    def next_batches(self) -> NumberedBatches:
        """Returns this process's micro-batches of the next step, with their global numbers."""
        return list(itertools.islice(self.batches, self.accumulate))


# A step.


def train_step(
    run: TrainState,
    state: TrainerState,
    world: World,
    batches: NumberedBatches,
    before_update: Callable[[], None] = lambda: None,
) -> tuple[Tensor, Tensor]:
    """Does the optimizer step that follows `state.step` steps.

    Nothing moves if the loss or the norm is not finite.  torch's fused optimizers find that out on
    the device, so that no step waits.

    Args:
      run: the model and what goes with it.
      state: where the run stands; its step and its position in the data advance.
      world: the processes that train together.
      batches: `run.next_batches()`.
      before_update: called when the gradients are finished and the weights have not moved.

    Returns:
      `BatchAdapter.totals` of the step over all processes, [4]; the norm of its gradient, [].
    """
    task, optimizer, step = run.task, run.optimizer, state.step
    run.recent.append((step, batches))
    _notify(run.objective, "at_step", step)

    # Forward and backward passes; the sums of all processes.
    share_buffers(run.model, world.size)
    totals = _gradients(run, batches, state.seed)
    if world.size > 1 and not exchanges_gradients(run.network):
        average_gradients(run.model, world.size)
    world.sum(totals)

    # The gradient of the mean loss, clipped.
    _drop_frozen(optimizer, step)
    weight = task.batches.divisor(totals, world.size)
    if run.precision.scale is not None:
        weight = weight * run.precision.scale
    norm = run.finish_gradients(weight, world.size, seed=state.seed, step=step)
    task.state.before_update(run.model)
    before_update()

    # The update, at the learning rate of the schedule.
    skipped = (~(totals[0] + norm).isfinite()).float()
    _set_learning_rate(run, state)
    _update(run, skipped)
    if run.weight_noise is not None:
        run.weight_noise(optimizer.param_groups, seed=state.seed, step=step, skipped=skipped)
    run.precision.update(skipped)
    task.state.after_update(optimizer, state, skipped)
    _notify(run.model, "after_step")
    if run.average is not None:
        run.average.update(run.model, step + 1, state.mean_begun)

    state.step += 1
    state.batches_consumed += state.batches_per_step
    run.tally.add(totals, norm)
    return totals, norm


def _notify(module: nn.Module, method: str, *arguments: int) -> None:
    """Calls a method of a module that has it."""
    call: Any = getattr(module, method, None)
    if call is not None:
        call(*arguments)


def _drop_frozen(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Drops the gradients of what `unfreeze_schedule` has not unfrozen yet."""
    for group in optimizer.param_groups:
        if group.get("unfreeze_step", 0) > step:
            for parameter in group["params"]:
                parameter.grad = None


def _set_learning_rate(run: TrainState, state: TrainerState) -> None:
    """Sets the rate of each group, unless the optimizer has its own."""
    if run.learning_rate is not None:
        rate = run.learning_rate(state.step) * state.plateau_factor
        for group in run.optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
            group["updates"] = state.step


def _update(run: TrainState, skipped: Tensor) -> None:
    """Moves the weights, unless `skipped`, [], is 1, and clears the gradients."""
    optimizer: Any = run.optimizer
    if getattr(optimizer, "_step_supports_amp_scaling", False):  # as torch's GradScaler does
        optimizer.found_inf = skipped
        optimizer.step()
        del optimizer.found_inf
    elif not skipped:
        optimizer.step()
    optimizer.zero_grad()
    if not run.has_updated:  # what cannot be saved is an error now, not after an hour
        optimizer_tensors(optimizer, run.model)
        run.has_updated = True


_MOST_PIECES = 64  # of a batch


def _gradients(run: TrainState, batches: NumberedBatches, seed: int) -> Tensor:
    """Adds the gradients of a step's micro-batches to those of the parameters.

    Losses are sums, so a batch may be computed in pieces: the gradients add up to the same (with
    dropout, to that of another draw).  That is done, for this step alone, when memory runs out.

    Args:
      run: the model and what goes with it.
      batches: (number of the global batch, batch) of this process's micro-batches.
      seed: of the run.

    Returns:
      The totals of the step in this process, [4]; NaN if memory runs out even for a batch of one
      row: then the step is skipped, as if its loss were not finite.

    Raises:
      T2TError: memory ran out where the other processes wait for this one's gradients.
    """
    pieces = 1
    while True:
        try:
            return _passes(run, batches, seed, pieces)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if run.processes > 1 and run.is_exchanging:
                raise _others_wait(error) from error
            message = str(error).splitlines()[0]
        # Outside the handler: the traceback holds on to the tensors of the pass.
        run.optimizer.zero_grad()
        gc.collect()
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
        rows = max(run.task.batches.rows_of(batch) for _, batch in batches)
        if pieces >= min(rows, _MOST_PIECES):
            reason = f"Even {pieces} pieces are too large" if pieces > 1 else "It cannot be divided"
            _warn(run, batches, f"{message}. {reason}: the step is skipped")
            return _no_gradients(run, batches)
        pieces *= 2
        _warn(run, batches, f"{message}. The step is computed again in {pieces} pieces a batch")


def _passes(run: TrainState, batches: NumberedBatches, seed: int, pieces: int) -> Tensor:
    """Does the forward and backward passes of a step; returns the totals."""
    totals = torch.zeros(4, dtype=torch.float64, device=run.device)
    parts = [
        (number, index, part)
        for number, batch in batches
        for index, part in enumerate(run.task.batches.split(batch, pieces))
    ]
    for i, (number, index, batch) in enumerate(parts):
        is_last = i + 1 == len(parts)
        seed_batch(seed, number, run.device, piece=index)
        with accumulating(run.network, more=not is_last):
            run.is_exchanging = run.is_sharded
            with run.precision.autocast():
                loss = total_loss(run.network(batch))
            run.is_exchanging |= is_last and exchanges_gradients(run.network)
            scaled = loss.sum if run.precision.scale is None else loss.sum * run.precision.scale
            scaled.backward()  # type: ignore[no-untyped-call]
        totals += run.task.batches.totals(loss, batch)
    return totals


def _no_gradients(run: TrainState, batches: NumberedBatches) -> Tensor:
    """Returns NaN totals; the sums of the other processes still find a partner."""
    if run.processes > 1 and exchanges_gradients(run.network):
        _, batch = batches[0]
        try:
            smallest = run.task.batches.split(batch, run.task.batches.rows_of(batch))[0]
            with run.precision.autocast():
                loss = total_loss(run.network(smallest))
            (loss.sum * 0.0).backward()  # type: ignore[no-untyped-call]
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise _others_wait(error) from error
    return torch.full([4], torch.nan, dtype=torch.float64, device=run.device)


def _warn(run: TrainState, batches: NumberedBatches, message: str) -> None:
    shapes = ", ".join(
        f"batch {number}: "
        + " ".join(f"{name} {list(t.shape)}" for name, t in run.task.batches.tensors(batch).items())
        for number, batch in batches
    )
    print(f"WARNING: {message} ({shapes})", file=sys.stderr, flush=True)


def _others_wait(error: BaseException) -> T2TError:
    """Of a pass whose gradients are summed some are sent already: it cannot be made again."""
    return T2TError(
        f"memory ran out while other processes wait for this one's gradients: {error}. The "
        "checkpoints before are whole. Go on with a smaller --hparams=batch_size and a larger "
        "optimizer_multistep_accumulate_steps, in another --output_dir with "
        "--warm_start_from, or with activation_checkpointing=True in this one."
    )


# Before the first step of a compiled network: each shape is compiled.


def warm_up(
    run: TrainState, world: World, stop: object = False, say: Callable[[str], None] = print
) -> None:
    """Runs the network once forward and backward for each shape that the data's batches have.

    Neither weights nor buffers nor the position in the data change.  Afterwards no layer is
    compiled any more: a batch of another shape, for example a split one, runs without.  Does
    nothing if no layer is compiled.

    Args:
      run: made, not yet used.
      world: the processes that train together; all stop if one of them does.
      stop: true once a signal has come; checked before each shape, which may take half a minute.
      say: prints how long it took.
    """
    layers = compiled_layers(run.model)
    if not layers:
        return
    started, shapes = time.monotonic(), 0
    buffers = [(buffer, buffer.clone()) for buffer in run.model.buffers()]
    run.network.train()
    for batch in run.source.one_of_each_shape():
        if world.maximum(int(bool(stop))):
            break
        on_device = run.task.batches.to_device(batch, run.device)
        with run.precision.autocast():
            loss = total_loss(run.network(on_device))
        loss.sum.backward()  # type: ignore[no-untyped-call]
        run.optimizer.zero_grad()
        shapes += 1
    else:
        for layer in layers:
            layer.close()
    for buffer, before in buffers:
        buffer.copy_(before)
    say(f"compiled {shapes} shapes of a batch in {time.monotonic() - started:.0f} s")


class Estimator:
    """Trains and evaluates a task in a run directory.

    Training goes on from the newest whole checkpoint, bit by bit as if it had never stopped:
    weights, optimizer, position in the data and random numbers are functions of the step alone.

    Attributes:
      state: where the run stands.
      signal: the number of the signal that has asked the processes to stop, 0 if none has.
      run: what the loop works with, once training has begun.
      train_steps: steps at which the run ends, once training has begun.
      saving: hands checkpoints to the disk.

    Args:
      task: what is trained.
      directory: where.
      config: how long, and what is kept.
      world: the processes that train together.
      stop: asked between batches whether to save and stop.
      hooks: callbacks for training events.
      reports: whether evaluations are written to the run directory.
    """

    def __init__(
        self,
        task: Task,
        directory: RunDirectory,
        config: RunConfig,
        *,
        world: World = ONE_PROCESS,
        stop: StopRequest | None = None,
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
        self.saving = Saving(self.checkpoints, config, world)
        self.state = TrainerState(version=t2t_torch.__version__)
        self.signal = 0
        self.run: TrainState | None = None
        self.train_steps = config.train_steps
        self.summary = Summary(directory.path, leads=world.leads and reports)
        self._stop = StopRequest() if stop is None else stop  # false is what it is before a signal
        self._agree = Agreement(world, 4)
        self._model: nn.Module | None = None
        self._precision: Precision | None = None
        self._progress = Progress(config.train_steps, shown=world.leads, counted=task.counted)
        self._out_of_time = False

    def train(self, until: int, *, must_save: bool = True) -> None:
        """Trains until `until` steps are done since the run began, or a signal; saves at the end.

        Args:
          until: steps, counted from the run's beginning.
          must_save: whether it is an error if the last checkpoint cannot be written.  A signal's
            and that of the run's end must be in any case; of others a warning tells.

        Raises:
          CheckpointError: the run cannot be gone on with: it is taken, broken, or of other data;
            or the last checkpoint cannot be written.
          NotFiniteError: the loss was not finite too many times in a row.
        """
        run, state, config = self.begin(), self.state, self.config
        run.network.train()
        run.tally.start_clock()
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
            if any(map(self._due, (config.local_eval_frequency, config.save_checkpoints_steps))):
                self.save()
        run.tally.stop_clock()
        ends = self.signal != 0 or self.is_done
        if state.step and (must_save or ends or self.saving.step != state.step):
            self.save(must_succeed=must_save or ends)
        if run.tally.steps and self.is_done:
            self._report(run)  # of the last steps, fewer than log_step_count_steps

    @torch.no_grad()
    def evaluate(self, split: Split | None = None) -> dict[str, float]:
        """Returns the metrics of the weights as they are now, and writes them to the summaries.

        Of a run that keeps an average of its weights, those of the average.  Nothing is returned or
        written if a signal came in between.

        Args:
          split: what is evaluated; `config.eval_split` by default.
        """
        split = split or self.config.eval_split
        model = self.model.eval()
        share_buffers(model, self.world.size)
        evaluator = self.task.evaluator()
        rank, size = self.world.rank, self.world.size
        batches = self.task.eval_batches(split, rank=rank, world_size=size)
        limit = self.config.eval_steps
        share = -(-max(limit - rank, 0) // size) if limit else None  # of this process
        average = self.run.average if self.run is not None else None
        for hook in self.hooks:
            hook.before_evaluation(self, split)
        with average.applied(self.model) if average is not None else contextlib.nullcontext():
            shown = self._progress.evaluation(batches, share, split.value)
            for batch, counts in in_step(shown, self.run, self.world, self._stop):
                on_device = self.task.batches.to_device(batch, self.world.device)
                with self.precision.autocast():
                    output = evaluator.output(model, on_device)
                if counts:
                    evaluator.update(output, on_device)
        evaluator.synchronize(self.world)
        if self.is_asked_to_stop():
            return {}
        results, arrays = evaluator.result(), evaluator.arrays()
        self.summary.write(_reported(split), self.state.step, results, arrays)
        names = short_names([name for name in results if "_per_label/" not in name])
        told = "  ".join(f"{short} {results[name]:.4f}" for name, short in names.items())
        part = f"  ({limit} batches)" if share is not None and share < len(batches) else ""
        self.say(f"step {self.state.step}  {_reported(split)}:  {told}{part}")
        for hook in self.hooks:
            hook.after_evaluation(self, split, results)
        return results

    def begin(self) -> TrainState:
        """Takes the run directory and makes what the loop needs, as the newest checkpoint left it.

        Done by the first `train`; does nothing when it has been done.

        Raises:
          CheckpointError: as `train`.
        """
        if self.run is not None:
            return self.run
        newest = self.newest_checkpoint(repair=True)
        self._take_state(newest)
        source = open_data(self.task, self.config, self.world, self.state, newest)
        lines: list[str] = []
        warm: WarmStartReport | None = None
        if newest is not None:
            newest.load_model(self.model)
        else:
            lines = self.task.initialize(self.model)
            if self.config.warm_start_from:
                patterns = self.config.warm_start_patterns
                warm = warm_start(self.model, self.config.warm_start_from, patterns=patterns)
        self.train_steps = steps_of_run(self.config, self.state)
        run = TrainState.create(
            self.task, self.model, source, self.state, self.world, train_steps=self.train_steps
        )
        self._precision = run.precision
        if newest is not None:
            run.load(newest, self.state, self.world)
        out_of_time = 0 < self.config.train_seconds <= self.state.seconds
        self._out_of_time = bool(self.world.maximum(int(out_of_time)))
        with self.world.leader_first() as leads:
            if leads:
                if self.task.origin is not None:  # of a run in Python
                    self.task.origin.claim(self.directory, self.task.hparams, self.train_steps)
                # What trains nothing changes nothing.
                if newest is None or not self.is_done or not self.directory.exists:
                    self.directory.commit()  # as nothing does before all is known to fit
                for line in [*lines, *warm_start_lines(self.directory.path, warm)]:
                    self.say(line)
        self.run = run
        self.summary.start(self.state.step)
        for line in banner(run, self.state, self.config, self.hooks, self.train_steps):
            self.say(line)
        self._progress.start(self.state.step, self.train_steps, self.config.train_seconds)
        for name, hook in _named(self.hooks):
            hook.restore(self.state.hooks.get(name, {}))
            hook.begin(self)
        warm_up(run, self.world, self._stop, self.say)
        return run

    def _take_state(self, newest: Checkpoint | None) -> None:
        if newest is None:
            given = self.config.random_seed
            self.state.seed = DEFAULT_SEED if given is None else given
            return
        self.state = newest.trainer_state()
        self.state.version = t2t_torch.__version__
        check_seed(self.state, newest.path, self.config.random_seed)

    def newest_checkpoint(self, *, repair: bool = False) -> Checkpoint | None:
        """Returns the newest whole checkpoint or None, the same one in all processes.

        Args:
          repair: lock the directory and set broken checkpoints aside.

        Raises:
          CheckpointError: all checkpoints are broken, or the directory is locked.
        """
        newest = None
        with self.world.leader_first() as leads:
            if leads:
                if repair:
                    self.directory.lock()
                newest = self.checkpoints.newest(repair=repair)
        step = self.world.from_leader(newest.step if newest else -1)
        if newest or step < 0:
            return newest
        # The leader has verified it; without the lock it may be deleted by now: see restore_newest.
        path = self.checkpoints.path / f"ckpt-{step}"
        return self.checkpoints.at(step) if repair else Checkpoint(step, path)

    def save(self, *, must_succeed: bool = False) -> None:
        """Saves this step, if it is not there yet; returns while the disk still works on it.

        Args:
          must_succeed: waits until it is whole; else a disk that fails is warned of and counted at
            the next step, and training goes on, unless `config.on_save_error` says "fail".

        Raises:
          SaveError: it could not be written, and must be.
        """
        self.saving.save(self.begin(), self.state, self.hooks, must_succeed=must_succeed)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Takes the weights and the step of a checkpoint, to evaluate them."""
        state = checkpoint.trainer_state()
        checkpoint.load_model(self.model, averaged=True)
        self.task.state.restore_for_evaluation(self.model, state.task, checkpoint.task_tensors())
        self.state = state

    def restore_newest(self, beyond: int = -1) -> Checkpoint | None:
        """Restores the newest whole checkpoint; one that a trainer deletes meanwhile is let go.

        Args:
          beyond: steps; a checkpoint of no more is left alone.

        Returns:
          what was restored, in all processes the same; None if there is none.

        Raises:
          CheckpointError: all checkpoints are broken, or the newest does not fit.
        """
        while True:
            newest = self.newest_checkpoint()
            if newest is None or newest.step <= beyond:
                return None
            gone = self.checkpoints.is_gone_while(self.restore, newest)
            if not self.world.maximum(int(gone)):
                return newest

    def take_position(self, checkpoint: Checkpoint) -> bool:
        """Takes the step of a checkpoint, without its weights; returns false if it was deleted."""
        read: list[TrainerState] = []
        gone = self.checkpoints.is_gone_while(
            lambda one: read.append(one.trainer_state()), checkpoint
        )
        if self.world.maximum(int(gone)):
            return False
        (self.state,) = read
        return True

    def judge(self, watched: Watched, value: float) -> None:
        """Applies the rules that watch a metric: early stopping, plateaus, the mean of weights.

        Args:
          watched: the metric.
          value: of it, at this step.
        """
        before = self.state
        state = after_evaluation(before, watched, value, self.config)
        state = with_mean(state, watched, value, self.task.hparams.swa_patience)
        self.state = state
        if before.mean_begun < 0 <= state.mean_begun:
            self.say(f"step {state.step}: the mean of the weights begins")
        if state.plateau_factor != before.plateau_factor:
            self.say(
                f"step {state.step}: {self.config.eval_early_stopping_metric} stands "
                f"still; the learning rate is {state.plateau_factor:g} times its "
                "schedule's"
            )

    def is_asked_to_stop(self) -> bool:
        """Whether a signal has come, in any process; waits for all of them."""
        self.signal = self.world.maximum(self._stop.signal)
        return self.signal != 0

    @property
    def is_done(self) -> bool:
        """Whether the run's steps, or its seconds, are over; known once training has begun."""
        return self.state.step >= self.train_steps or self._out_of_time

    def _due(self, frequency: int) -> bool:
        return frequency > 0 and self.state.step % frequency == 0

    def _must_stop(self) -> bool:
        """Saves if the clock says so; returns whether all processes end their loop now."""
        failed = self.world.leads and self.saving.has_failed()
        ended = 0 < self.config.train_seconds <= self.state.seconds
        self.signal, agreed_to_save, agreed_to_end, agreed_to_fail = self._agree(
            self._stop.signal, self.saving.is_due(), ended, failed
        )
        if agreed_to_fail:
            with self.world.leader_first() as leads:
                if leads:
                    self.saving.tell_failure()
        self._out_of_time |= bool(agreed_to_end)
        if agreed_to_save:
            self.save()
        return self.signal != 0 or self._out_of_time

    def _before_update(self) -> None:
        for hook in self.hooks:
            hook.before_update(self)

    def _check_skipped(self, run: TrainState) -> None:
        """Ends the run if nothing but steps that are not finite have come for too long."""
        skipped = run.tally.skipped_in_a_row()
        step, batches = run.recent[0 if run.tally.is_late else -1]
        if skipped:
            self.say(f"step {step + 1}: the loss or its gradient is not finite; skipped")
        if skipped and skipped >= self.config.max_consecutive_nonfinite:
            raise dump(
                self.directory.path, run, self.state.seed, step, batches, self.world.rank, skipped
            )

    def _report(self, run: TrainState) -> None:
        report = run.tally.read()
        report["learning_rate"] = max(group["lr"] for group in run.optimizer.param_groups)
        report["checkpoint_failures"] = float(self.saving.failures)
        report["seconds"] = self.state.seconds
        report["memory_mib"] = peak_memory(self.world.device)
        numbers, arrays = self.task.state.report(self.world)
        report.update(numbers)
        self.summary.write("train", self.state.step, report, arrays)
        self._progress.report(self.state.step, report)

    def say(self, line: str) -> None:
        """Prints a line, in the leading process."""
        self._progress.say(line)

    def close(self) -> None:
        """Ends the reports and lets others train here."""
        self._agree.finish()
        self.saving.close()
        if self.run is not None:
            for hook in self.hooks:
                hook.end(self)
        self._progress.close()
        self.summary.close()
        self.directory.unlock()

    @property
    def model(self) -> nn.Module:
        """The model, on its device; made when it is first asked for."""
        if self._model is None:
            seed_batch(self.state.seed, INITIALIZATION, self.world.device)
            self._model = new_model(self.task, self.world.device)
        return self._model

    @property
    def precision(self) -> Precision:
        """The type of number that the model computes with."""
        if self._precision is None:
            self._precision = Precision.of(self.task.hparams, self.world.device)
        return self._precision

    def __enter__(self) -> Estimator:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.hooks = ()  # nothing has come to its end
        self.close()


def _reported(split: Split) -> str:
    """Returns the name in reports: "train" is what training itself says of its steps."""
    return "train_data" if split is Split.TRAIN else split.value


def _named(hooks: Sequence[Hook]) -> list[tuple[str, Hook]]:
    """Returns the hooks with the names that a checkpoint knows them by."""
    return [(type(hook).__name__, hook) for hook in hooks]
