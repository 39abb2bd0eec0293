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
from t2t_torch.train.run_config import IN_TURNS, SCHEDULES, TRAINING, check_patience
from t2t_torch.train.run_page import RunReport
from t2t_torch.train.stopping import (
    Watched,
    after_evaluation,
    full_name,
    short_names,
    stop_reason,
    with_mean,
)
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import TrainerState
    from t2t_torch.features import Feature
    from t2t_torch.hparam import HParams
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.multi_task import MultiTask
    from t2t_torch.train.problem_task import ProblemTask
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
        patience = self.estimator.task.hparams.swa_patience
        check_patience(patience, schedule, self.config.local_eval_frequency)
        if schedule in IN_TURNS or schedule == "continuous_eval":
            self._watched = self._find_watched(schedule)
        getattr(self, schedule)()
        trained = schedule in TRAINING and schedule != "test"
        ended = not self._is_beyond() and (self.estimator.is_done or not self._is_paused)
        if trained and not self.estimator.signal and ended:
            self._note_end()

    def continuous_train_and_eval(self) -> None:
        """Trains; evaluates every `local_eval_frequency` steps, and at the end."""
        self._train_in_turns(dict)

    def train_eval_and_decode(self) -> None:
        """Trains; evaluates and decodes every `local_eval_frequency` steps, and at the end."""
        self._train_in_turns(self._decode_this_step)

    def train(self) -> None:
        """Trains, and evaluates nothing."""
        if not self._is_done():
            self.estimator.train(self._until(self.estimator.train_steps))

    def evaluate(self) -> None:
        """Evaluates the newest checkpoint once.

        Raises:
          CheckpointError: there is none.
        """
        self._restore()
        self.estimator.evaluate()

    def evaluate_on_train_data(self) -> None:
        """Evaluates the newest checkpoint once, on the training split, dropout off.

        Raises:
          CheckpointError: there is none.
        """
        self._restore()
        self.estimator.evaluate(Split.TRAIN)

    def continuous_eval(self) -> None:
        """Evaluates each new checkpoint, up to the run's last, and tells the best from the rest."""
        self._evaluate_each(None)

    def continuous_eval_on_train_data(self) -> None:
        """Evaluates each new checkpoint on the training split, up to the run's last."""
        self._evaluate_each(Split.TRAIN)

    def decode(self) -> None:
        """Decodes with the newest checkpoint once, what the command names.

        Raises:
          CheckpointError: there is none.
        """
        if self._decode_newest(None, -1) < 0:
            raise self._nothing_there("decode with")

    def continuous_decode(self) -> None:
        """Decodes what the command names with each new checkpoint, up to the run's last."""
        self._for_each_checkpoint(lambda seen: self._decode_newest(None, seen))

    def continuous_decode_from_file(self) -> None:
        """Decodes a file with each new checkpoint, up to the run's last."""
        self.continuous_decode()

    def continuous_decode_on_train_data(self) -> None:
        """Decodes the training split with each new checkpoint, up to the run's last."""
        self._for_each_checkpoint(lambda seen: self._decode_newest(Split.TRAIN, seen))

    def continuous_decode_on_eval_data(self) -> None:
        """Decodes the evaluated split with each new checkpoint, up to the run's last."""
        split = self.config.eval_split
        self._for_each_checkpoint(lambda seen: self._decode_newest(split, seen))

    def test(self) -> None:
        """Trains one step, if the run is not done, and evaluates: whether all fits together."""
        if not self._is_done():
            self.estimator.train(self.estimator.state.step + 1)
        if not self.estimator.signal:
            self.estimator.evaluate()

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
        value = self._rate(estimator.state.step, metrics)
        before = estimator.state.plateau_factor
        estimator.state = after_evaluation(estimator.state, self._watched, value, self.config)
        patience = estimator.task.hparams.swa_patience
        waited = estimator.state.mean_begun < 0
        estimator.state = with_mean(estimator.state, self._watched, value, patience)
        if waited and estimator.state.mean_begun >= 0:
            estimator.say(f"step {estimator.state.step}: the mean of the weights begins")
        if estimator.state.plateau_factor != before:
            estimator.say(
                f"step {estimator.state.step}: {self.config.eval_early_stopping_metric} stands "
                f"still; the learning rate is {estimator.state.plateau_factor:g} times its "
                "schedule's"
            )

    def _find_watched(self, schedule: str) -> Watched | None:
        """Finds the metric that the flags name among those that there will be.

        There is none if a run is watched by what it decodes and this process only evaluates.
        """
        asked = self.config.eval_early_stopping_metric.removeprefix("decode/")
        less = self.config.eval_early_stopping_metric_minimize
        names = self.estimator.task.metric_names()
        if names is None:
            return Watched(self.config.eval_early_stopping_metric, less is not False)
        if (
            schedule == "continuous_eval"
            and asked in SCORES
            and asked not in short_names(names).values()
        ):
            return None
        if schedule == "train_eval_and_decode":
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

    def _restore(self) -> None:
        if self.estimator.restore_newest() is None:
            raise self._nothing_there("evaluate")

    def _nothing_there(self, wanted: str) -> CheckpointError:
        return CheckpointError(
            f"'{self.estimator.directory.path}' has no checkpoint to {wanted}. "
            "Train first: --schedule=train"
        )

    def _evaluate_each(self, split: Split | None) -> None:
        def evaluate(seen: int) -> int:
            newest = self.estimator.restore_newest(beyond=seen)
            if newest is None:
                return seen
            metrics = self.estimator.evaluate(split)
            if split is None and not self.estimator.signal:
                self._rate(newest.step, metrics)
            return newest.step

        self._for_each_checkpoint(evaluate)

    def _decode_newest(self, split: Split | None, seen: int) -> int:
        """Decodes with the newest checkpoint if it is beyond a step; returns the last one seen."""
        estimator, decode = self.estimator, self._decoder()
        newest = estimator.newest_checkpoint()
        if newest is None or newest.step <= seen:
            return seen
        state: list[TrainerState] = []
        gone = estimator.checkpoints.is_gone_while(
            lambda one: state.append(one.trainer_state()), newest
        )
        if estimator.world.maximum(int(gone)):
            return seen
        (estimator.state,) = state
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
    task: ProblemTask | MultiTask,
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
    for one in getattr(task, "tasks", {"": task}).values():
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
