"""Schedules: in which order a run is trained, evaluated and decoded.

Whoever reads what another process trains waits for its checkpoints, and ends with the run, when
none has come for `eval_timeout_mins`, or at a signal.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch

from t2t_torch import registry
from t2t_torch.checkpoint.checkpoint import Checkpoint
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.metrics.metric import is_metric_of, lower_is_better
from t2t_torch.metrics.text_scores import SCORES
from t2t_torch.mode import Split
from t2t_torch.train.run_config import SCHEDULES, RunSchedule, check_patience
from t2t_torch.train.run_page import RunReport
from t2t_torch.train.stopping import (
    Watched,
    full_name,
    short_names,
    stop_reason,
)
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.features import Feature
    from t2t_torch.hparam import HParams
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.train.run_config import RunConfig


POLL_SECONDS = 1.0
"""From one look at the run directory to the next; a signal is seen as often."""

Decode = Callable[[Checkpoint, Split | None], Mapping[str, float]]
"""Decodes a checkpoint: a split, or what the command names (None); returns scores by name.  It is
called in all processes, and the leader's scores count.  If the checkpoint is deleted meanwhile all
of them raise a `DeletedError`."""


class DeletedError(CheckpointError):
    """A checkpoint was deleted while it was decoded."""


class Experiment:
    """Runs a schedule over an estimator.

    Args:
      estimator: what trains and evaluates.
      decode: what the schedules that decode call; None if there is nothing to decode.
      scores: the names of what it returns: they may be watched as metrics are.
      wait: called with seconds when there is nothing to do yet.
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        decode: Decode | None = None,
        scores: Iterable[str] = (),
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.estimator = estimator
        self.config = estimator.config
        self._decode = decode
        self._scores = tuple(scores)
        self._wait = wait
        self._watched: Watched | None = None

    def run(self, schedule: str) -> None:
        """Runs one of `SCHEDULES`.

        Raises:
          HParamsError: the mean of the weights waits for evaluations that are not made.
          UsageError: there is no such schedule, or no such metric to watch, or nothing to decode.
        """
        if schedule not in SCHEDULES:
            raise UsageError(
                f"there is no --schedule={schedule}. Schedules: {', '.join(SCHEDULES)}."
            )
        plan, estimator = SCHEDULES[schedule], self.estimator
        patience = estimator.task.hparams.swa_patience
        check_patience(patience, schedule, self.config.local_eval_frequency)
        if plan.evaluates and plan.repeats and not plan.data:
            self._watched = self._find_watched(plan)
        if not plan.trains:
            self._read_checkpoints(plan)
            return
        if plan.repeats:
            self._train_in_turns(self._decode_this_step if plan.decodes else dict)
        elif plan.evaluates:
            self._smoke_check()
            return
        elif not self._is_done():
            estimator.train(self._until(estimator.train_steps))
        ended = not self._is_beyond() and (estimator.is_done or not self._is_paused)
        if not estimator.signal and ended:
            self._note_end()

    def _smoke_check(self) -> None:
        """Trains one step, if the run is not done, and evaluates."""
        if not self._is_done():
            self.estimator.train(self.estimator.state.step + 1)
        if not self.estimator.signal:
            self.estimator.evaluate()

    def _read_checkpoints(self, plan: RunSchedule) -> None:
        """Evaluates or decodes the newest checkpoint, or each new one.

        Raises:
          CheckpointError: there is none, and none is waited for.
        """
        act = self._decode_newest if plan.decodes else self._evaluate_newest
        splits = {"": None, "train": Split.TRAIN, "eval": self.config.eval_split}
        split = splits[plan.data]
        if plan.repeats:
            self._for_each_checkpoint(lambda seen: act(split, seen))
        elif act(split, -1) < 0:
            raise CheckpointError(
                f"'{self.estimator.directory.path}' has no checkpoint to "
                f"{'decode with' if plan.decodes else 'evaluate'}. "
                "Train first: --schedule=train"
            )

    def _train_in_turns(self, then: Callable[[], Mapping[str, float]]) -> None:
        """Trains and evaluates until the run is done or a rule ends it.

        An evaluation that was due at the step of the checkpoint that the run goes on from is made
        first: its result was not known yet when that was written.
        """
        estimator, turn = self.estimator, self.config.local_eval_frequency
        self._is_done()  # says so; a last evaluation is still due
        if self._is_beyond():
            return
        while True:
            state, done = estimator.state, estimator.is_done or self._is_paused
            is_turn = turn > 0 and state.step % turn == 0
            if state.step and state.evaluated < state.step and (is_turn or done):
                self._evaluate_and_judge(then)
                if estimator.signal:
                    return
            reason = stop_reason(estimator.state, self.config)
            if reason:
                estimator.say(f"step {state.step}: {reason}")
                estimator.save(must_succeed=True)
            if reason or done:
                return
            next_turn = (state.step // turn + 1) * turn if turn else estimator.train_steps
            until = self._until(min(next_turn, estimator.train_steps))
            estimator.train(until, must_save=until == self.config.pause_at_step)
            if estimator.signal:
                return

    def _until(self, step: int) -> int:
        """Returns the step up to which training may go, if it is to go to this one."""
        return min(step, self.config.pause_at_step or step)

    @property
    def _is_paused(self) -> bool:
        return 0 < self.config.pause_at_step <= self.estimator.state.step

    def _evaluate_and_judge(self, then: Callable[[], Mapping[str, float]]) -> None:
        """Evaluates, and decodes; then the rules look at the watched metric."""
        estimator = self.estimator
        metrics = dict(estimator.evaluate())
        if not estimator.signal:
            metrics.update(then())
        if estimator.signal:
            return
        assert self._watched is not None
        estimator.judge(self._watched, self._rate(estimator.state.step, metrics))

    def _find_watched(self, plan: RunSchedule) -> Watched | None:
        """Finds the metric that the flags name among those that there will be.

        There is none if a run is watched by what it decodes and this process only evaluates.
        """
        asked = self.config.eval_early_stopping_metric.removeprefix("decode/")
        less = self.config.eval_early_stopping_metric_minimize
        names = self.estimator.task.evaluator().names()
        if names is None:
            return Watched(self.config.eval_early_stopping_metric, less is not False)
        if not plan.trains and asked in SCORES and asked not in short_names(names).values():
            return None
        if plan.decodes:
            names += self._scores
        name = full_name(self.config.eval_early_stopping_metric, names)
        return Watched(name, lower_is_better(name) if less is None else less)

    def _rate(self, step: int, metrics: Mapping[str, float]) -> float:
        """Notes the watched metric of a checkpoint; returns it, the leader's in all processes.

        It is NaN if there is none: nothing was decoded, as nothing was saved.
        """
        if self._watched is None:
            return math.nan
        world, (name, less) = self.estimator.world, self._watched
        value = metrics.get(name, math.nan) if world.leads else 0.0
        if world.leads:
            self.estimator.checkpoints.rate(step, value, lower_is_better=less, metric=name)
        return float(world.sum(torch.tensor(value, dtype=torch.float64, device=world.device)))

    def _decode_this_step(self) -> Mapping[str, float]:
        """Decodes with the checkpoint of this step, if the disk has taken it."""
        estimator = self.estimator
        checkpoint = estimator.checkpoints.path / f"ckpt-{estimator.state.step}"
        saved = False
        with estimator.world.leader_first() as leads:
            if leads:
                estimator.saving.finish()
                saved = checkpoint.is_dir()
        if not estimator.world.from_leader(int(saved)):
            return {}
        return self._decoder()(Checkpoint(estimator.state.step, checkpoint), None)

    def _evaluate_newest(self, split: Split | None, seen: int) -> int:
        """Evaluates the newest checkpoint if it is beyond a step; returns the last one seen."""
        newest = self.estimator.restore_newest(beyond=seen)
        if newest is None:
            return seen
        metrics = self.estimator.evaluate(split)
        if split is None and not self.estimator.signal:
            self._rate(newest.step, metrics)
        return newest.step

    def _decode_newest(self, split: Split | None, seen: int) -> int:
        """Decodes with the newest checkpoint if it is beyond a step; returns the last one seen."""
        estimator, decode = self.estimator, self._decoder()
        newest = estimator.newest_checkpoint()
        if newest is None or newest.step <= seen:
            return seen
        if not estimator.take_position(newest):
            return seen
        try:
            decode(newest, split)
        except DeletedError:
            return seen
        return newest.step

    def _decoder(self) -> Decode:
        if self._decode is None:
            raise UsageError("this experiment was given nothing that decodes.")
        return self._decode

    def _for_each_checkpoint(self, look: Callable[[int], int]) -> None:
        """Calls `look` with the last step seen whenever there may be a newer one.

        Args:
          look: returns the step that it has found, or what it was given.
        """
        estimator, seen, waited = self.estimator, -1, 0.0
        while not estimator.is_asked_to_stop() and not self._is_last(seen):
            found = look(seen) if self._has_newer(seen) else seen
            if found > seen:
                seen, waited = found, 0.0
            elif waited >= self.config.eval_timeout_mins * 60.0:
                estimator.say(f"no new checkpoint for {self.config.eval_timeout_mins} minutes")
                return
            else:
                self._wait(POLL_SECONDS)
                waited += POLL_SECONDS

    def _has_newer(self, seen: int) -> bool:
        """Whether the leader sees a folder of a later step: looking inside takes longer."""
        steps = [checkpoint.step for checkpoint in self.estimator.checkpoints.list()]
        return self.estimator.world.from_leader(int(bool(steps) and max(steps) > seen)) > 0

    def _is_last(self, seen: int) -> bool:
        """Whether the run has ended with this step; also by time, or early, as it has noted."""
        steps, ended = self.config.train_steps, self.estimator.directory.ended_at()
        last = 0 < steps <= seen or (ended is not None and 0 <= ended <= seen)
        return self.estimator.world.from_leader(int(last)) > 0

    def _note_end(self) -> None:
        estimator = self.estimator
        with estimator.world.leader_first() as leads:
            if leads:
                estimator.saving.finish()
                with contextlib.suppress(OSError):  # a hint for those who wait
                    estimator.directory.note_end(estimator.state.step)
                if estimator.saving.step == estimator.state.step:  # by this command
                    estimator.checkpoints.prune(estimator.state.step)

    def _is_done(self) -> bool:
        """Whether nothing is left to train, of which it says why."""
        estimator, config = self.estimator, self.config
        estimator.begin()
        if not estimator.is_done:
            return False
        step, flag, value = estimator.state.step, "train_steps", estimator.train_steps
        done = f"is at step {step}"
        if config.train_epochs:
            flag, value = "train_epochs", config.train_epochs
        if step < estimator.train_steps:
            flag, value = "train_seconds", config.train_seconds
            done = f"has trained {estimator.state.seconds:.1f} seconds"
        estimator.say(
            f"nothing to train: --{flag}={value} is absolute, counted from the beginning of the "
            f"run, which {done} already; raise it to train on"
        )
        return True

    def _is_beyond(self) -> bool:
        """Whether the run has more steps than were asked for: nothing of it is due or changed."""
        return self.estimator.state.step > self.estimator.train_steps


# Which hooks watch a run.


def chosen_hooks(config: RunConfig, hparams: HParams) -> list[Hook]:
    """Makes the hooks that flags and hparams ask for, each once, and the run's page.

    The page comes last: it shows what the others have made.

    Raises:
      RegistryError: a name is not registered.
      UsageError: a hook lacks what it needs, or what is registered is no `Hook`.
    """
    names = list(config.hooks)
    if config.profile:
        names.append("profile")
    if hparams.summarize_grads or hparams.summarize_vars:
        names.append("histograms")
    hooks: list[Hook] = []
    for name in dict.fromkeys(names):
        kind = registry.hook(name)
        hook = kind()
        if not isinstance(hook, Hook):
            code = getattr(inspect.unwrap(kind), "__code__", None)
            file = (
                code.co_filename
                if code
                else getattr(sys.modules.get(kind.__module__), "__file__", kind.__module__)
            )
            raise UsageError(
                f"--hooks={name}: {kind.__qualname__} in {file} is no Hook. Register a subclass of "
                "t2t_torch.train.task.Hook."
            )
        hooks.append(hook)
    return [*hooks, RunReport()]


# Metrics that a command names, beside the problem's own.


def add_metrics(
    task: LearningTask,
    names: Iterable[str],
    also: Callable[[Feature], Iterable[str]] | None = None,
) -> None:
    """Adds metrics to what a task's evaluations report, each for the targets that it is of.

    Args:
      task: of a problem, or of several.
      names: registered metrics.
      also: returns more names, for a target.

    Raises:
      UsageError: a name is of none of the targets.
      RegistryError: there is no such metric.
    """
    asked = list(dict.fromkeys(names))
    fitting: set[str] = set()
    for one in task.tasks.values():
        more = {}
        for target, feature in one.features.targets.items():
            found = [name for name in asked if is_metric_of(name, feature)]
            fitting.update(found)
            more[target] = [*found, *(also(feature) if also is not None else ())]
        one.more_metrics = more
    missing = [name for name in asked if name not in fitting]
    if missing:
        raise UsageError(
            f"--eval_metrics: no target of {task.name!r} is one that {', '.join(missing)} is a "
            "metric of; docs/metrics.md tells of each which are. Leave it out."
        )
    task.evaluator()  # one that lacks what it reads is refused before training
