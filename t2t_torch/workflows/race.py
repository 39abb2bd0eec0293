"""Race of several models on a problem: successive halving by the dev metric within a time.

Each candidate is a run of `t2t-trainer` in a folder of its own.  Pauses are planned once, from the
time of a step of each candidate, and recorded; those that remain have the rest of the time, in
which their schedules end (`train/pace.py`).  A race that was killed continues from its runs, to the
same end.

Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification and Hyperparameter
Optimization", arXiv:1502.07943 (successive halving).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.declaration.problem import DeclaredProblem
from t2t_torch.errors import HParamsError, T2TError, UsageError
from t2t_torch.executor import available_cpus, environment
from t2t_torch.files import read_json
from t2t_torch.hparam import EVERY_ROW
from t2t_torch.mode import Split
from t2t_torch.reporter import SILENT, message, output, phase
from t2t_torch.signals import StopRequest
from t2t_torch.train.recommendation import AUTO, recommend_several
from t2t_torch.train.run_config import DEFAULT_SEED, IN_TURNS
from t2t_torch.workflows.leaderboard import (
    Leaderboard,
    Standing,
    measured,
    noise_of_gain,
    ranked,
    standing_of,
)
from t2t_torch.workflows.train import generate_data, train
from t2t_torch.workflows.train_record import processes
from t2t_torch.workflows.train_settings import TrainSettings

if TYPE_CHECKING:
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.recommendation import Recommendation
    from t2t_torch.train.task import Hook
    from t2t_torch.tune.tuner import Training, TrainingOutcome

PLAN = "race.json"
MINUTES = 10.0
"""Minutes of a race without `--train_seconds`."""
_SHARES = (0.25, 0.5, 1.0)  # of the steps of a candidate, at which the worse half ends
_SHARE_OF_TIME = 0.85  # that is planned; the rest is for evaluations and start-up
_CHEAP = 0.1  # share of the time: candidates that need less in all are trained to their end
_START_SECONDS = 6.0  # of a training process
_PROBE_STEPS, _PROBE_SECONDS = 20, 4
_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # seconds of a step, rounded up
_EVALUATIONS = 8  # of a candidate, at least
_NEAR = 0.05  # relative difference of errors and correlations that are called equal
_MANY_ROWS, _FOLDS = 2000, 5  # rows below which models are ranked by folds
_RESTARTS = 1  # of a candidate whose process was killed
_POLL_SECONDS = 0.1
_SPOKEN_SECONDS = 10.0  # from one line of progress to the next


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A candidate of a race.

    Attributes:
      name: name of its folder.
      settings: settings of its training; see `TrainSettings`.
      metric: short name of the metric.
      train_steps: steps of the whole training.
      seconds: estimated seconds of the planned steps, on one thread; 0: unknown, and little.
      planned_steps: steps that fit into the time, as it was estimated; 0: all.
      is_of_every_row: True if it is trained on the dev split, too, for steps that are known.
    """

    name: str
    settings: dict[str, Any]
    metric: str
    train_steps: int
    seconds: float
    planned_steps: int = 0
    is_of_every_row: bool = False

    def pause(self, share: float) -> int:
        """Returns the step of a share of the planned steps; 0: the end of the training."""
        steps = self.planned_steps or self.train_steps
        return 0 if share == 1 else max(1, round(share * steps))

    def of_rows(self, name: str, fold: str) -> Candidate:
        """Returns the candidate that is trained on other rows; see the hyperparameter `fold`."""
        hparams = ",".join(filter(None, (self.settings.get("hparams", ""), f"fold={fold}")))
        settings = {**self.settings, "hparams": hparams}
        return dataclasses.replace(self, name=f"{self.name}.{name}", settings=settings)

    def folds(self) -> list[Candidate]:
        """Returns the candidates of the folds of a cross-validation."""
        return [self.of_rows(f"fold{n}", f"{n}/{_FOLDS}") for n in range(1, _FOLDS + 1)]

    def of_every_row(self, steps: int, seconds: float) -> Candidate:
        """Returns the candidate that is trained on the dev split, too, for some steps, and not
        evaluated.
        """
        made = dataclasses.replace(self.of_rows("all", EVERY_ROW), is_of_every_row=True)
        left_out = ("eval_patience", "eval_early_stopping_metric", "keep_checkpoint_best")
        settings = {name: v for name, v in made.settings.items() if name not in left_out}
        settings |= {"schedule": "train", "local_eval_frequency": 0}
        return dataclasses.replace(
            made, settings=settings, train_steps=steps, seconds=seconds, planned_steps=0
        )


@dataclasses.dataclass
class Race:
    """A race in a folder.

    Attributes:
      problem: name of the problem.
      data_dir: its data.
      folder: folder of the race; each candidate has a subfolder.
      minutes: minutes of the whole race.
      settings: further settings of all trainings.
      stop: request to stop.
    """

    problem: str
    data_dir: Path
    folder: Path
    minutes: float
    settings: dict[str, Any]
    stop: StopRequest

    def __post_init__(self) -> None:
        self._failed: dict[str, str] = {}
        self._restarts: Counter[str] = Counter()
        self._spoken = 0.0
        self._parallel = 1.0  # candidates that share a processor until the end

    def run(self) -> list[Standing]:
        """Trains the candidates; returns the leaderboard, the best first.

        Raises:
          UsageError: no candidate can be trained.
        """
        candidates = self._planned()
        slow = [one for one in candidates if self._is_slow(one)]
        self._train([(one, 1.0) for one in candidates if one not in slow])
        for share in _SHARES:
            self._parallel = max(1, len(slow) / available_cpus())
            self._train([(one, share) for one in slow])
            if self.stop:
                break
            names = [one.name for one in self.standings(slow) if one.value is not None]
            kept = names[: _kept(len(names), available_cpus())]
            slow = [one for one in slow if one.name in kept]
        if not self.stop:
            self._validate(candidates)
        board = self.standings(candidates)
        if not self.stop and all(one.value is None for one in board):
            why = next(iter(self._failed.values()), "no evaluation")
            raise UsageError(f"no model could be trained: {why}")
        return board

    def _validate(self, candidates: Sequence[Candidate]) -> None:
        """Trains on the folds of small data the candidates that its dev split does not tell apart,
        the best first, as long as there is time.
        """
        if self._rows(Split.TRAIN) + self._rows(Split.EVAL) >= _MANY_ROWS:
            return
        content = read_json(self.folder / PLAN)
        if "folds" not in content:
            content["folds"] = self._with_folds(candidates)
            write_text(self.folder / PLAN, json.dumps(content, indent=2) + "\n")
        for one in candidates:
            if one.name in content["folds"]:
                self._train([(fold, 1.0) for fold in one.folds()])

    def trained_again(self, board: Leaderboard) -> Leaderboard:
        """Returns a leaderboard whose best model was trained again with the rows that were held out
        for dev, for as many steps as were best, if there is time.
        """
        problem, plan = registry.problem(self.problem), read_json(self.folder / PLAN)
        files = problem.declaration.files if isinstance(problem, DeclaredProblem) else None
        held_out = files and Split.EVAL in files.splits and files.of(Split.EVAL).is_held_out
        if not (held_out and board.members):
            return board
        steps = {one.name: one.step for one in board.standings}
        seconds = {one.name: one.seconds / (1 + one.folds) for one in board.standings}
        if "trained_again" not in plan:
            needed = _spent([seconds[name] for name in set(board.members)]) + _START_SECONDS
            left = 60 * self.minutes - _spent([one.seconds for one in board.standings])
            plan["trained_again"] = needed < left
            write_text(self.folder / PLAN, json.dumps(plan, indent=2) + "\n")
        again = {
            one.name: one.of_every_row(steps[one.name], seconds[one.name])
            for one in _planned(self.folder)
            if plan["trained_again"] and one.name in board.members
        }
        self._train([(one, 1.0) for one in again.values()])
        if not again or any(one.name in self._failed for one in again.values()) or self.stop:
            return board
        trained = tuple(again[name].name for name in board.members)
        return dataclasses.replace(board, trained_again=trained)

    def _with_folds(self, candidates: Sequence[Candidate]) -> list[str]:
        """Returns the names of candidates that are equal to the best within the noise of dev."""
        board = [one for one in self.standings(candidates) if one.has_ended]
        values = {one.name: one.value for one in board if one.value is not None}
        seconds = {one.name: one.seconds for one in candidates}
        if not values:
            return []
        best = next(iter(values.values()))
        is_share = board[0].is_share
        near = 2 * noise_of_gain(best, self._rows(Split.EVAL)) if is_share else _NEAR * abs(best)
        close = [name for name, value in values.items() if abs(value - best) < near]
        left = 60 * self.minutes - sum(seconds[name] for name in values) / available_cpus()
        chosen = []
        for name in close if len(close) > 1 else ():
            left -= _FOLDS * (seconds[name] + _START_SECONDS) / available_cpus()
            if left > 0:
                chosen.append(name)
        return chosen

    def _rows(self, split: Split) -> int:
        from t2t_torch.data.manifest import Manifest

        dataset = registry.problem(self.problem).dataset_name
        return Manifest.load(self.data_dir, dataset).splits[split.value].rows

    def standings(self, candidates: Iterable[Candidate]) -> list[Standing]:
        """Returns the lines of the leaderboard, the best first, those without a value last."""
        return ranked(map(self._standing, candidates))

    def _standing(self, candidate: Candidate) -> Standing:
        run, failed = self.folder / candidate.name, self._failed.get(candidate.name, "")
        if failed:
            return Standing(run.name, why=failed)
        standing = standing_of(run, candidate.metric, self._rows(Split.EVAL))
        standing = dataclasses.replace(standing, planned=candidate.seconds)
        folds = [standing_of(self.folder / one.name, one.metric) for one in candidate.folds()]
        values = [one.value for one in folds if one.has_ended and one.value is not None]
        if len(values) < _FOLDS:
            return standing
        return dataclasses.replace(
            standing,
            value=sum(values) / _FOLDS,
            rows=self._rows(Split.TRAIN),
            folds=_FOLDS,
            seconds=standing.seconds + sum(one.seconds for one in folds),
        )

    def _is_slow(self, candidate: Candidate) -> bool:
        return candidate.seconds > _CHEAP * 60 * self.minutes

    def _planned(self) -> list[Candidate]:
        """Returns the candidates of the recorded plan; makes and records it first if necessary."""
        file = self.folder / PLAN
        if file.exists():
            given, self.minutes = self.minutes, read_json(file)["minutes"]
            if given != self.minutes:  # which candidates are slow was decided by it
                message(f"race: its steps are planned for {self.minutes:g} minutes, which stay")
            return _planned(self.folder)
        made, seconds = [], dict[str, float]()
        chosen = filter(self._fits, recommend_several(self.problem, self.data_dir))
        for one in [one for one in chosen if available_cpus() > 1 or not one.further_seed]:
            if one.hparams_set not in seconds:
                settings = self._settings_of(one) | _places(self.data_dir)
                seconds[one.hparams_set] = _seconds_of_a_step(settings, one.train_steps)
            made.append(self._candidate(one, one.train_steps * seconds[one.hparams_set]))
        capped = _capped(made, _SHARE_OF_TIME * 60 * self.minutes, available_cpus())
        content = {"minutes": self.minutes, "candidates": [dataclasses.asdict(c) for c in capped]}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(content, indent=2) + "\n")
        return capped

    def _fits(self, chosen: Recommendation) -> bool:
        """Returns whether a model reads and produces the features of the problem."""
        from t2t_torch.model import check_features

        features = registry.problem(self.problem).features(self.data_dir)
        try:
            check_features(registry.model(chosen.model), features)
        except HParamsError:
            return False
        return True

    def _settings_of(self, chosen: Recommendation) -> dict[str, Any]:
        recommended = {k: v for k, v in chosen.settings.items() if k != "train_steps"}
        return {
            "problem": self.problem,
            "model": chosen.model,
            "hparams_set": chosen.hparams_set,
            **recommended,
            **self.settings,
            "hparams": ",".join(filter(None, (chosen.hparams, self.settings.get("hparams")))),
        }

    def _candidate(self, chosen: Recommendation, seconds: float) -> Candidate:
        settings = self._settings_of(chosen)
        name = chosen.hparams_set
        if chosen.further_seed:
            given = settings.get("random_seed")
            seed = DEFAULT_SEED if given is None else int(given)
            settings["random_seed"] = seed + chosen.further_seed
            name = f"{name}.seed{settings['random_seed']}"
        return Candidate(name, settings, chosen.metric, chosen.train_steps, seconds)

    def _train(self, tasks: Sequence[tuple[Candidate, float]]) -> None:
        """Trains candidates to a share of their steps, as many at once as there are processors."""
        waiting = [one for one in tasks if one[0].name not in self._failed]
        waiting = [one for one in waiting if not self._is_reached(*one)]
        parallel = max(1, min(available_cpus(), len(waiting)))
        running: dict[int, tuple[Candidate, float, Training]] = {}
        while waiting or running:
            if self.stop:
                waiting = []
                for _, _, training in running.values():
                    training.request_stop()
            for slot in range(parallel):
                if waiting and slot not in running:
                    candidate, share = waiting.pop(0)
                    training = self._training(candidate, share, environment(slot, parallel))
                    running[slot] = candidate, share, training
            for slot, (candidate, share, training) in list(running.items()):
                training.start()  # waits for a process of a killed race that still saves
                if (outcome := training.outcome()) is not None:
                    del running[slot]
                    if self._takes(candidate, share, outcome):
                        waiting.append((candidate, share))
            self._say_progress([candidate for candidate, _, _ in running.values()])
            time.sleep(_POLL_SECONDS)

    def _takes(self, candidate: Candidate, share: float, outcome: TrainingOutcome) -> bool:
        """Reports the outcome of a training; returns whether it is to be started again."""
        if self.stop or self._is_reached(candidate, share):
            one = self._standing(candidate)
            if one.value is not None:
                where = "its end" if one.has_ended else f"step {self._step(candidate, 'dev'):,}"
                message(f"race: {one.name} at {where}: {candidate.metric} {one.value:.4g}")
            return False
        self._restarts[candidate.name] += 1
        is_broken = outcome.ending in ("broken", "stopped", "done")
        if is_broken and self._restarts[candidate.name] <= _RESTARTS:
            message(f"race: {candidate.name} resumes from its checkpoint: {outcome.why}")
            return True
        self._failed[candidate.name] = outcome.why or "it has no evaluation"
        message(f"race: {candidate.name} failed: {self._failed[candidate.name]}")
        return False

    def _is_reached(self, candidate: Candidate, share: float) -> bool:
        """Returns whether a run has ended, or has been evaluated at a share of its steps."""
        standing, pause = self._standing(candidate), candidate.pause(share)
        return standing.has_ended or bool(pause and pause <= self._step(candidate, "dev"))

    def _step(self, candidate: Candidate, split: str = "") -> int:
        """Returns the step of the last report of a run; on a split, of an evaluation."""
        from t2t_torch.run.metrics_file import MetricsFile

        reports = MetricsFile(self.folder / candidate.name).read()
        return max((one["step"] for one in reports if split in ("", one["split"])), default=0)

    def _training(self, candidate: Candidate, share: float, variables: dict[str, str]) -> Training:
        from t2t_torch.tune.tuner import TRAINER, Training

        run = self.folder / candidate.name
        values = candidate.settings | _places(self.data_dir)
        values |= {"output_dir": str(run), "train_steps": candidate.train_steps}
        if pause := candidate.pause(share):
            values["pause_at_step"] = pause
            if candidate.planned_steps < candidate.train_steps:
                values["train_seconds"] = math.ceil(candidate.seconds / _SHARE_OF_TIME)
        elif not candidate.is_of_every_row and (limit := self._limit(candidate)):
            values["train_seconds"] = limit
        return Training([*TRAINER, *TrainSettings(**values).arguments()], run, variables)

    def _limit(self, candidate: Candidate) -> int:
        """Returns the time limit of a candidate that is trained to its end, by the time that is
        left when it is first started; recorded.  0: it has enough.
        """
        content = read_json(self.folder / PLAN)
        limits: dict[str, int] = content.setdefault("limits", {})
        if candidate.name not in limits:
            spent = [self._standing(one).seconds for one in self._planned()]
            before = self._standing(candidate).seconds
            left = (60 * self.minutes - _spent(spent)) / self._parallel
            whole = candidate.seconds * candidate.train_steps
            needed = whole / (candidate.planned_steps or candidate.train_steps) - before
            is_enough = left > 2 * needed
            limits[candidate.name] = 0 if is_enough else max(1, round(before + max(left, 10.0)))
            write_text(self.folder / PLAN, json.dumps(content, indent=2) + "\n")
        return limits[candidate.name]

    def _say_progress(self, running: Sequence[Candidate]) -> None:
        """Reports the steps of the trainings, every few seconds."""
        if running and time.monotonic() - self._spoken > _SPOKEN_SECONDS:
            self._spoken = time.monotonic()
            steps = [(one, self._step(one)) for one in running]
            states = [f"{one.name} (step {n:,} of {one.train_steps:,})" for one, n in steps]
            message(f"race: training {', '.join(states)}")


def _places(data_dir: Path) -> dict[str, Any]:
    """Returns the settings of folders, which may be moved and so are in no plan."""
    return {"data_dir": str(data_dir), "t2t_usr_dir": tuple(registry.usr_dirs())}


def _planned(folder: Path) -> list[Candidate]:
    """Returns the candidates of the plan of a race."""
    return [Candidate(**one) for one in read_json(folder / PLAN)["candidates"]]


def _spent(seconds: Sequence[float]) -> float:
    """Returns the least time in which trainings of some seconds each, on a processor, have run."""
    return max([sum(seconds) / available_cpus(), *seconds])


def _capped(candidates: Sequence[Candidate], seconds: float, parallel: int) -> list[Candidate]:
    """Returns candidates of which as many steps are planned as fit into a time."""
    low, high = 1.0, max((one.seconds for one in candidates), default=1.0) + 1.0
    for _ in range(50):
        middle = (low + high) / 2
        times = sorted(min(one.seconds, middle) for one in candidates)
        low, high = (middle, high) if _makespan(times, parallel) <= seconds else (low, middle)
    return [_shortened(one, low) for one in candidates]


def _makespan(times: Sequence[float], parallel: int) -> float:
    """Returns an upper bound of the time of a race of candidates whose whole trainings take
    `times`, ascending: the slowest ones are kept.
    """
    before, total, left = 0.0, 0.0, list(times)
    for share in _SHARES:
        parts = [(share - before) * one for one in left]
        total += max(max(parts, default=0.0), sum(parts) / parallel) + _START_SECONDS
        before, left = share, left[-_kept(len(left), parallel) :]
    return total


def _kept(count: int, parallel: int) -> int:
    """Returns how many of several candidates continue: half, but as many as are trained at once."""
    return max(parallel, math.ceil(count / 2))


def _shortened(candidate: Candidate, seconds: float) -> Candidate:
    """Returns a candidate of which as many steps are planned as fit into a time."""
    settings, steps = dict(candidate.settings), candidate.train_steps
    if candidate.seconds > seconds:
        steps = max(_PROBE_STEPS, int(steps * seconds / candidate.seconds))
    frequency = settings.get("local_eval_frequency", steps)
    settings["local_eval_frequency"] = max(1, min(frequency, steps // _EVALUATIONS))
    spent = min(candidate.seconds, seconds)
    return dataclasses.replace(candidate, settings=settings, planned_steps=steps, seconds=spent)


def _seconds_of_a_step(settings: dict[str, Any], train_steps: int) -> float:
    """Returns the time of a training step on one thread, measured in a run that is thrown away.

    It is rounded up to two digits, so that noise seldom changes the plan; 0 of a training that
    needs little.
    """
    if train_steps <= _PROBE_STEPS:
        return 0.0
    from t2t_torch.train import task

    times: list[float] = []

    class Clock(task.Hook):
        in_banner = False

        def after_step(self, estimator: Estimator) -> None:
            times.append(time.perf_counter())

    measuring = phase(f"measuring a training step of {settings['hparams_set']}")
    with measuring, tempfile.TemporaryDirectory() as folder:
        names = ("problem", "model", "hparams_set", "hparams", "data_dir")
        probe = TrainSettings(
            **{name: settings[name] for name in names if name in settings},
            output_dir=str(Path(folder, "run")),
            train_steps=_PROBE_STEPS,
            train_seconds=_PROBE_SECONDS,
            schedule="train",
            threads="1",
        )
        try:
            train(probe, callbacks=[Clock()], reporter=SILENT)
        except T2TError:
            return 0.0  # its training reports why
    # The faster half: the first steps, and those beside other programs, are slow.
    steps = sorted(after - before for before, after in itertools.pairwise(times))
    fast = steps[: max(1, len(steps) // 2)]
    each = max(1e-4, sum(fast) / len(fast)) if fast else float(_PROBE_SECONDS)
    unit = 10.0 ** math.floor(math.log10(each))
    return unit * next(one for one in _ROUND if one * unit >= each * (1 - 1e-9))


def distill(
    board: Leaderboard, milliseconds: float, data_dir: Path, stop: StopRequest
) -> str | None:
    """Returns the best run of a race that answers within a time; None if it was stopped.

    Where a slower model or an ensemble is better, the best of those that are fast enough is trained
    once more, on its probabilities, and taken if that is better on dev.

    Args:
      board: leaderboard of the race.
      milliseconds: median latency of an input at most.
      data_dir: the data.
      stop: request to stop.
    """
    known = [one for one in board.standings if one.has_ended and one.value is not None]
    fast = [one for one in known if one.milliseconds <= milliseconds]
    if not fast:
        fastest = min(known, key=lambda one: one.milliseconds)
        message(
            f"race: no model answers within {milliseconds:g} ms; the fastest, {fastest.name}, "
            f"takes {fastest.milliseconds:.2f} ms and is used"
        )
        return str(board.folder / fastest.name)
    student, best = fast[0], board.best
    if best == [str(board.folder / student.name)]:
        return board.result[0]
    candidate = next(one for one in _planned(board.folder) if one.name == student.name)
    run = board.folder / f"{student.name}_distilled"
    values = candidate.settings | _places(data_dir)
    values |= {"output_dir": str(run), "train_steps": student.step}
    message(f"race: distilling {' + '.join(Path(one).name for one in best)} into {student.name}")
    if train(TrainSettings(**values, teacher=tuple(best)), stop=stop):
        return None
    return str(board.folder / ranked([student, standing_of(run, candidate.metric)])[0].name)


def race_folder(output_dir: str | Path) -> Path:
    """Returns the folder of the race for a run directory, which will be a link into it."""
    path = Path(output_dir)
    return path.with_name(f"{path.name}.race") if path.name else race_folder(path.absolute())


def races(settings: TrainSettings, callbacks: Sequence[Hook]) -> bool:
    """Returns whether several models are to be trained, of which the best becomes the run.

    `model=auto` with a number of steps, which models do not have in common, with a `fold`, hooks or
    a problem of the caller's own process, or in several processes is the recommended model alone.
    """
    from t2t_torch.run.directory import RunDirectory

    length = {"train_steps", "train_epochs"} & settings.given
    if not settings.model == settings.hparams_set == AUTO or length or callbacks:
        return False
    if "fold=" in (settings.hparams or ""):  # which a race sets
        return False
    if not (settings.problem and settings.data_dir and settings.output_dir):
        return False
    if settings.print_config or settings.dry_run or settings.schedule not in IN_TURNS:
        return False
    if processes() > 1 or RunDirectory(settings.output_dir).exists:
        return False
    problem = registry.problem(settings.problem)
    return bool(problem.portfolio and registry.declared_in(problem.name))


def race(settings: TrainSettings, stop: StopRequest) -> int:
    """Trains the models of a problem's portfolio; `output_dir` becomes a link to the best run.

    Args:
      settings: settings of a training, with the time in `train_seconds`.
      stop: request to stop; then the leaderboard is written, and no link.

    Returns:
      The number of the signal that stopped it; 0 if it is complete.

    Raises:
      CheckpointError: another process races in the folder.
      UsageError: no model can be trained, `output_dir` exists, or a setting is of one training.
    """
    from t2t_torch.run.directory import training_lock
    from t2t_torch.tune.tuner import replace_link

    if settings.export_best:
        raise UsageError(
            "--export_best: --model=auto trains several models, of which the best is known at the "
            f"end. Export that:  t2t-exporter --output_dir={settings.output_dir} --export_dir=DIR"
        )
    if settings.generate_data:
        generate_data(settings, str(settings.problem), stop)
    target, data_dir = Path(str(settings.output_dir)), Path(str(settings.data_dir))
    folder, name = race_folder(target), registry.problem(str(settings.problem)).full_name
    of_race = "model hparams_set output_dir problem data_dir train_seconds t2t_usr_dir".split()
    further = {name: getattr(settings, name) for name in settings.given if name not in of_race}
    minutes = settings.train_seconds / 60 or MINUTES
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"--output_dir={target} exists, and is no run: name a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    with training_lock(folder / "race.lock"):
        contest = Race(name, data_dir, folder, minutes=minutes, settings=further, stop=stop)
        with stop:
            made = Leaderboard(folder, tuple(contest.run()))
            made.write()
            if not stop:
                made = contest.trained_again(measured(made, data_dir))
                made.write()
            if not stop:  # the link is last: without it the race continues
                if target.is_dir() and not target.is_symlink():
                    target.rmdir()
                replace_link(target, made.run)
        output("\n".join(made.lines()))
        if not stop:
            name, count = made.standings[0].name, len(made.standings)
            again = ", trained again with its rows" if made.trained_again else ""
            message(f"race: {target.name} is {name}, the best of {count} models on dev{again}")
    return stop.signal
