"""A search that tuners share: its ledger, what follows from it, and who is alive."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.files import file_lock, write_text
from t2t_torch.search_space import Kind, Range, Space
from t2t_torch.train.run_directory import MetricsFile
from t2t_torch.train.stopping import full_name, short_names
from t2t_torch.tune.search_plan import SearchPlan, differences
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis, State, TrialRecord
from t2t_torch.tune.searcher import Searcher, Task, TrialState, axes_of
from t2t_torch.tune.study import Heartbeat, TrialHistory, optuna_module, whereabouts

NONE_BEGUN = (
    "no search was begun here. Begin one: t2t-tuner --problem=... --model=... --hparams_set=... "
    "--hparams_range=... --data_dir=... --output_dir=..."
)


class SharedSearch:
    """A tuner's view of a shared search.

    Args:
      ledger: of the search.

    Attributes:
      began: seconds since 1970, of the first entry; 0 before it.
      last: of the newest one.
      id: of its beginning, the same to all tuners; empty if it was begun before there were ids.
      subject: what is trained, as the search was begun with.
    """

    def __init__(self, ledger: TrialHistory) -> None:
        self.ledger = ledger
        self.began = 0.0
        self.last = 0.0
        self.id = ""
        self.subject: dict[str, Any] = {}
        self._searcher: Searcher | None = None

    @property
    def searcher(self) -> Searcher:
        """The state of the search."""
        if self._searcher is None:
            raise DataError(NONE_BEGUN)
        return self._searcher

    @property
    def has_begun(self) -> bool:
        """Whether somebody has begun it."""
        return self._searcher is not None

    def begin(self, plan: SearchPlan, space: Space, subject: Mapping[str, Any]) -> None:
        """Begins the search, or joins it if it is the same.

        Args:
          plan: what is asked for.
          space: what is searched.
          subject: what is trained, as JSON can say it.

        Raises:
          CheckpointError: another search is kept here; says what it differs in.
        """
        self.sync()
        asked: dict[str, Any] = json.loads(
            json.dumps({"plan": plan.to_dict(), "space": space.to_list(), "subject": dict(subject)})
        )
        begin = {"do": "begin", "id": uuid.uuid4().hex[:12], **asked}
        if not self.has_begun:  # of two that begin at once, the second finds the first one's
            self._add(begin)
        told = self._differences(asked)
        if told and self.searcher.is_blank:  # nothing would be lost
            self._add(begin)
            told = self._differences(asked)
        if told:
            raise CheckpointError(
                "another search is kept here, and it cannot go on as this one:\n  "
                + "\n  ".join(told)
                + "\nGo on with it: t2t-tuner with the same flags, or with --output_dir alone. Or "
                "begin this one in another --output_dir (of a shared --storage, with another "
                "--study_name)."
            )

    def _differences(self, asked: Mapping[str, Any]) -> list[str]:
        """Returns what the search that is kept here differs in from the one that is asked for."""
        plan, space = SearchPlan.from_dict(asked["plan"]), Space.from_list(asked["space"])
        told = differences((self.searcher.plan, self.searcher.space), (plan, space))
        return told + [
            f"{name}: {self.subject.get(name)!r} there, {value!r} asked for"
            for name, value in asked["subject"].items()
            if self.subject.get(name) != value
        ]

    def sync(self) -> list[tuple[Mapping[str, Any], bool]]:
        """Takes what has been added; returns the entries, and whether each was valid."""
        taken: list[tuple[Mapping[str, Any], bool]] = []
        for entry in self.ledger.new_entries():
            self.last = float(entry.get("time", self.last))
            if self._searcher is None and entry.get("do") != "begin":
                raise DataError("the search's ledger does not begin with its beginning.")
            if self._searcher is None or self._begins_anew(entry):
                self.began, self.subject = self.last, dict(entry["subject"])
                self.id = str(entry.get("id", ""))
                plan, space = SearchPlan.from_dict(entry["plan"]), Space.from_list(entry["space"])
                self._searcher = Searcher(plan, space)
                taken.append((entry, True))
            else:
                taken.append((entry, self._searcher.apply(entry)))
        return taken

    def _begins_anew(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry begins another search, where nothing is lost.

        The same one has begun already: of two tuners that bring it at the same moment, the second
        one joins.
        """
        may = entry["do"] == "begin" and self.searcher.is_blank
        return may and bool(self._differences(entry))

    def take(self, presence: Heartbeat) -> Task | None:
        """Claims what is to be done next; None if there is nothing for this tuner now."""

        def is_reachable(trial: TrialState) -> bool:
            # Elsewhere it waits for those who have its checkpoint, or begins anew without them.
            return trial.place == presence.place or not presence.place_is_alive(trial.place)

        while True:
            self.sync()
            task = self.searcher.next_task(is_reachable)
            if task is None:
                return None
            entry: dict[str, Any] = {
                "do": "take",
                "tuner": presence.tuner,
                "place": presence.place,
                "trial": task.trial,
                "to": task.to,
            }
            if task.is_new:
                entry |= {"hparams": dict(task.hparams), "is_default": task.is_default}
            if self._add(entry):
                return task

    def tell(self, presence: Heartbeat, do: str, trial: int, **more: Any) -> bool:
        """Adds what became of a trial; returns whether it was this tuner's to tell."""
        return self._add({"do": do, "tuner": presence.tuner, "trial": trial, **more})

    def whereabouts(self, trial: int) -> str:
        """Returns the machine and the folder of who trained a trial last; empty if unknown."""
        return whereabouts(self.ledger, self.searcher.trials[trial].place)

    def free_lost(self, presence: Heartbeat) -> list[TrialState]:
        """Frees the trials of tuners that are dead; returns those that this call has freed."""
        held = [trial for trial in self.searcher.trials if trial.status == "held"]
        freed = []
        for trial in held:
            if not presence.is_alive(trial.tuner, trial.place):
                entry = {"do": "lost", "tuner": presence.tuner, "trial": trial.number}
                if self._add({**entry, "holder": trial.tuner}):
                    freed.append(trial)
        return freed

    def _add(self, entry: Mapping[str, Any]) -> bool:
        """Adds an entry; returns whether it was valid when its turn came."""
        written = json.loads(json.dumps(entry))
        self.ledger.append(written)
        return any(
            valid and {key: one.get(key) for key in written} == written
            for one, valid in self.sync()
        )


# The study of a search's name, for optuna's own tools: its dashboard, its importances.


def publish(ledger: TrialHistory, searcher: Searcher) -> None:
    """Adds finished trials to the study of the search's name, where optuna's tools look.

    What is there already, from whichever tuner, is not added again.  Nothing is read back: if the
    study is lost, or two tuners add at the same moment, no decision is another one.

    Args:
      ledger: of the search.
      searcher: its state.
    """
    plan, space = searcher.plan, searcher.space
    optuna = optuna_module()
    state = optuna.trial.TrialState
    states = {"completed": state.COMPLETE, "stopped": state.PRUNED}
    with contextlib.suppress(optuna.exceptions.StorageInternalError):
        study = optuna.create_study(
            storage=ledger.storage,
            study_name=ledger.name,
            direction="minimize" if plan.lower_is_better else "maximize",
            load_if_exists=True,
        )
        known = {trial.user_attrs.get("number") for trial in study.get_trials(deepcopy=False)}
        for trial in searcher.trials:
            if trial.number in known or not trial.is_over:
                continue
            curve = {step: value for step, value in trial.curve if value is not None}
            status = states.get(trial.status, state.FAIL)
            if trial.value is None:
                status = state.FAIL
            made = optuna.trial.create_trial(
                state=status,
                value=trial.value if status == state.COMPLETE else None,
                **axes_of(space, trial.hparams),
                intermediate_values=curve,
                user_attrs={"number": trial.number, "hparams": dict(trial.hparams)},
            )
            study.add_trial(made)


# Where the runs of a search are, and of which search they are.


RUNS = "trials"
"""In the search's folder: the run directories, by the trial's number."""

_OF = ".search"
"""Among them: the id of the search that they are of."""


def trial_directory(output_dir: Path, trial: int) -> Path:
    """Returns the run directory of a trial of a search."""
    return output_dir / RUNS / str(trial)


def claim_runs(output_dir: Path, search: str) -> Path | None:
    """Makes the folder of runs that of a search; runs of another one are set aside.

    A trial would else go on from the checkpoint of another search's trial of its number.

    Args:
      output_dir: of the search.
      search: its id, which all of its tuners know.

    Returns:
      Where the runs of another search are now; None if there were none.
    """
    runs, old = output_dir / RUNS, None
    with file_lock(output_dir / f"{RUNS}.lock"):  # of tuners that begin one at a time
        if _is_of_another(runs, search):
            old = _free_name(output_dir)
            runs.rename(old)
        runs.mkdir(exist_ok=True)
        write_text(runs / _OF, f"{search}\n")
    return old


def _is_of_another(runs: Path, search: str) -> bool:
    if not runs.is_dir() or not any(runs.iterdir()):
        return False
    file = runs / _OF
    return (file.read_text("utf-8").strip() if file.exists() else "") != search


def _free_name(output_dir: Path) -> Path:
    number = 1
    while (old := output_dir / f"{RUNS}.before-{number}").exists():
        number += 1
    return old


# What a training has evaluated, read from its run directory.


_BESIDE = ("step", "split", "time")
_Version: TypeAlias = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Evaluations:
    """One metric of a run.

    Attributes:
      step: of the newest report, of training or of an evaluation; 0 if there is none.
      curve: (step, value) of each evaluation, None where it is not finite.
    """

    step: int
    curve: tuple[tuple[int, float | None], ...]

    @property
    def newest(self) -> tuple[int, float | None] | None:
        """The last evaluation."""
        return self.curve[-1] if self.curve else None


_KNOWN: dict[tuple[Path, str], tuple[_Version, Evaluations]] = {}
"""What was read of each file: a table that is drawn each second shows many runs that are over."""


def read_evaluations(directory: Path, metric: str) -> Evaluations:
    """Reads what a run has reported; a file that has not changed is not read again.

    Args:
      directory: of the run; it need not have begun.
      metric: as evaluations print it ("loss") or as summaries name it.

    Raises:
      UsageError: evaluations have no such metric.
    """
    file = MetricsFile(directory)
    version = _version(file.path)
    known = _KNOWN.get((file.path, metric))
    if known is not None and known[0] == version:
        return known[1]
    found = _of_reports(file.read(), metric)
    if version is not None:
        _KNOWN[file.path, metric] = version, found
    return found


def _version(path: Path) -> _Version | None:
    """Returns what changes whenever a file does; None if it is not there."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


def _of_reports(reports: Iterable[Mapping[str, Any]], metric: str) -> Evaluations:
    step = 0
    curve: dict[int, float | None] = {}
    for report in reports:
        step = max(step, report["step"])
        if report["split"] == "train":
            continue
        names = [name for name in report if name not in _BESIDE]
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


# What a search's ledger and run directories say, as a `SearchRecord`.


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
    """Returns what is known of a search at this moment.

    Args:
      search: begun and in step with its ledger.
      output_dir: of the search.
      command: that goes on with the search.
      trial: what `--trial` is here; empty for a problem.
    """
    searcher, subject = search.searcher, search.subject
    plan = searcher.plan
    trials = tuple(
        _trial(trial, trial_directory(output_dir, trial.number), plan.metric, plan.length)
        for trial in searcher.trials
    )
    default = next((trials[one.number] for one in searcher.trials if one.is_default), None)
    return SearchRecord(
        name=str(subject.get("name", "")),
        searcher=plan.searcher,
        metric=plan.metric,
        lower_is_better=plan.lower_is_better,
        seed=plan.seed,
        space=tuple(axis_of(name, kind) for name, kind in searcher.space.kinds.items()),
        trials=trials,
        default=default,
        seconds=sum(one.seconds for one in trials),
        began=search.began,
        over=searcher.is_over,
        output_dir=output_dir,
        command=command,
        **_named(subject),
        trial=trial,
    )


def _named(subject: Mapping[str, Any]) -> dict[str, str]:
    return {
        "model": subject.get("model", ""),
        "hparams_set": subject.get("hparams_set", ""),
        "hparams_changes": subject.get("hparams", ""),
        "problem": subject.get("problem", ""),
    }


def axis_of(name: str, kind: Kind) -> SpaceAxis:
    """Returns how a kind is shown."""
    if isinstance(kind, Range):
        low, high = kind.ends
        return SpaceAxis(name, kind.type, kind.log, low=low, high=high)
    return SpaceAxis(name, kind.type, log=getattr(kind, "log", False), values=kind.ends)


def _trial(trial: TrialState, directory: Path, metric: str, length: int) -> TrialRecord:
    step, curve = trial.step, dict(trial.curve)
    try:  # what a training has done since it told the ledger
        seen = read_evaluations(directory, metric)
        step = max(step, seen.step)
        curve.update(seen.curve)
    except UsageError:
        pass
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
    )
