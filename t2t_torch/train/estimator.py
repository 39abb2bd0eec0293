"""The owner of a run directory: it trains a task there, and evaluates what it has trained."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import itertools
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

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
    share_buffers,
)
from t2t_torch.distributed.precision import Precision, check_trainable
from t2t_torch.distributed.process_group import ONE_PROCESS, Agreement, World
from t2t_torch.errors import HParamsError, T2TError
from t2t_torch.mode import Split
from t2t_torch.optim.gradient import GradientFinisher, WeightAverage, WeightNoise
from t2t_torch.train.crash import INITIALIZATION, dump, seed_batch
from t2t_torch.train.run_config import DEFAULT_SEED, RunConfig, check_seed, open_data, steps_of_run
from t2t_torch.train.saving import Saving
from t2t_torch.train.stopping import StopRequest, short_names
from t2t_torch.train.summary import Progress, Summary, opening_lines, tell_warm_start
from t2t_torch.train.task import TrainMeter, in_step

if TYPE_CHECKING:
    from t2t_torch.train.run_directory import RunDirectory
    from t2t_torch.train.task import Batch, Hook, Task, TrainSource


# The forward and backward passes of a step; a batch that does not fit in memory is split.


_MOST_PIECES = 64  # of a batch


class Backward:
    """Adds the gradients of a step's micro-batches to those of the parameters.

    Losses are sums, so a batch may be computed in pieces: the gradients add up to the same (with
    dropout, to that of another draw).  That is done, for that step alone, when memory runs out.

    Args:
      run: the model and what goes with it.
      seed: of the run.
    """

    def __init__(self, run: TrainState, seed: int) -> None:
        self._run = run
        self._task = run.task
        self._seed = seed
        self._talks_to_others = False  # whether the pass under way sums gradients over processes

    def __call__(self, batches: Sequence[tuple[int, Batch]]) -> Tensor:
        """Computes the gradients of a step.

        Args:
          batches: (number of the global batch, batch) of this process's micro-batches.

        Returns:
          `totals_of` the step in this process, [4]; not a number if memory runs out even for a
          batch of one row: then the step is skipped, as if its loss were not finite.

        Raises:
          T2TError: memory ran out where the other processes could not be kept in step.
        """
        pieces = 1
        while True:
            try:
                return self._passes(batches, pieces)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if self._run.processes > 1 and self._talks_to_others:
                    raise _others_wait(error) from error
                told = str(error).splitlines()[0]
            # Outside the handler: the traceback holds on to the tensors of the pass.
            self._clear()
            rows = max(self._task.rows_of(batch) for _, batch in batches)
            if pieces >= min(rows, _MOST_PIECES):
                self._warn(batches, f"{told}. {_too_large(pieces)}: the step is skipped")
                return self._nothing(batches)
            pieces *= 2
            self._warn(batches, f"{told}. The step is computed again in {pieces} pieces a batch")

    def _passes(self, batches: Sequence[tuple[int, Batch]], pieces: int) -> Tensor:
        run, device = self._run, self._run.device
        totals = torch.zeros(4, dtype=torch.float64, device=device)
        exchanges = exchanges_gradients(run.network)
        parts = [
            (number, index, part)
            for number, batch in batches
            for index, part in enumerate(self._task.split(batch, pieces))
        ]
        for i, (number, index, batch) in enumerate(parts):
            seed_batch(self._seed, number, device, piece=index)
            with run.accumulating(more=i + 1 < len(parts)):
                self._talks_to_others = run.is_sharded
                with run.precision.autocast():
                    loss = self._task.loss(run.network, batch)
                self._talks_to_others |= exchanges and i + 1 == len(parts)
                scaled = loss.sum if run.precision.scale is None else loss.sum * run.precision.scale
                scaled.backward()  # type: ignore[no-untyped-call]
            totals += self._task.totals(loss, batch)
        return totals

    def _clear(self) -> None:
        self._run.optimizer.zero_grad()
        gc.collect()
        if self._run.device.type == "cuda":
            torch.cuda.empty_cache()

    def _nothing(self, batches: Sequence[tuple[int, Batch]]) -> Tensor:
        """Returns totals that are not numbers; the other processes' sums still find a partner."""
        if self._run.processes > 1 and exchanges_gradients(self._run.network):
            _, batch = batches[0]
            try:
                smallest = self._task.split(batch, self._task.rows_of(batch))[0]
                with self._run.precision.autocast():
                    loss = self._task.loss(self._run.network, smallest)
                (loss.sum * 0.0).backward()  # type: ignore[no-untyped-call]
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                raise _others_wait(error) from error
        return torch.full([4], torch.nan, dtype=torch.float64, device=self._run.device)

    def _warn(self, batches: Sequence[tuple[int, Batch]], what: str) -> None:
        shapes = ", ".join(
            f"batch {number}: "
            + " ".join(f"{name} {list(t.shape)}" for name, t in self._task.tensors(batch).items())
            for number, batch in batches
        )
        print(f"WARNING: {what} ({shapes})", file=sys.stderr, flush=True)


def _others_wait(error: BaseException) -> T2TError:
    """Of a pass whose gradients are summed some are sent already: it cannot be made again."""
    return T2TError(
        f"memory ran out while other processes wait for this one's gradients: {error}. The "
        "checkpoints before are whole. Go on with a smaller --hparams=batch_size and a larger "
        "optimizer_multistep_accumulate_steps, in another --output_dir with "
        "--warm_start_from, or with activation_checkpointing=True in this one."
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: the device's, or what the system gives a CPU's process."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def _too_large(pieces: int) -> str:
    return f"Even {pieces} pieces are too large" if pieces > 1 else "It cannot be divided"


# What a training loop works with: model, optimizer, schedule, batches.


@dataclasses.dataclass
class TrainState:
    """What a training loop works with.

    Attributes:
      task: what is trained.
      model: whose weights are saved.
      network: the model, compiled, or what sums its gradients over processes.
      optimizer: of the model's parameters.
      finish_gradients: turns summed gradients into the optimizer's.
      weight_noise: moves the weights besides, if it is asked for.
      learning_rate: a function of the steps done; None where the optimizer has its own.
      source: where the batches come from.
      batches: endless (number of the global batch, batch on the device).
      accumulate: micro-batches of a step in this process.
      precision: the type of number that the network computes with.
      average: the running mean of the weights, if there is one.
      tally: what happened since the last report.
      device: where the model computes.
      processes: that train together.
      recent: (steps done before, batches) of the last two steps, as numbers that a GPU has found
        are known a step late.
    """

    task: Task
    model: nn.Module
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
    recent: collections.deque[tuple[int, list[tuple[int, Batch]]]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=2)
    )
    _has_updated: bool = False

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
          HParamsError: the model cannot be trained as hparams ask for.
        """
        hparams = task.hparams
        check_trainable(model, hparams, world.device)
        precision = Precision.of(hparams, world.device)
        if state.loss_scale:
            precision.load(state.loss_scale, state.loss_scale_steps)
        task.make_ready(model)
        wrapped = task.network(model, world)  # before the optimizer: it may replace parameters
        optimizer = task.optimizer(model)
        numbers = itertools.count(state.batches_consumed + world.rank, world.size)
        return cls(
            task=task,
            model=model,
            network=wrapped,
            optimizer=optimizer,
            finish_gradients=GradientFinisher.of(hparams, model, optimizer),
            weight_noise=WeightNoise.of(hparams, model),
            learning_rate=task.learning_rate(train_steps),
            source=source,
            batches=(
                (number, task.to_device(batch, world.device))
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
        """Takes the optimizer, the average and what the task remembers from a checkpoint.

        Raises:
          CheckpointError: it is of another model or optimizer.
        """
        self.task.restore(self.optimizer, state.task, checkpoint.task_tensors(), world)
        checkpoint.load_optimizer(self.optimizer, self.model)
        if self.average is not None:
            checkpoint.load_average(self.average, self.model)

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a part of the weights: then passes exchange them, too."""
        return is_sharded(self.network)

    def accumulating(self, *, more: bool) -> AbstractContextManager[None]:
        """Returns a context without exchange of gradients if more passes of the step follow."""
        return accumulating(self.network, more=more)

    def snapshot(self, state: TrainerState) -> Snapshot:
        """Copies the run's state; where it is divided, what this process holds of it."""
        kept = self.task.tensors_of_state()
        return Snapshot.take(self.model, self.optimizer, state, self.average, kept)

    def next_batches(self) -> list[tuple[int, Batch]]:
        """Returns this process's micro-batches of the next step, with their global numbers."""
        return list(itertools.islice(self.batches, self.accumulate))

    def gradients(self, batches: list[tuple[int, Batch]], state: TrainerState) -> Tensor:
        """Computes the gradients of a step's micro-batches; returns their totals, [4]."""
        self.recent.append((state.step, batches))
        at_step = getattr(self.model, "at_step", None)
        if at_step is not None:
            at_step(state.step)
        share_buffers(self.model, self.processes)
        totals = Backward(self, state.seed)(batches)
        if self.processes > 1 and not exchanges_gradients(self.network):
            average_gradients(self.model, self.processes)
        return totals

    def finish(self, totals: Tensor, state: TrainerState) -> Tensor:
        """Turns the summed gradients into those of the mean loss, clipped; returns their norm, [].

        Args:
          totals: of the step, over all processes, [4].
          state: where the run stands; gradients of what is frozen till later are dropped.
        """
        for group in self.optimizer.param_groups:
            if group.get("unfreeze_step", 0) > state.step:
                for parameter in group["params"]:
                    parameter.grad = None
        weight = self.task.divisor(totals, self.processes)
        if self.precision.scale is not None:
            weight = weight * self.precision.scale
        norm = self.finish_gradients(weight, self.processes, seed=state.seed, step=state.step)
        self.task.clip_gradients(self.model)
        return norm

    def update(self, state: TrainerState, loss: Tensor, norm: Tensor) -> None:
        """Does the update that follows `state.step` steps, and clears the gradients.

        Nothing moves if loss or norm are not finite.  torch's fused optimizers find that out on the
        device, so that no step waits.

        Args:
          state: where the run stands.
          loss: of the step, over all processes, [].
          norm: of its gradient, [].
        """
        if self.learning_rate is not None:
            rate = self.learning_rate(state.step) * state.plateau_factor
            for group in self.optimizer.param_groups:
                group["lr"] = rate * group.get("lr_scale", 1.0)
                group["updates"] = state.step
        found_inf = (~(loss + norm).isfinite()).float()
        optimizer: Any = self.optimizer
        if getattr(optimizer, "_step_supports_amp_scaling", False):  # as torch's GradScaler asks
            optimizer.found_inf = found_inf
            optimizer.step()
            del optimizer.found_inf
        elif not found_inf:
            optimizer.step()
        optimizer.zero_grad()
        if not self._has_updated:  # what could not be saved is told now, not after an hour
            optimizer_tensors(optimizer, self.model)
            self._has_updated = True
        if self.weight_noise is not None:
            groups = optimizer.param_groups
            self.weight_noise(groups, seed=state.seed, step=state.step, skipped=found_inf)
        self.precision.update(found_inf)
        self.task.after_update(optimizer, state, found_inf)
        after_step = getattr(self.model, "after_step", None)
        if after_step is not None:
            after_step()
        if self.average is not None:
            self.average.update(self.model, state.step + 1, state.mean_begun)


# What is done before the first step of a compiled network: each shape is compiled.


def warm_up(
    run: TrainState, world: World, stop: object = False, say: Callable[[str], None] = print
) -> None:
    """Runs the network once forward and backward for each shape that the data's batches have.

    Nothing moves by it: neither weights nor buffers nor the position in the data.  Afterwards no
    layer is compiled any more: a batch of another shape, as one that was split, runs without.
    Does nothing if no layer is compiled.

    Args:
      run: made, not yet used.
      world: the processes that train together; all stop if one of them does.
      stop: true once a signal has come; asked before each shape, as one may take half a minute.
      say: is told how long it took.
    """
    layers = compiled_layers(run.model)
    if not layers:
        return
    started, shapes = time.monotonic(), 0
    buffers = [(buffer, buffer.clone()) for buffer in run.model.buffers()]
    run.model.train()
    for batch in run.source.one_of_each_shape():
        if world.maximum(int(bool(stop))):
            break
        on_device = run.task.to_device(batch, run.device)
        with run.precision.autocast():
            loss = run.task.loss(run.network, on_device)
        loss.sum.backward()  # type: ignore[no-untyped-call]
        run.optimizer.zero_grad()
        shapes += 1
    else:
        for layer in layers:
            layer.close()
    for buffer, before in buffers:
        buffer.copy_(before)
    say(f"compiled {shapes} shapes of a batch in {time.monotonic() - started:.0f} s")


# What a new run begins with: files of vectors, weights of another run.


_OVERFLOWS = ("Storage size calculation overflowed", "Overflow when unpacking long")
_NO_SIZE = re.compile("batch|length|rows|seed|steps|swa_|passes")
"""Matches the names of integer settings that do not change the size of a model."""


class FirstWeights(NamedTuple):
    """What a new model was given.

    Attributes:
      lines: what the task tells of its part.
      warm_start: None if it begins with nothing of another run.
    """

    lines: list[str]
    warm_start: WarmStartReport | None


def new_model(task: Task, device: torch.device) -> nn.Module:
    """Builds a task's model on a device.

    Raises:
      HParamsError: it needs more memory than there is.
    """
    with memory_for(task):
        return task.model().to(device)


@contextlib.contextmanager
def memory_for(task: Task) -> Iterator[None]:
    """Replaces the errors of Python and torch for too little memory.

    Args:
      task: whose model is built or measured inside the block.

    Raises:
      HParamsError: it needs more memory than there is; names the largest setting.
    """
    try:
        yield
    except (RuntimeError, TypeError, MemoryError) as error:
        told = str(error).rpartition("DefaultCPUAllocator: ")[2].partition("\n")[0]
        if not (
            isinstance(error, MemoryError)  # often without a message
            or is_out_of_memory(error)
            or any(overflow in told for overflow in _OVERFLOWS)
        ):
            raise
        raise HParamsError(
            f"the model of {task.name} needs more memory than this machine has"
            f"{f' ({told})' if told else ''}. Reduce {_largest_setting(task)}; then --dry_run "
            "prints how much memory a run needs."
        ) from error


def _largest_setting(task: Task) -> str:
    """Returns the setting that is probably too large, and a smaller value, for messages."""
    sizes = {
        name: value
        for name, value in task.told_hparams().items()
        if type(value) is int and value > 1 and not _NO_SIZE.search(name)
    }
    if not sizes:
        return "the sizes of its layers"
    fields = type(task.hparams).model_fields

    def growth(name: str) -> float:
        return sizes[name] / ((fields[name].default if name in fields else 0) or 1)

    name = max(sizes, key=growth)
    return f"{name}={sizes[name]}, for example to {name}={sizes[name] // 10 or 1}"


def first_weights(task: Task, model: nn.Module, config: RunConfig) -> FirstWeights:
    """Gives a new model what its task and then its command ask for.

    Args:
      task: whose hparams may name files.
      model: as it was drawn.
      config: of the run.
    """
    lines, report = task.first_weights(model), None
    if config.warm_start_from:
        patterns = config.warm_start_patterns
        report = warm_start(model, config.warm_start_from, patterns=patterns)
    return FirstWeights(lines, report)


def tell_first_weights(estimator: Estimator, begun: FirstWeights | None) -> None:
    """Says what a new run begins with.

    Args:
      estimator: that begins to train, in the leading process.
      begun: None if it goes on from a checkpoint.
    """
    if begun is None:
        return
    for line in begun.lines:
        estimator.say(line)
    tell_warm_start(estimator, begun.warm_start)


# How much memory training has taken.


_MEBIBYTE = 2**20


def peak_memory(device: torch.device) -> float:
    """Returns the most MiB that this process ever held: on its GPU, or without one in all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _MEBIBYTE
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes, but on macOS bytes: getrusage(2).
    return most / _MEBIBYTE if sys.platform == "darwin" else most / 1024


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
      hooks: what watches.
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
        self.summary = Summary(directory.path, leads=world.leads)
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
        run.model.train()
        run.tally.start_clock()
        started, before = time.monotonic(), state.seconds
        while state.step < until and not self._must_stop():
            batches = run.next_batches()
            totals = run.gradients(batches, state)
            self.world.sum(totals)
            norm = run.finish(totals, state)
            for hook in self.hooks:
                hook.before_update(self)
            run.update(state, totals[0], norm)

            state.step += 1
            state.batches_consumed += state.batches_per_step
            state.seconds = before + time.monotonic() - started
            run.tally.add(totals, norm)
            self._look_at_skipped(run)
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
                on_device = self.task.to_device(batch, self.world.device)
                with self.precision.autocast():
                    output = self.task.evaluated(model, on_device)
                if counts:
                    evaluator.update(output, on_device)
        self.task.agree(evaluator, self.world)
        self.world.sum(evaluator.sums)
        if self.is_asked_to_stop():
            return {}
        results, arrays = self.task.results(evaluator)
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
        source, begun = open_data(self.task, self.config, self.world, self.state, newest), None
        if newest is not None:
            newest.load_model(self.model)
        else:
            begun = first_weights(self.task, self.model, self.config)
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
                self.task.describe(self.directory, self.train_steps)  # of a run in Python
                # What trains nothing changes nothing.
                if newest is None or not self.is_done or not self.directory.exists:
                    self.directory.commit()  # as nothing does before all is known to fit
                tell_first_weights(self, begun)
        self.run = run
        self.summary.start(self.state.step)
        for line in opening_lines(self, source.report, run):
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
        self.task.restore_for_evaluation(self.model, state.task, checkpoint.task_tensors())
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

    def _look_at_skipped(self, run: TrainState) -> None:
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
        numbers, arrays = self.task.report(self.world)
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
