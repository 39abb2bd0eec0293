"""The owner of a run directory: it trains a task there, and evaluates what it has trained."""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING

import torch
from torch import nn

import t2t_torch
from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.checkpoint.directory import CheckpointDirectory, SaveError
from t2t_torch.checkpoint.trainer_state import TrainerState
from t2t_torch.train.distributed import ONE_PROCESS, Agreement, World
from t2t_torch.train.learner import Learner, autocast, to_device, total_loss
from t2t_torch.train.opening import opening_lines
from t2t_torch.train.randomness import INITIALIZATION, seed_batch
from t2t_torch.train.resume import check_position, check_seed
from t2t_torch.train.run_config import DEFAULT_SEED, RunConfig
from t2t_torch.train.stop import StopRequest
from t2t_torch.train.summary import Progress, Summary
from t2t_torch.train.tally import totals_of

if TYPE_CHECKING:
    from t2t_torch.train.run_directory import RunDirectory
    from t2t_torch.train.task import Task


class Estimator:
    """Trains and evaluates a task in a run directory.

    Training goes on from the newest whole checkpoint, bit by bit as if it had never stopped:
    weights, optimizer, position in the data and random numbers are functions of the step alone.

    Attributes:
      state: where the run stands.
      signal: the number of the signal that has asked the processes to stop, 0 if none has.

    Args:
      task: what is trained.
      directory: where.
      config: how long, and what is kept.
      world: the processes that train together.
      stop: asked between batches whether to save and stop.
    """

    def __init__(
        self,
        task: Task,
        directory: RunDirectory,
        config: RunConfig,
        *,
        world: World = ONE_PROCESS,
        stop: StopRequest | None = None,
    ) -> None:
        self.task = task
        self.directory = directory
        self.config = config
        self.world = world
        self.checkpoints = CheckpointDirectory(directory.path, keep=config.keep_checkpoint_max)
        self.state = TrainerState(version=t2t_torch.__version__)
        self.signal = 0
        self._stop = StopRequest() if stop is None else stop  # false is what it is before a signal
        self._agree = Agreement(world, 2)
        self._model: nn.Module | None = None
        self._learner: Learner | None = None
        self._summary = Summary(directory.path, leads=world.leads)
        shown = world.leads
        self._progress = Progress(config.train_steps, shown=shown, counted=task.counted)
        self._saved_at = time.monotonic()
        self._saved_step = 0  # or tried to
        self._failures = 0

    def train(self, until: int, *, must_save: bool = True) -> None:
        """Trains until `until` steps are done since the run began, or a signal; saves at the end.

        Args:
          until: steps, counted from the run's beginning.
          must_save: whether it is an error if the last checkpoint cannot be written.  A signal's
            and that of `config.train_steps` must be in any case; of others a warning tells.

        Raises:
          CheckpointError: the run cannot be gone on with: it is taken, broken, or of other data;
            or the last checkpoint cannot be written.
          T2TError: the loss is not finite.
        """
        run = self.begin()
        run.model.train()
        run.tally.start_clock()
        while self.state.step < until and not self._must_stop():
            totals = torch.zeros(4, dtype=torch.float64, device=self.world.device)
            for micro_batch in range(run.accumulate):
                number, batch = next(run.batches)
                seed_batch(self.state.seed, number, self.world.device)
                more = micro_batch + 1 < run.accumulate
                with self.world.accumulating(run.network, more=more):
                    with autocast(self.task.hparams, self.world.device):
                        loss = total_loss(run.network(batch))
                    loss.sum.backward()  # type: ignore[no-untyped-call]
                totals += totals_of(loss, batch, self.task.paddings)

            self.world.sum(totals)
            norm = run.finish_gradients(totals[1], self.world.size)
            run.update(self.state.step, totals[0], norm)

            self.state.step += 1
            self.state.batches_consumed += self.state.batches_per_step
            run.tally.add(totals, norm, self.state.step)
            self._progress.advance(self.state.step)
            if self._due(self.config.log_step_count_steps):
                self._report(run)
            if self._due(self.config.local_eval_frequency):
                self.save()
        run.tally.stop_clock()
        if self.state.step:
            must_save |= self.signal != 0 or self.state.step >= self.config.train_steps
            if must_save or self._saved_step != self.state.step:
                self.save(must_succeed=must_save)
        if run.tally.steps and (self.signal or self.state.step >= self.config.train_steps):
            self._report(run)  # of the last steps, fewer than log_step_count_steps

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the weights as they are now, and writes them to the summaries.

        Nothing is returned or written if a signal came in between.
        """
        model = self.model.eval()
        evaluator = self.task.evaluator()
        split, rank, size = self.config.eval_split, self.world.rank, self.world.size
        batches = self.task.eval_batches(split, rank=rank, world_size=size)
        limit = self.config.eval_steps
        share = -(-max(limit - rank, 0) // size) if limit else None  # of this process
        for batch in itertools.islice(batches, share):
            if self._stop:
                break
            on_device = to_device(batch, self.world.device)
            with autocast(self.task.hparams, self.world.device):
                output = model(on_device)
            evaluator.update(output, on_device)
        self.world.sum(evaluator.sums)
        if self.is_asked_to_stop():
            return {}
        results = evaluator.result()
        self._summary.write(split.value, self.state.step, results)
        # "metrics-<problem>/targets/accuracy" is told as "accuracy", others with their target.
        named = {name.partition("/")[2].removeprefix("targets/") or name: name for name in results}
        shown = "  ".join(f"{short} {results[name]:.4f}" for short, name in named.items())
        self.say(f"step {self.state.step}  {split.value}:  {shown}")
        return results

    def begin(self) -> Learner:
        """Takes the run directory and makes what the loop needs, as the newest checkpoint left it.

        Done by the first `train`; does nothing when it has been done.

        Raises:
          CheckpointError: as `train`.
        """
        if self._learner is not None:
            return self._learner
        newest = self.newest_checkpoint(repair=True)
        if newest is None:
            given = self.config.random_seed
            self.state.seed = DEFAULT_SEED if given is None else given
        else:
            self.state = newest.trainer_state()
            self.state.version = t2t_torch.__version__
            check_seed(self.state, newest.path, self.config.random_seed)
        world = self.world
        source = self.task.train_batches(
            seed=self.state.seed,
            start=self.state.batches_consumed,
            rank=world.rank,
            world_size=world.size,
        )
        accumulate = self.task.hparams.optimizer_multistep_accumulate_steps or 1
        if newest is None:
            self.state.batches_per_step = accumulate * world.size
            self.state.plan_fingerprint = source.plan_fingerprint
        else:
            check_position(
                self.state,
                newest.path,
                fingerprint=source.plan_fingerprint,
                accumulate=accumulate,
                world_size=world.size,
            )
            newest.load_model(self.model)
        run = Learner.create(
            self.task, self.model, source, self.state, world, train_steps=self.config.train_steps
        )
        if newest is not None:
            newest.load_optimizer(run.optimizer, self.model)
        with world.leader_first() as leads:
            if leads:
                self.directory.commit()  # nothing of a run is changed before all is known to fit
        for line in opening_lines(self.task, self.config, self.state, source.report, run):
            self.say(line)
        self._progress.start(self.state.step)
        self._summary.start(self.state.step)
        self._learner = run
        return run

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
        """Writes a checkpoint of this step, if it is not there yet.

        Args:
          must_succeed: else a disk that fails is warned of, counted, and training goes on.

        Raises:
          SaveError: it could not be written, and must be.
          T2TError: a loss was not finite: weights made of it are not kept.
        """
        run = self.begin()
        self.state.tokens = run.tally.tokens()
        with self.world.leader_first() as leads:
            if leads:
                try:
                    self.checkpoints.save(run.model, run.optimizer, self.state)
                except SaveError as error:
                    self._failures += 1
                    if must_succeed:
                        raise
                    print(f"WARNING: step {self.state.step} IS NOT SAVED: {error}", file=sys.stderr)
        self._saved_at = time.monotonic()
        self._saved_step = self.state.step

    def restore(self, checkpoint: Checkpoint) -> None:
        """Takes the weights and the step of a checkpoint, to evaluate them."""
        state = checkpoint.trainer_state()
        checkpoint.load_model(self.model)
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

    def _due(self, frequency: int) -> bool:
        return frequency > 0 and self.state.step % frequency == 0

    def _must_stop(self) -> bool:
        """Saves if the clock says so; returns whether a signal has come, in any process."""
        seconds = self.config.save_checkpoints_secs
        save_now = seconds > 0 and time.monotonic() - self._saved_at >= seconds
        self.signal, agreed_to_save = self._agree(self._stop.signal, save_now)
        if agreed_to_save:
            self.save()
        return self.signal != 0

    def _report(self, run: Learner) -> None:
        report = run.tally.read()
        report["learning_rate"] = run.optimizer.param_groups[0]["lr"]
        report["checkpoint_failures"] = float(self._failures)
        self._summary.write("train", self.state.step, report)
        self._progress.report(self.state.step, report)

    def say(self, line: str) -> None:
        """Prints a line, in the leading process."""
        self._progress.say(line)

    def close(self) -> None:
        """Ends the reports and lets others train here."""
        self._agree.finish()
        self._progress.close()
        self._summary.close()
        self.directory.unlock()

    @property
    def model(self) -> nn.Module:
        """The model, on its device; made when it is first asked for."""
        if self._model is None:
            seed_batch(self.state.seed, INITIALIZATION, self.world.device)
            self._model = self.task.model().to(self.world.device)
        return self._model

    def __enter__(self) -> Estimator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
