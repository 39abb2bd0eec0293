"""Schedules: the order of training, evaluation and decoding in a run.

Schedules that only read another process's checkpoints wait for new ones.  They end when the run
ends, after `eval_timeout_mins` without a new checkpoint, or at a signal.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.hparam import EVERY_ROW
from t2t_torch.metrics.metric import is_metric_of, lower_is_better
from t2t_torch.metrics.text_scores import SCORES
from t2t_torch.mode import Split
from t2t_torch.reports.baseline import warnings_of
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.run.checkpoint_directory import Ratings
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.train.digests import DigestLog
from t2t_torch.train.run_config import SCHEDULES, RunSchedule, check_patience
from t2t_torch.train.run_page import RunReport
from t2t_torch.train.stopping import Watched, full_name, short_names
from t2t_torch.train.task import Hook

if TYPE_CHECKING:
    from pathlib import Path

    from t2t_torch.features import Feature
    from t2t_torch.hparam import HParams
    from t2t_torch.problem import Problem
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.problem_task import LearningTask
    from t2t_torch.train.run_config import RunConfig


POLL_SECONDS = 1.0
"""Interval between checks of the run directory and of signals."""

Decode = Callable[[Checkpoint, Split | None], Mapping[str, float]]
"""Decodes a split, or the inputs of the command (None), with a checkpoint; returns scores by name.
Called in all processes; the leader's scores count.  If the checkpoint is deleted meanwhile, all
processes raise a `DeletedError`."""


class DeletedError(CheckpointError):
    """A checkpoint was deleted while it was decoded."""


class Experiment:
    """Runs a schedule with an estimator.

    Args:
      estimator: the estimator to train and evaluate with.
      decode: function for schedules that decode; None if there is nothing to decode.
      scores: names of the scores that `decode` returns; they can be monitored like metrics.
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
          HParamsError: averaging of the weights waits for evaluations that never happen.
          UsageError: the schedule or the metric to monitor does not exist, or there is nothing to
            decode.
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
        trains_on_dev = getattr(estimator.task.hparams, "fold", "") == EVERY_ROW
        if plan.repeats and not trains_on_dev:
            self._train_in_turns(self._decode_this_step if plan.decodes else dict)
        elif plan.evaluates and not trains_on_dev:
            if not self._is_done():
                self.estimator.train(self.estimator.state.step + 1)
            if not self.estimator.signal:
                self.estimator.evaluate()
            return
        elif not self._is_done():
            estimator.train(self._until(estimator.train_steps))
        ended = not self._is_beyond() and (estimator.is_done or not self._is_paused)
        if not estimator.signal and ended:
            self._note_end()

    def _read_checkpoints(self, plan: RunSchedule) -> None:
        """Evaluates or decodes the newest checkpoint, or each new one.

        Raises:
          CheckpointError: there is no checkpoint, and the schedule does not wait for one.
        """
        act = self._decode_newest if plan.decodes else self._evaluate_newest
        split = {"": None, "train": Split.TRAIN, "eval": self.config.eval_split}[plan.data]
        if plan.repeats:
            self._for_each_checkpoint(lambda last: act(split, last))
        elif act(split, -1) < 0:
            raise CheckpointError(
                f"'{self.estimator.directory.path}' has no checkpoint to "
                f"{'decode with' if plan.decodes else 'evaluate'}. "
                "Train first: --schedule=train"
            )

    def _train_in_turns(self, then: Callable[[], Mapping[str, float]]) -> None:
        """Trains and evaluates until the run is complete or a rule ends it.

        An evaluation that was due at the step of the resumed checkpoint runs first: the checkpoint
        was written before its result was known.
        """
        estimator, turn = self.estimator, self.config.local_eval_frequency
        self._is_done()  # prints the reason; a last evaluation is still due
        first = estimator.state.step
        if self._is_beyond():
            return
        while True:
            state, done = estimator.state, estimator.is_done or self._is_paused
            is_turn = turn > 0 and state.step % turn == 0
            if state.step and state.evaluated < state.step and (is_turn or done):
                self._evaluate_and_judge(then)
                if estimator.signal:
                    return
            estimator.anneal()
            reason = estimator.stop_reason()
            if reason:
                estimator.say(f"step {state.step}: {reason}")
                if state.step == first:
                    self._warn_of_changes()
                estimator.save(must_succeed=True)
            if reason or done:
                return
            next_turn = (state.step // turn + 1) * turn if turn else estimator.train_steps
            until = self._until(min(next_turn, estimator.end))
            estimator.train(until, must_save=until == self.config.pause_at_step)
            if estimator.signal:
                return

    def _until(self, step: int) -> int:
        """Returns the step to train to, at most `step`."""
        return min(step, self.config.pause_at_step or step)

    @property
    def _is_paused(self) -> bool:
        return 0 < self.config.pause_at_step <= self.estimator.state.step

    def _evaluate_and_judge(self, then: Callable[[], Mapping[str, float]]) -> None:
        """Evaluates and decodes, then applies the rules for the monitored metric."""
        estimator = self.estimator
        metrics = dict(estimator.evaluate())
        if not estimator.signal:
            metrics.update(then())
        if estimator.signal:
            return
        assert self._watched is not None
        estimator.judge(self._watched, *self._rate(estimator.state.step, metrics))
        for hook in estimator.hooks:
            hook.after_rating(estimator)

    def _find_watched(self, plan: RunSchedule) -> Watched | None:
        """Returns the monitored metric set by the flags, among the available ones.

        It is None if a run is monitored by decoding scores and this process only evaluates.
        """
        requested = self.config.eval_early_stopping_metric.removeprefix("decode/")
        less = self.config.eval_early_stopping_metric_minimize
        names = self.estimator.task.evaluator().names()
        if names is None:
            return Watched(self.config.eval_early_stopping_metric, less is not False)
        if not plan.trains and requested in SCORES and requested not in short_names(names).values():
            return None
        if plan.decodes:
            names += self._scores
        name = full_name(self.config.eval_early_stopping_metric, names)
        return Watched(name, lower_is_better(name) if less is None else less)

    def _rate(self, step: int, metrics: Mapping[str, float]) -> tuple[float, float]:
        """Records and returns the monitored metric of a checkpoint, and its loss; the leader's in
        all processes.

        The metric is NaN if there is none because nothing was saved and decoded, the loss if the
        evaluation has none.
        """
        if self._watched is None:
            return math.nan, math.nan
        world, (name, less) = self.estimator.world, self._watched
        value, loss = metrics.get(name, math.nan), metrics.get("loss", math.nan)
        if world.leads:
            rate = self.estimator.checkpoints.rate
            rate(step, value, lower_is_better=less, metric=name, loss=loss)
        numbers = [value, loss] if world.leads else [0.0, 0.0]
        both = world.sum(torch.tensor(numbers, dtype=torch.float64, device=world.device))
        return float(both[0]), float(both[1])

    def _decode_this_step(self) -> Mapping[str, float]:
        """Decodes with the checkpoint of this step, if it was written."""
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

    def _evaluate_newest(self, split: Split | None, last: int) -> int:
        """Evaluates the newest checkpoint if it is beyond a step; returns the last step seen."""
        newest = self.estimator.restore_newest(beyond=last)
        if newest is None:
            return last
        metrics = self.estimator.evaluate(split)
        if split is None and not self.estimator.signal:
            self._rate(newest.step, metrics)
        return newest.step

    def _decode_newest(self, split: Split | None, last: int) -> int:
        """Decodes with the newest checkpoint if it is beyond a step; returns the last step seen."""
        decode = self._decoder()
        newest = self.estimator.restore_newest(beyond=last, weights=False)
        if newest is None:
            return last
        try:
            decode(newest, split)
        except DeletedError:
            return last
        return newest.step

    def _decoder(self) -> Decode:
        if self._decode is None:
            raise UsageError("this experiment was given nothing that decodes.")
        return self._decode

    def _for_each_checkpoint(self, read: Callable[[int], int]) -> None:
        """Calls `read` with the last step seen whenever there may be a newer checkpoint.

        Args:
          read: returns the step of the checkpoint that it read, or its argument.
        """
        estimator, last, waited = self.estimator, -1, 0.0
        while not estimator.is_stop_requested() and not self._is_last(last):
            # Steps of folders that the leader sees; their files are not checked.
            newest = max((one.step for one in estimator.checkpoints.list()), default=-1)
            step = read(last) if estimator.world.from_leader(newest) > last else last
            if step > last:
                last, waited = step, 0.0
            elif waited >= self.config.eval_timeout_mins * 60.0:
                estimator.say(f"no new checkpoint for {self.config.eval_timeout_mins} minutes")
                return
            else:
                self._wait(POLL_SECONDS)
                waited += POLL_SECONDS

    def _is_last(self, step: int) -> bool:
        """Returns True if the run ended at this step, as its directory records."""
        steps, ended = self.config.train_steps, self.estimator.directory.ended_at()
        last = 0 < steps <= step or (ended is not None and 0 <= ended <= step)
        return self.estimator.world.from_leader(int(last)) > 0

    def _note_end(self) -> None:
        estimator = self.estimator
        with estimator.world.leader_first() as leads:
            if leads:
                estimator.saving.finish()
                with contextlib.suppress(OSError):  # only a hint for waiting processes
                    estimator.directory.note_end(estimator.state.step)
                if estimator.saving.step == estimator.state.step:  # by this command
                    estimator.checkpoints.prune(estimator.state.step)

    def _is_done(self) -> bool:
        """Returns True if no training is left; prints the reason."""
        estimator, config = self.estimator, self.config
        estimator.begin()
        if not estimator.is_done:
            return False
        if estimator.stop_reason():
            return True
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
        self._warn_of_changes()
        return True

    def _warn_of_changes(self) -> None:
        """Warns that settings were changed for a run in which nothing is trained."""
        changes, place = self.estimator.directory.changes, self.estimator.directory.path
        if changes:
            self.estimator.say(
                f"warning: nothing is trained, so these changes have no effect: "
                f"{', '.join(changes)}. The model is that of before. To train it further with "
                "them, give more --train_steps; to train a new one, another --output_dir (its "
                f"first weights may be those of this run: --warm_start_from={place})"
            )

    def _is_beyond(self) -> bool:
        """Returns True if the run has more steps than requested: nothing is due or changed."""
        return self.estimator.state.step > self.estimator.train_steps


def chosen_hooks(config: RunConfig, hparams: HParams) -> list[Hook]:
    """Creates the hooks set by flags and hparams, each once, and the run page.

    The page comes last because it shows the output of the other hooks.

    Raises:
      RegistryError: a name is not registered.
      UsageError: a requirement of a hook is missing, or a registered object is not a `Hook`.
    """
    names = list(config.hooks)
    if config.profile:
        names.append("profile")
    if hparams.summarize_grads or hparams.summarize_vars:
        names.append("histograms")
    names.append("predictions")
    hooks: list[Hook] = []
    for name in dict.fromkeys(names):
        kind = registry.hook(name)
        hook = kind()
        if not isinstance(hook, Hook):
            file = inspect.getfile(inspect.unwrap(kind))
            raise UsageError(
                f"--hooks={name}: {kind.__qualname__} in {file} is no Hook. Register a subclass of "
                "t2t_torch.train.task.Hook."
            )
        hooks.append(hook)
    if config.digest_every:
        hooks.append(DigestLog())
    return [*hooks, RunReport()]


class BaselineCheck(Hook):
    """Warns at the end of a complete run whose model does not exceed a trivial baseline of its
    data; the model is the best checkpoint, or the newest where none is known as best.

    Args:
      problem: the problem of the run.
      data_dir: directory of its data, where `t2t-datagen` has written the baselines.
    """

    in_banner = False

    def __init__(self, problem: Problem, data_dir: Path) -> None:
        self._problem = problem
        self._data_dir = data_dir

    def end(self, estimator: Estimator) -> None:
        """Prints a warning for each baseline that was not exceeded."""
        fits = estimator.task.hparams.fits  # such a model is the baseline
        if fits or not (estimator.has_ended and estimator.world.leads):
            return
        directory = estimator.directory.path
        reports = {
            report["step"]: {n: v for n, v in report.items() if isinstance(v, float)}
            for report in MetricsFile(directory).read()
            if report["split"] == Split.EVAL.value
        }
        ranked = []
        with contextlib.suppress(CheckpointError):  # a damaged file, which the next rating renews
            ranked = Ratings(directory).ranked()
        steps = [step for step in ranked if step in reports] or sorted(reports)[-1:]
        for warning in (
            warnings_of(self._problem, self._data_dir, reports[steps[0]]) if steps else ()
        ):
            estimator.say(f"{warning}: train longer, or try --model=auto --hparams_set=auto")


def add_metrics(
    task: LearningTask, names: Iterable[str], also: Callable[[Feature], Iterable[str]] | None = None
) -> None:
    """Adds metrics to a task's evaluations, each for the targets that it fits.

    Args:
      task: task with one or several problems.
      names: registered metrics.
      also: returns more names for a target.

    Raises:
      UsageError: a metric fits none of the targets.
      RegistryError: a metric does not exist.
    """
    requested = list(dict.fromkeys(names))
    fitting: set[str] = set()
    for one in task.tasks.values():
        more = {}
        for target, feature in one.features.targets.items():
            suitable = [name for name in requested if is_metric_of(name, feature)]
            fitting.update(suitable)
            more[target] = [*suitable, *(also(feature) if also is not None else ())]
        one.more_metrics = more
    if missing := [name for name in requested if name not in fitting]:
        raise UsageError(
            f"--eval_metrics: no target of {task.name!r} is one that {', '.join(missing)} is a "
            "metric of; docs/reference/metrics.md lists the metrics of each. Leave it out."
        )
    task.evaluator()  # rejects metrics with missing inputs before training
