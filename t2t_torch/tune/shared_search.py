"""A search shared by several tuners: trial history, state and live tuners."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import file_lock, read_text, write_text
from t2t_torch.run.metrics_file import MetricsFile
from t2t_torch.search_space import Kind, Range, Space
from t2t_torch.train.stopping import full_name, short_names
from t2t_torch.tune.search_plan import SearchPlan, differences
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis, State, TrialRecord
from t2t_torch.tune.searcher import SearchState, SearchTask, SearchTrial, axes_of
from t2t_torch.tune.study import Heartbeat, TrialHistory, optuna_module, whereabouts

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

    def begin(self, plan: SearchPlan, space: Space, target: Mapping[str, Any]) -> None:
        """Starts the search, or joins it if it is the same.

        Args:
          plan: requested plan.
          space: search space.
          target: target of the search in JSON form.

        Raises:
          CheckpointError: the directory holds another search; lists the differences.
        """
        self.sync()
        requested: dict[str, Any] = json.loads(
            json.dumps({"plan": plan.to_dict(), "space": space.to_list(), "subject": dict(target)})
        )
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
        plan, space = SearchPlan.from_dict(requested["plan"]), Space.from_list(requested["space"])
        lines = differences((self.searcher.plan, self.searcher.space), (plan, space))
        return lines + [
            f"{name}: {self.target.get(name)!r} there, {value!r} requested"
            for name, value in requested["subject"].items()
            if self.target.get(name) != value
        ]

    def sync(self) -> list[tuple[Mapping[str, Any], bool]]:
        """Applies new entries of the history; returns them with their validity."""
        taken: list[tuple[Mapping[str, Any], bool]] = []
        for entry in self.history.new_entries():
            if self._searcher is None and entry.get("do") != "begin":
                raise DataError("the trial history does not start with the start of the search.")
            if self._searcher is None or self._restarts(entry):
                self.began, self.target = float(entry.get("time", 0.0)), dict(entry["subject"])
                self.id = str(entry.get("id", ""))
                plan, space = SearchPlan.from_dict(entry["plan"]), Space.from_list(entry["space"])
                self._searcher = SearchState(plan, space)
                taken.append((entry, True))
            else:
                taken.append((entry, self._searcher.apply(entry)))
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
        return whereabouts(self.history, self.searcher.trials[trial].place)

    def free_lost(self, heartbeat: Heartbeat) -> list[SearchTrial]:
        """Frees the trials of dead tuners; returns the trials freed by this call."""
        held = [trial for trial in self.searcher.trials if trial.status == "held"]
        freed = []
        for trial in held:
            if not heartbeat.is_alive(trial.tuner, trial.place):
                entry = {"do": "lost", "tuner": heartbeat.tuner, "trial": trial.number}
                if self._add({**entry, "holder": trial.tuner}):
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
        if _is_of_another(runs, search):
            names = (output_dir / f"{RUNS}.before-{number}" for number in itertools.count(1))
            old = next(name for name in names if not name.exists())
            runs.rename(old)
        runs.mkdir(exist_ok=True)
        write_text(runs / _OF, f"{search}\n")
    return old


def _is_of_another(runs: Path, search: str) -> bool:
    if not runs.is_dir() or not any(runs.iterdir()):
        return False
    file = runs / _OF
    return (read_text(file).strip() if file.exists() else "") != search


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
    file = MetricsFile(directory)
    try:
        now = file.path.stat()
    except FileNotFoundError:
        return Evaluations(0, ())
    version = now.st_ino, now.st_size, now.st_mtime_ns
    known = _KNOWN.get((file.path, metric))
    if known is None or known[0] != version:
        known = _KNOWN[file.path, metric] = version, _of_reports(file.read(), metric)
    return known[1]


_KNOWN: dict[tuple[Path, str], tuple[tuple[int, ...], Evaluations]] = {}
"""Content of the newest version of each file: a table redrawn every second shows many runs."""


def _of_reports(reports: Iterable[Mapping[str, Any]], metric: str) -> Evaluations:
    step = 0
    curve: dict[int, float | None] = {}
    for report in reports:
        step = max(step, report["step"])
        if report["split"] == "train":
            continue
        names = [name for name in report if name not in _METADATA]
        value = report[_meant(metric, names)]
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


_STATES: dict[str, State] = {
    "held": "running",
    "free": "paused",
    "completed": "completed",
    "stopped": "stopped",
    "failed": "failed",
    "invalid": "failed",
}


def record_of(
    search: SharedSearch, output_dir: Path, *, command: str, trial: str = ""
) -> SearchRecord:
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
    return SearchRecord(
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


def axis_of(name: str, kind: Kind) -> SpaceAxis:
    """Returns the axis that displays a hyperparameter."""
    if isinstance(kind, Range):
        low, high = kind.ends
        return SpaceAxis(name, kind.type, kind.log, low=low, high=high)
    return SpaceAxis(name, kind.type, log=getattr(kind, "log", False), values=kind.ends)


def _trial(trial: SearchTrial, directory: Path, metric: str, length: int) -> TrialRecord:
    step, curve, losses = trial.step, dict(trial.curve), dict[int, float | None]()
    with contextlib.suppress(UsageError):  # includes progress not yet in the trial history
        seen = read_evaluations(directory, metric)
        step = max(step, seen.step)
        curve.update(seen.curve)
        losses = dict(read_evaluations(directory, "loss").curve)
    why = trial.why if trial.status in ("failed", "invalid") else ""
    return TrialRecord(
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
