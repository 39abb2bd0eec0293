"""The owner of a run directory: it trains a task there, and evaluates what it has trained."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

import t2t_torch
from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.compute.distributed import ONE_PROCESS, Agreement, World
from t2t_torch.compute.lockstep import in_step
from t2t_torch.compute.network import share_buffers
from t2t_torch.compute.precision import Precision
from t2t_torch.mode import Split
from t2t_torch.summary.memory import peak_memory
from t2t_torch.summary.progress import Progress
from t2t_torch.summary.summary import Summary
from t2t_torch.train.crash import dump
from t2t_torch.train.first_weights import first_weights, new_model, tell_first_weights
from t2t_torch.train.learner import Learner
from t2t_torch.train.opening import opening_lines
from t2t_torch.train.randomness import INITIALIZATION, seed_batch
from t2t_torch.train.resume import check_seed, open_data, steps_of_run
from t2t_torch.train.run_config import DEFAULT_SEED, RunConfig
from t2t_torch.train.saving import Saving
from t2t_torch.train.stop import StopRequest
from t2t_torch.train.stopping import short_names
from t2t_torch.train.warm_up import warm_up

if TYPE_CHECKING:
    from t2t_torch.train.hook import Hook
    from t2t_torch.train.run_directory import RunDirectory
    from t2t_torch.train.task import Task


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
        self.run: Learner | None = None
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

    def begin(self) -> Learner:
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
        run = Learner.create(
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

    def _look_at_skipped(self, run: Learner) -> None:
        """Ends the run if nothing but steps that are not finite have come for too long."""
        skipped = run.tally.skipped_in_a_row()
        step, batches = run.recent[0 if run.tally.is_late else -1]
        if skipped:
            self.say(f"step {step + 1}: the loss or its gradient is not finite; skipped")
        if skipped and skipped >= self.config.max_consecutive_nonfinite:
            raise dump(
                self.directory.path, run, self.state.seed, step, batches, self.world.rank, skipped
            )

    def _report(self, run: Learner) -> None:
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
