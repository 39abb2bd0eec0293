"""What speaks for the best trial of a search: comparisons at equal steps alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_torch.report.section import counted, number, percent
from t2t_torch.tune.search_record import SearchRecord, TrialRecord

_MOST = 0.75  # of the trials have reached the step at which all are compared


@dataclass(frozen=True)
class Evidence:
    """The best trial beside the others.

    Attributes:
      best: the trial.
      value: of the metric at its newest evaluation.
      is_default: whether it is the unchanged set.
      default_step: the newest step at which both the best and the unchanged set were evaluated;
        None if there is none.
      default_value: of the unchanged set there.
      best_value: of the best there.
      median: of all other trials that were evaluated where the best last was; None if none was.
      others: how many those are.
    """

    best: TrialRecord
    value: float
    is_default: bool
    default_step: int | None
    default_value: float
    best_value: float
    median: float | None
    others: int


def evidence_of(record: SearchRecord) -> Evidence | None:
    """Compares the best trial with the others; None before the first evaluation."""
    best, default = record.best, record.default
    if best is None or best.value is None:
        return None
    is_default = default is not None and default.number == best.number
    shared = None if default is None or is_default else newest_shared(best, default)
    others = [
        value
        for trial in record.trials
        if trial.number != best.number and (value := value_at(trial, best.evaluated)) is not None
    ]
    return Evidence(
        best,
        best.value,
        is_default,
        shared,
        _known(default, shared),
        _known(best, shared),
        statistics.median(others) if others else None,
        len(others),
    )


def value_at(trial: TrialRecord, step: int) -> float | None:
    """Returns what was measured at a step; None if nothing was there, or it is not finite."""
    value = dict(trial.curve).get(step)
    return value if value is not None and math.isfinite(value) else None


def newest_shared(one: TrialRecord, other: TrialRecord) -> int | None:
    """Returns the newest step at which both have a value."""
    steps = [step for step, _ in one.curve if value_at(one, step) is not None]
    both = [step for step in steps if value_at(other, step) is not None]
    return max(both, default=None)


def _known(trial: TrialRecord | None, step: int | None) -> float:
    value = None if trial is None or step is None else value_at(trial, step)
    return math.nan if value is None else value


def common_step(trials: Sequence[TrialRecord]) -> int | None:
    """Returns the newest step at which three quarters of the trials were evaluated.

    Trials that were never evaluated are not counted.  None: none was.
    """
    evaluated = [{step for step, _ in trial.curve} for trial in trials if trial.curve]
    reached = [
        step
        for step in set().union(*evaluated)
        if sum(step in steps for steps in evaluated) >= _MOST * len(evaluated)
    ]
    return max(reached, default=None)


def verdict(record: SearchRecord, evidence: Evidence) -> list[str]:
    """Says what was found, and what it was compared with."""
    best, metric = evidence.best, record.metric
    told = f"{metric} {number(evidence.value)} at step {best.evaluated:,}"
    if evidence.is_default:
        lines = [f"Nothing better than the unchanged set was found: {told} (trial {best.number})."]
    else:
        lines = [f"The best is trial {best.number}: {told}."]
    if evidence.default_step is not None:
        lines.append(_against_default(record, evidence))
    if evidence.median is not None and evidence.others > 1:
        others = f"{counted(evidence.others, 'other trial')} at step {best.evaluated:,}"
        lines.append(f"The median of {others} is {number(evidence.median)}.")
    if best.step < best.length and best.state != "completed":
        lines.append(f"It has done {best.step:,} of {best.length:,} steps ({best.state}).")
    return lines


def _against_default(record: SearchRecord, evidence: Evidence) -> str:
    step, ours, default = evidence.default_step, evidence.best_value, evidence.default_value
    better = record.loss_of(ours) < record.loss_of(default)
    where = f"At step {step:,}"
    if step != evidence.best.evaluated:
        where += ", the newest that both have reached,"
    told = f"{where} it has {number(ours)}, and the unchanged set {number(default)}"
    if default:
        change = abs(ours - default) / abs(default)
        less = "less" if ours < default else "more"
        told += f": {percent(change)} {less}"
    return told + (", which is better." if better else ", which is not better.")


def edges(record: SearchRecord, trial: TrialRecord) -> list[str]:
    """Says which values of a trial lie at an end of their range, where more may lie behind it."""
    told = []
    for axis in record.space:
        value = trial.hparams.get(axis.name)
        if axis.low is None or axis.high is None or isinstance(value, bool | str | None):
            continue
        if axis.low == axis.high or (axis.log and axis.low <= 0):
            continue
        low, high, here = (
            (math.log(x) if axis.log else float(x)) for x in (axis.low, axis.high, value)
        )
        place = (here - low) / (high - low)
        for end, near, bound in ((0.0, "lower", axis.low), (1.0, "upper", axis.high)):
            if abs(place - end) <= 0.02 and bound != 0:  # behind 0 there is seldom anything
                told.append(
                    f"Its {axis.name} of {number(value)} is at the {near} end of the range, "
                    f"{number(bound)}: a wider one may hold better."
                )
    return told
