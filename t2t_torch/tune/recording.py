"""What a search's ledger and run directories say, as a `SearchRecord`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_torch.errors import UsageError
from t2t_torch.tune.evaluations import read_evaluations
from t2t_torch.tune.run_folders import trial_directory
from t2t_torch.tune.search_record import SearchRecord, SpaceAxis, State, TrialRecord
from t2t_torch.tune.shared_search import SharedSearch
from t2t_torch.tune.space import Categorical, Constant, Double, Integer, Kind, LogDouble
from t2t_torch.tune.trial_state import TrialState

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
    if isinstance(kind, Constant):
        return SpaceAxis(name, "const", log=False, values=(kind.value,))
    if isinstance(kind, Categorical):
        return SpaceAxis(name, "categorical", log=kind.log, values=kind.values)
    if isinstance(kind, LogDouble):
        low, high = sorted((kind.base**kind.low, kind.base**kind.high))
        return SpaceAxis(name, "log", log=True, low=low, high=high)
    assert isinstance(kind, Integer | Double)
    word = "int" if isinstance(kind, Integer) else "double"
    return SpaceAxis(name, word, log=kind.log, low=kind.low, high=kind.high)


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
