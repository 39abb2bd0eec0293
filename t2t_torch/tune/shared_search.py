"""A search shared by several tuners: its state as a function of its trial history, its results.

`SearchState` applies events in the order of the trial history.  All tuners that read the same
history reach the same state, so tuners need not communicate their decisions, and an interrupted
search resumes as if it had not been interrupted.

An event that does not fit the state when it is applied is *void*: it has no effect for any tuner.
If two tuners claim the same trial at the same time, the second event in the history is void, and
its tuner tries again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from t2t_torch.atomic_files import file_lock, write_text
from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import read_text
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.search_space import AnyValue, Categorical, Integer, Kind, Range, Space
from t2t_torch.train.stopping import full_name, short_names
from t2t_torch.tune import search_plan
from t2t_torch.tune.study import PLACES, Heartbeat, TrialHistory, optuna_module

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

NO_SEARCH = (
    "no search was started here. Start one: t2t-tuner --problem=... --model=... --hparams_set=... "
    "--hparams_range=... --data_dir=... --output_dir=..."
)


class SharedSearch:
    """View of a shared search in one tuner.

    Args:
      history: trial history of the search.

    Attributes:
      began: time of the first entry in seconds since 1970; 0 before it.
      id: id of this start of the search, the same for all tuners; empty for searches older than
        ids.
      target: target of the search in JSON form, from its first entry.
    """

    def __init__(self, history: TrialHistory) -> None:
        self.history = history
        self.began = 0.0
        self.id = ""
        self.target: dict[str, Any] = {}
        self._searcher: SearchState | None = None

    @property
    def searcher(self) -> SearchState:
        """The state of the search."""
        if self._searcher is None:
            raise DataError(NO_SEARCH)
        return self._searcher

    def begin(self, plan: search_plan.SearchPlan, space: Space, target: Mapping[str, Any]) -> None:
        """Starts the search, or joins it if it is the same.

        Args:
          plan: requested plan.
          space: search space.
          target: target of the search in JSON form.

        Raises:
          CheckpointError: the directory holds another search; lists the differences.
        """
        self.sync()
        fields = {"plan": vars(plan), "space": space.to_list(), "subject": dict(target)}
        requested: dict[str, Any] = json.loads(json.dumps(fields))
        begin = {"do": "begin", "id": uuid.uuid4().hex[:12], **requested}
        if self._searcher is None:  # if two tuners start at once, the second joins the first
            self._add(begin)
        changes = self._differences(requested)
        if changes and self.searcher.is_blank:  # no results to lose
            self._add(begin)
            changes = self._differences(requested)
        if changes:
            raise CheckpointError(
                "another search is kept here, which cannot be resumed as this one:\n  "
                + "\n  ".join(changes)
                + "\nResume it: t2t-tuner with the same flags, or with --output_dir alone. Or "
                "start this one in another --output_dir (of a shared --storage, with another "
                "--study_name)."
            )

    def _differences(self, requested: Mapping[str, Any]) -> list[str]:
        """Returns the differences between the stored search and the requested one."""
        plan, kinds = vars(self.searcher.plan), self.searcher.space.kinds
        new_plan = vars(search_plan.SearchPlan.from_dict(requested["plan"]))
        new_kinds = Space.from_list(requested["space"]).kinds
        pairs: dict[str, tuple[Any, Any]] = {name: (plan[name], new_plan[name]) for name in plan}
        for name in {**kinds, **new_kinds}:
            pairs[f"space of {name}"] = kinds.get(name), new_kinds.get(name)
        for name, value in requested["subject"].items():
            pairs[name] = self.target.get(name), value
        return [
            f"{name}: {old!r} there, {new!r} requested"
            for name, (old, new) in pairs.items()
            if old != new
        ]

    def sync(self) -> list[tuple[Mapping[str, Any], bool]]:
        """Applies new entries of the history; returns them with their validity."""
        taken: list[tuple[Mapping[str, Any], bool]] = []
        for entry in self.history.new_entries():
            if self._searcher is None and entry.get("do") != "begin":
                raise DataError("the trial history does not start with the start of the search.")
            starts = self._searcher is None or self._restarts(entry)
            if starts:
                self.began, self.target = float(entry.get("time", 0.0)), dict(entry["subject"])
                self.id = str(entry.get("id", ""))
                plan = search_plan.SearchPlan.from_dict(entry["plan"])
                self._searcher = SearchState(plan, Space.from_list(entry["space"]))
            taken.append((entry, starts or self.searcher.apply(entry)))
        return taken

    def _restarts(self, entry: Mapping[str, Any]) -> bool:
        """Returns True if an entry starts another search and no results are lost.

        An entry that starts the same search again is void: if two tuners start it at the same time,
        the second one joins.
        """
        may = entry["do"] == "begin" and self.searcher.is_blank
        return may and bool(self._differences(entry))

    def take(self, heartbeat: Heartbeat) -> SearchTask | None:
        """Claims the next task; None if there is none for this tuner now."""

        def is_reachable(trial: SearchTrial) -> bool:
            # Otherwise the trial waits for the tuners that have its checkpoint, or restarts without
            # it.
            return trial.place == heartbeat.place or not heartbeat.place_is_alive(trial.place)

        while True:
            self.sync()
            task = self.searcher.next_task(is_reachable)
            if task is None:
                return None
            entry: dict[str, Any] = {
                "do": "take",
                "tuner": heartbeat.tuner,
                "place": heartbeat.place,
                "trial": task.trial,
                "to": task.to,
            }
            if task.is_new:
                entry |= {"hparams": dict(task.hparams), "is_default": task.is_default}
            if self._add(entry):
                return task

    def report(self, heartbeat: Heartbeat, do: str, trial: int, **more: Any) -> bool:
        """Adds an event of a trial; returns True if this tuner held the trial."""
        return self._add({"do": do, "tuner": heartbeat.tuner, "trial": trial, **more})

    def whereabouts(self, trial: int) -> str:
        """Returns the machine and folder of the last tuner of a trial; empty if unknown."""
        return str(self.history.metadata().get(f"{PLACES}{self.searcher.trials[trial].place}", ""))

    def free_lost(self, heartbeat: Heartbeat) -> list[SearchTrial]:
        """Frees the trials of dead tuners; returns the trials freed by this call."""
        held = [trial for trial in self.searcher.trials if trial.status == "held"]
        freed = []
        for trial in held:
            is_lost = not heartbeat.is_alive(trial.tuner, trial.place)
            if is_lost and self.report(heartbeat, "lost", trial.number, holder=trial.tuner):
                freed.append(trial)
        return freed

    def _add(self, entry: Mapping[str, Any]) -> bool:
        """Adds an entry; returns True if it was valid when applied."""
        written = json.loads(json.dumps(entry))
        self.history.append(written)
        return any(
            valid and {key: one.get(key) for key in written} == written
            for one, valid in self.sync()
        )


def publish(history: TrialHistory, searcher: SearchState) -> None:
    """Adds finished trials to the study with the name of the search, for optuna's tools.

    Existing trials of any tuner are not added again.  The study is never read back: decisions are
    unaffected if it is lost, or if two tuners add trials at the same time.

    Args:
      history: trial history of the search.
      searcher: state of the search.
    """
    plan, space = searcher.plan, searcher.space
    optuna = optuna_module()
    state = optuna.trial.TrialState
    states = {"completed": state.COMPLETE, "stopped": state.PRUNED}
    with contextlib.suppress(optuna.exceptions.StorageInternalError):
        study = optuna.create_study(
            storage=history.storage,
            study_name=history.name,
            direction="minimize" if plan.lower_is_better else "maximize",
            load_if_exists=True,
        )
        known = {trial.user_attrs.get("number") for trial in study.get_trials(deepcopy=False)}
        for trial in searcher.trials:
            if trial.number in known or not trial.is_over:
                continue
            curve = {step: value for step, value in trial.curve if value is not None}
            status = state.FAIL if trial.value is None else states.get(trial.status, state.FAIL)
            made = optuna.trial.create_trial(
                state=status,
                value=trial.value if status == state.COMPLETE else None,
                **axes_of(space, trial.hparams),
                intermediate_values=curve,
                user_attrs={"number": trial.number, "hparams": dict(trial.hparams)},
            )
            study.add_trial(made)


RUNS = "trials"
"""Subfolder of the search directory with the run directories, named by trial number."""

_OF = ".search"
"""File in that folder with the id of its search."""


def trial_directory(output_dir: Path, trial: int) -> Path:
    """Returns the run directory of a trial."""
    return output_dir / RUNS / str(trial)


def claim_runs(output_dir: Path, search: str) -> Path | None:
    """Creates the folder of runs for a search; runs of another search are moved aside.

    Otherwise a trial would resume from a checkpoint of another search.

    Args:
      output_dir: directory of the search.
      search: id of the search, shared by its tuners.

    Returns:
      The new location of another search's runs; None if there were none.
    """
    runs, old = output_dir / RUNS, None
    with file_lock(output_dir / f"{RUNS}.lock"):  # serializes tuners that start
        known = read_text(runs / _OF).strip() if (runs / _OF).exists() else ""
        if known != search and runs.is_dir() and any(runs.iterdir()):
            names = (output_dir / f"{RUNS}.before-{number}" for number in itertools.count(1))
            old = next(name for name in names if not name.exists())
            runs.rename(old)
        runs.mkdir(exist_ok=True)
        write_text(runs / _OF, f"{search}\n")
    return old


_METADATA = ("step", "split", "time")


@dataclasses.dataclass(frozen=True)
class Evaluations:
    """Values of one metric in a run.

    Attributes:
      step: step of the latest training report or evaluation; 0 if there is none.
      curve: (step, value) of each evaluation; None if the value is not finite.
    """

    step: int
    curve: tuple[tuple[int, float | None], ...]

    @property
    def newest(self) -> tuple[int, float | None] | None:
        """The last evaluation."""
        return self.curve[-1] if self.curve else None


def read_evaluations(directory: Path, metric: str) -> Evaluations:
    """Reads the reports of a run; an unchanged file is not read again.

    Args:
      directory: run directory; it may not exist yet.
      metric: name of the metric as in evaluations ("loss") or summaries.

    Raises:
      UsageError: the evaluations have no such metric.
    """
    try:
        now = MetricsFile(directory).path.stat()
    except FileNotFoundError:
        return Evaluations(0, ())
    return _read_version(directory, metric, (now.st_ino, now.st_size, now.st_mtime_ns))


@functools.lru_cache(1024)  # a table redrawn every second shows many runs
def _read_version(directory: Path, metric: str, version: tuple[int, ...]) -> Evaluations:
    step = 0
    curve: dict[int, float | None] = {}
    for report in MetricsFile(directory).read():
        step = max(step, report["step"])
        if report["split"] == "train":
            continue
        value = report[_meant(metric, [name for name in report if name not in _METADATA])]
        if isinstance(value, list):
            raise UsageError(
                f"--metric={metric} has several numbers in each evaluation; trials are ranked by "
                "one. Name another, or let the trial give its mean besides."
            )
        finite = isinstance(value, int | float) and math.isfinite(value)
        curve[report["step"]] = float(value) if finite else None
    return Evaluations(step, tuple(sorted(curve.items())))


def _meant(metric: str, names: list[str]) -> str:
    try:
        return full_name(metric, names)
    except UsageError:
        known = ", ".join(sorted(short_names(names).values()))
        raise UsageError(
            f"--metric={metric}: evaluations have no such metric. They have: {known}."
        ) from None


_STATES: dict[str, search_plan.State] = {
    "held": "running",
    "free": "paused",
    "completed": "completed",
    "stopped": "stopped",
    "failed": "failed",
    "invalid": "failed",
}


def record_of(
    search: SharedSearch, output_dir: Path, *, command: str, trial: str = ""
) -> search_plan.SearchRecord:
    """Returns the current record of a search.

    Args:
      search: started search, synced with its trial history.
      output_dir: directory of the search.
      command: command that resumes the search.
      trial: value of `--trial`; empty for a problem.
    """
    searcher, target = search.searcher, search.target
    plan = searcher.plan
    trials = tuple(
        _trial(trial, trial_directory(output_dir, trial.number), plan.metric, plan.length)
        for trial in searcher.trials
    )
    default = next((trials[one.number] for one in searcher.trials if one.is_default), None)
    of_plan = ("searcher", "metric", "lower_is_better", "seed")
    fields = {name: getattr(plan, name) for name in of_plan}
    fields |= {name: target.get(name, "") for name in ("name", "model", "hparams_set", "problem")}
    return search_plan.SearchRecord(
        **fields,
        space=tuple(axis_of(name, kind) for name, kind in searcher.space.kinds.items()),
        trials=trials,
        default=default,
        seconds=sum(one.seconds for one in trials),
        began=search.began,
        over=searcher.is_over,
        output_dir=output_dir,
        command=command,
        hparams_changes=target.get("hparams", ""),
        trial=trial,
    )


def axis_of(name: str, kind: Kind) -> search_plan.SpaceAxis:
    """Returns the axis that displays a hyperparameter."""
    if isinstance(kind, Range):
        low, high = kind.ends
        return search_plan.SpaceAxis(name, kind.type, kind.log, low=low, high=high)
    return search_plan.SpaceAxis(name, kind.type, log=getattr(kind, "log", False), values=kind.ends)


def _trial(
    trial: SearchTrial, directory: Path, metric: str, length: int
) -> search_plan.TrialRecord:
    step, curve, losses = trial.step, dict(trial.curve), dict[int, float | None]()
    with contextlib.suppress(UsageError):  # includes progress not yet in the trial history
        seen = read_evaluations(directory, metric)
        step = max(step, seen.step)
        curve.update(seen.curve)
        losses = dict(read_evaluations(directory, "loss").curve)
    why = trial.why if trial.status in ("failed", "invalid") else ""
    return search_plan.TrialRecord(
        number=trial.number,
        state=_STATES[trial.status],
        hparams=dict(trial.hparams),
        step=step,
        length=length,
        value=curve[max(curve)] if curve else None,
        curve=tuple(sorted(curve.items())),
        seconds=trial.seconds,
        error=f"invalid hyperparameters: {why}" if trial.status == "invalid" else why,
        output_dir=directory,
        restarts=trial.restarts,
        loss=losses.get(max(curve)) if curve else None,
    )


_DRAWS = 100
"""Maximum number of redraws if a combination was tried before."""

_LEAST_DRAWN = 3


def suggest(
    plan: search_plan.SearchPlan, space: Space, trials: Sequence[SearchTrial]
) -> dict[str, AnyValue] | None:
    """Returns the hyperparameters of the next trial; None if there is no untried combination.

    A suggestion is a function of its arguments: there is no persistent generator, so an
    interrupted search resumes with the same suggestions.

    Args:
      plan: plan of the search; of tpe a quarter of its trials, between 3 and 10, are random.
      space: search space.
      trials: the preceding trials, including the default.
    """
    number = len(trials)
    if plan.searcher == "grid":  # the default is not part of it
        place = number - int(plan.default is not None)
        return next(itertools.islice(space.grid(), place, None), None)
    taken = {key(one.hparams) for one in trials}
    if plan.searcher == "tpe" and space.searched:
        startup = min(max(plan.max_trials // 4, _LEAST_DRAWN), 10)
        finished = {
            one.number: search_plan.WORST if one.status == "failed" else plan.loss_of(one.value)
            for one in trials
            if one.status in ("completed", "failed")
        }
        if sum(map(math.isfinite, finished.values())) >= startup:
            values = _promising(plan, space, trials, finished, startup)
            if key(values) not in taken:
                return values
    rng = random.Random(f"{plan.seed}/{number}")
    for _ in range(_DRAWS):
        drawn = space.sample(rng)
        if key(drawn) not in taken:
            return drawn
    return None


def _promising(
    plan: search_plan.SearchPlan,
    space: Space,
    trials: Sequence[SearchTrial],
    losses: Mapping[int, float],
    startup: int,
) -> dict[str, AnyValue]:
    """Returns a combination by optuna's tree-structured Parzen estimator.

    Bergstra et al. 2011, "Algorithms for Hyper-Parameter Optimization".  The sampler is created for
    each trial, seeded by its number, and receives all results known at that time: without
    concurrency a search is reproducible.
    """
    optuna = optuna_module()
    seed = random.Random(f"{plan.seed}/{len(trials)}/tpe").getrandbits(32)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
    study = optuna.create_study(sampler=sampler)
    axes = {name: distribution(kind) for name, kind in space.searched.items()}
    worst = max(loss for loss in losses.values() if math.isfinite(loss))
    for trial, loss in losses.items():
        # A failed trial counts as the worst known result.
        value = loss if math.isfinite(loss) else worst
        inside = axes_of(space, trials[trial].hparams)
        study.add_trial(optuna.trial.create_trial(**inside, value=value))
    params = study.ask(fixed_distributions=axes).params
    fixed = space.sample(random.Random(0))
    return {
        name: kind.from_axis(params[name]) if name in axes else fixed[name]
        for name, kind in space.kinds.items()
    }


def key(hparams: Mapping[str, AnyValue]) -> str:
    """Returns a string key of hyperparameters, independent of their order."""
    return json.dumps(hparams, sort_keys=True, default=dict)


def distribution(kind: Kind) -> BaseDistribution:
    """Returns optuna's distribution of an axis; see `Kind.to_axis`."""
    known = optuna_module().distributions
    made: Any
    if isinstance(kind, Categorical):
        made = known.CategoricalDistribution(range(len(kind.values)))
    else:
        assert isinstance(kind, Range)
        of = known.IntDistribution if isinstance(kind, Integer) else known.FloatDistribution
        made = of(*kind.ends, log=kind.log or kind.reverse)
    return made  # type: ignore[no-any-return]


def axes_of(space: Space, hparams: Mapping[str, AnyValue]) -> dict[str, Any]:
    """Returns optuna's `params` and `distributions` of a trial, for values within their ranges."""
    inside = {
        name: kind
        for name, kind in space.searched.items()
        if name in hparams and kind.allows(hparams[name])
    }
    return {
        "params": {name: kind.to_axis(hparams[name]) for name, kind in inside.items()},
        "distributions": {name: distribution(kind) for name, kind in inside.items()},
    }


Status = Literal["free", "held", "completed", "stopped", "failed", "invalid"]
"""free: waiting for a tuner; held: claimed by a tuner; others: finished."""


@dataclasses.dataclass
class SearchTrial:
    """State of a trial.

    Attributes:
      number: number of the trial, from 0.
      hparams: dotted name -> value.
      is_default: whether it is the unchanged hparams set, which is never stopped at a rung.
      bracket: index of its bracket.
      rung: index of the next rung, or of the rung where it ended.
      target: optimizer steps of that rung.
      status: see `Status`.
      tuner: current or last tuner.
      place: place of its run directory; see `study.py`.
      step: reported optimizer steps.
      curve: (step, value) of each evaluation; None if the value is not finite.
      value: latest value.
      seconds: training time in seconds.
      restarts: number of restarts after failures.
      why: reason of the failure.
    """

    number: int
    hparams: Mapping[str, AnyValue]
    is_default: bool
    bracket: int
    rung: int
    target: int
    status: Status
    tuner: str
    place: str
    step: int = 0
    curve: list[tuple[int, float | None]] = dataclasses.field(default_factory=list)
    value: float | None = None
    seconds: float = 0.0
    restarts: int = 0
    why: str = ""

    @property
    def is_over(self) -> bool:
        """True if the trial will not be trained further."""
        return self.status not in ("free", "held")


Event = Mapping[str, Any]
"""Entry of the trial history: its type ("do"), "tuner", "time" and type-specific fields."""


@dataclasses.dataclass(frozen=True)
class SearchTask:
    """Unit of work for a tuner.

    Attributes:
      trial: number of the trial.
      to: optimizer step to train to.
      hparams: dotted name -> value.
      is_default: whether it is the unchanged hparams set.
      is_new: whether the trial has not started yet.
    """

    trial: int
    to: int
    hparams: Mapping[str, AnyValue]
    is_default: bool
    is_new: bool


class SearchState:
    """State of a search.

    Args:
      plan: plan of the search.
      space: search space.

    Attributes:
      trials: trials by number.
      rungs: rungs of each bracket.
    """

    def __init__(self, plan: search_plan.SearchPlan, space: Space) -> None:
        self.plan = plan
        self.space = space
        self.brackets = plan.brackets
        self.rungs = [search_plan.Rungs(bracket.lengths, plan.divisor) for bracket in self.brackets]
        self.trials: list[SearchTrial] = []
        self._next: tuple[int, SearchTask | None] | None = None
        self._events = 0

    @property
    def valid(self) -> list[SearchTrial]:
        """The trials that count: without replaced ones."""
        return [trial for trial in self.trials if trial.status != "invalid"]

    @property
    def is_over(self) -> bool:
        """True if the search is complete."""
        return all(trial.is_over for trial in self.trials) and self._new_task() is None

    @property
    def gave_up(self) -> bool:
        """True if the search ended because almost all hyperparameters were rejected as invalid."""
        return len(self.trials) - len(self.valid) >= 2 * self.plan.max_trials + 8

    @property
    def is_blank(self) -> bool:
        """True if no trial has been evaluated or has ended yet."""
        return all(trial.status == "free" and not trial.curve for trial in self.trials)

    @property
    def will_start(self) -> bool:
        """True if more trials will start, provided that untried combinations remain."""
        return len(self.valid) < self.plan.max_trials and not self.gave_up

    @property
    def why_early(self) -> str:
        """Reason for ending with fewer trials than requested; empty if there are as many."""
        valid, requested = len(self.valid), self.plan.max_trials
        if not self.is_over or valid >= requested:
            return ""
        if self.gave_up:
            refused = len(self.trials) - valid
            return (
                f"it gave up at {valid} of {requested} trials: {refused} others had "
                "hyperparameters that were refused as invalid; narrow the ranges"
            )
        return (
            f"it ended at {valid} of {requested} trials: all that the ranges allow was tried, or "
            "nothing new was drawn any more"
        )

    @property
    def _is_full(self) -> bool:
        """Returns True if the maximum number of concurrent trials is reached."""
        held = sum(trial.status == "held" for trial in self.trials)
        return 0 < self.plan.max_concurrent <= held

    def next_task(self, is_reachable: Callable[[SearchTrial], bool]) -> SearchTask | None:
        """Returns the next task; None: wait for other tuners, or the search is complete.

        Started trials take precedence over new ones.

        Args:
          is_reachable: function that returns True if a waiting trial can be resumed on this
            machine.
        """
        if self._is_full:
            return None
        for trial in self.trials:
            if trial.status == "free" and is_reachable(trial):
                return SearchTask(
                    trial.number, trial.target, trial.hparams, trial.is_default, False
                )
        return self._new_task()

    def apply(self, event: Event) -> bool:
        """Applies the next event of the trial history; returns True if it was valid."""
        self._events += 1
        do = event.get("do")
        if do == "take":
            return self._take(event)
        trial = self._of(event)
        if trial is None or trial.status != "held":
            return False
        if event["holder" if do == "lost" else "tuner"] != trial.tuner:
            return False
        if do == "lost":
            trial.status = "free"
            return True
        return self._report_event(str(do), trial, event)

    def _report_event(self, do: str, trial: SearchTrial, event: Event) -> bool:
        """Applies a report of the tuner that holds a trial."""
        if do == "report" and int(event["step"]) < trial.target:
            return False
        if do not in ("report", "fail", "invalid", "restart", "leave"):
            return False
        once = trial.restarts + 1  # events may be duplicated if a storage response was lost
        if do == "restart" and int(event.get("restart", once)) != once:
            return False
        trial.seconds += float(event.get("seconds", 0.0))
        trial.step = max(trial.step, int(event.get("step", 0)))
        curve = {int(step): value for step, value in event.get("curve", ())}
        trial.curve = sorted({**dict(trial.curve), **curve}.items())
        rungs = self.rungs[trial.bracket]
        if do == "report":
            self._report(trial, event["value"])
        elif do == "fail":
            rungs.insert(trial.number, trial.rung, search_plan.WORST)
            trial.status, trial.why = "failed", str(event["why"])
        elif do == "invalid":
            rungs.remove(trial.number)
            trial.status, trial.why = "invalid", str(event["why"])
        elif do == "restart":
            trial.restarts += 1
            trial.why = str(event["why"])
        else:
            trial.status = "free"
        return True

    def _report(self, trial: SearchTrial, value: float | None) -> None:
        rungs = self.rungs[trial.bracket]
        trial.value = value
        loss = self.plan.loss_of(value)
        last = len(rungs.lengths) - 1
        while trial.step >= rungs.lengths[trial.rung]:
            goes_on = rungs.insert(trial.number, trial.rung, loss)
            if trial.rung == last:
                trial.status = "completed"
                return
            # The default is compared with the best trial at equal steps.
            if not goes_on and not (trial.is_default and loss < search_plan.WORST):
                trial.status = "stopped"
                return
            trial.rung += 1
            trial.target = rungs.lengths[trial.rung]
        trial.status = "free"

    def _take(self, event: Event) -> bool:
        if self._is_full:
            return False
        if (number := int(event["trial"])) == len(self.trials):
            if "hparams" not in event or not self.will_start:
                return False
            bracket = self._next_bracket()
            self.trials.append(
                SearchTrial(
                    number=number,
                    hparams=dict(event["hparams"]),
                    is_default=bool(event.get("is_default")),
                    bracket=bracket,
                    rung=0,
                    target=self.rungs[bracket].lengths[0],
                    status="held",
                    tuner=str(event["tuner"]),
                    place=str(event["place"]),
                )
            )
            return True
        trial = self._of(event)
        if trial is None or trial.status != "free" or int(event["to"]) != trial.target:
            return False
        trial.status, trial.tuner, trial.place = "held", str(event["tuner"]), str(event["place"])
        return True

    def _of(self, event: Event) -> SearchTrial | None:
        number = int(event.get("trial", -1))
        return self.trials[number] if 0 <= number < len(self.trials) else None

    def _next_bracket(self) -> int:
        dealt = [0] * len(self.brackets)
        for trial in self.valid:
            dealt[trial.bracket] += 1
        return search_plan.next_bracket([bracket.trials for bracket in self.brackets], dealt)

    def _new_task(self) -> SearchTask | None:
        """Returns the task of a new trial; None if there will be no more."""
        if self._next is None or self._next[0] != self._events:  # suggestions are expensive
            self._next = self._events, self._suggested()
        return self._next[1]

    def _suggested(self) -> SearchTask | None:
        if not self.will_start:
            return None
        number = len(self.trials)
        to = self.rungs[self._next_bracket()].lengths[0]
        if number == 0 and self.plan.default is not None:
            return SearchTask(0, to, dict(self.plan.default), True, True)
        hparams = suggest(self.plan, self.space, self.trials)
        return None if hparams is None else SearchTask(number, to, hparams, False, True)
