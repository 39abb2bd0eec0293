"""Results of a search: evidence, importances, and the best values for reuse."""

from __future__ import annotations

import json
import keyword
import math
import random
import re
import shlex
import statistics
import textwrap
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.params import assignments, value_text
from t2t_torch.reports.plots import AxisScale, written
from t2t_torch.reports.section import counted, number, percent
from t2t_torch.search_space import AnyValue, Space
from t2t_torch.tune.search_plan import STATES, SearchRecord, SpaceAxis, TrialRecord
from t2t_torch.tune.search_target import read_ones
from t2t_torch.tune.study import optuna_module

_MOST = 0.75  # share of the trials that must have reached the step of comparison


@dataclass(frozen=True)
class Evidence:
    """Comparison of the best trial with the others.

    Attributes:
      best: best trial.
      value: metric at its latest evaluation.
      is_default: whether it is the unchanged hparams set.
      default_step: latest step at which both the best trial and the default were evaluated; None if
        there is none.
      default_value: metric of the default at that step.
      best_value: metric of the best trial at that step.
      median: median metric of the other trials evaluated at the best trial's latest step; None
        without such trials.
      others: number of these trials.
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
    ours, theirs = best.values, {} if default is None or is_default else default.values
    shared = max(ours.keys() & theirs.keys(), default=None)
    others = [
        trial.values[best.evaluated]
        for trial in record.trials
        if trial.number != best.number and best.evaluated in trial.values
    ]
    return Evidence(
        best,
        best.value,
        is_default,
        shared,
        math.nan if shared is None else theirs[shared],
        math.nan if shared is None else ours[shared],
        statistics.median(others) if others else None,
        len(others),
    )


def common_step(trials: Sequence[TrialRecord]) -> int | None:
    """Returns the latest step at which three quarters of the trials were evaluated.

    Trials without evaluations do not count.  None if no trial was evaluated.
    """
    evaluated = [{step for step, _ in trial.curve} for trial in trials if trial.curve]
    reached = [
        step
        for step in set().union(*evaluated)
        if sum(step in steps for steps in evaluated) >= _MOST * len(evaluated)
    ]
    return max(reached, default=None)


def verdict(record: SearchRecord, evidence: Evidence) -> list[str]:
    """Returns sentences about the best trial and its comparisons."""
    best, metric = evidence.best, record.metric
    value = f"{metric} {number(evidence.value)} at step {best.evaluated:,}"
    if evidence.is_default:
        lines = [f"Nothing better than the unchanged set was found: {value} (trial {best.number})."]
    else:
        lines = [f"The best is trial {best.number}: {value}."]
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
    sentence = f"{where} it has {number(ours)}, and the unchanged set {number(default)}"
    if default:
        change = abs(ours - default) / abs(default)
        less = "less" if ours < default else "more"
        sentence += f": {percent(change)} {less}"
    return sentence + (", which is better." if better else ", which is not better.")


def scale_of(axis: SpaceAxis, values: Iterable[AnyValue]) -> AxisScale:
    """Returns the scale of a hyperparameter: its range, extended to all tried values.

    Args:
      axis: axis of the search space.
      values: tried values; those of the default may be outside the range.
    """
    tried = list(values)
    if axis.low is None or axis.high is None:
        names = tuple(dict.fromkeys(map(written, (*axis.values, *tried))))
        if all(type(value) in (int, float) for value in (*axis.values, *tried)):
            names = tuple(sorted(names, key=float))
        return AxisScale(0.0, 1.0, names=names)
    numbers = [float(value) for value in tried if isinstance(value, int | float)]
    low, high = min([axis.low, *numbers]), max([axis.high, *numbers])
    return scale_between(low, high, log=axis.log and low > 0, whole=axis.kind == "int")


def scale_between(low: float, high: float, *, log: bool, whole: bool) -> AxisScale:
    """Returns the scale of a range, which must not be empty."""
    if log:
        low, high = math.log10(low), math.log10(high)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return AxisScale(low, high, log=log, whole=whole)


def edges(record: SearchRecord, trial: TrialRecord) -> list[str]:
    """Returns sentences about values at a bound of their range."""
    sentences = []
    for axis in record.space:
        value: AnyValue = trial.hparams.get(axis.name)
        scale = scale_of(axis, ())
        place = None if scale.names or isinstance(value, bool) else scale.place(value)
        for end, near, bound in ((0.0, "lower", axis.low), (1.0, "upper", axis.high)):
            # A bound of 0 usually cannot be exceeded.
            if place is not None and bound and abs(place - end) <= 0.02:
                sentences.append(
                    f"Its {axis.name} of {number(value)} is at the {near} end of the range, "
                    f"{number(bound)}: a wider one may hold better."
                )
    return sentences


JSON_FILE = "best.json"
"""File with the results of every search."""
SET_FILE = "best_hparams.py"
"""File with a registered hparams set, for a problem."""
YAML_FILE = "best.yaml"
"""File with the `hyperparameters` section of an experiment, for a trial."""

_WIDTH = 100
_CHANCE = "Each value is of one training with one seed: small differences may be chance."


def write_findings(record: SearchRecord, directory: Path) -> str:
    """Writes the results and returns a summary.

    `best.json` is written once a trial has been evaluated, together with `best_hparams.py` for a
    problem or `best.yaml` for a trial.  If no trial is better than the default, the second file is
    not written, and an existing one is deleted.

    Args:
      record: record of the search.
      directory: output directory.

    Returns:
      Lines for a terminal.
    """
    evidence = evidence_of(record)
    if evidence is None:
        return "No trial has been evaluated yet: there is no best one to describe."
    lines = summary(record)
    write_text(directory / JSON_FILE, to_json(record, evidence))
    name = SET_FILE if record.hparams_set else YAML_FILE
    if evidence.is_default:
        (directory / name).unlink(missing_ok=True)
        return "\n".join(lines)
    write_text(directory / name, ready_to_paste(record, evidence))
    lines += ["", f"Its hyperparameters, ready to paste: {directory / name}"]
    lines += [f"Its run: {evidence.best.output_dir}"]
    if record.hparams_set:
        flags = f"--problem={record.problem} --model={record.model} "
        flags += f"--hparams_set={record.hparams_set} {hparams_flag(record, evidence)}"
        lines += ["Or without a file:", f"  t2t-trainer {flags} --data_dir=... --output_dir=..."]
    return "\n".join(lines)


def summary(record: SearchRecord) -> list[str]:
    """Returns the results as sentences; empty before the first evaluation."""
    evidence = evidence_of(record)
    if evidence is None:
        return []
    edge_values = [] if evidence.is_default else edges(record, evidence.best)
    return [*verdict(record, evidence), *edge_values, _CHANCE]


def ready_to_paste(record: SearchRecord, evidence: Evidence) -> str:
    """Returns the file to copy: Python for a problem, YAML for a trial."""
    if record.hparams_set:
        return _python(record, evidence)
    import yaml  # required for trials only

    comment = "".join(f"# {line}\n" for line in _wrapped(record, _WIDTH - 2))
    section = {"hyperparameters": Space.nested(hparams_of(record, evidence))}
    return comment + str(yaml.safe_dump(section, sort_keys=False, allow_unicode=True))


def set_name(record: SearchRecord) -> str:
    """Returns the name under which the resulting hparams set is registered."""
    parts = re.sub(r"\W+", "_", f"{record.hparams_set}_{record.problem}_found").strip("_")
    return f"set_{parts}" if not parts.isidentifier() or keyword.iskeyword(parts) else parts


def hparams_of(record: SearchRecord, evidence: Evidence) -> dict[str, AnyValue]:
    """Returns the best trial's hyperparameters in the order of the space, including constants."""
    constants = {axis.name: axis.values[0] for axis in record.space if axis.kind == "const"}
    values = constants | dict(evidence.best.hparams)
    return {axis.name: values[axis.name] for axis in record.space if axis.name in values} | values


def hparams_flag(record: SearchRecord, evidence: Evidence) -> str:
    """Returns `--hparams=...` for a shell: the changes of all trials and of the best one.

    Values that the training did not read, such as settings of another optimizer, are omitted
    because the trainer rejects them.  If the hparams set is unknown in this process, they are kept.
    """
    values = hparams_of(record, evidence)
    if record.hparams_set in registry.list_names("hparams"):
        base = registry.hparams(record.hparams_set, record.model)
        base = base.parse(record.hparams_changes)
        values = read_ones(base, values)
    items = _unchanged_items(record, values)
    items += [f"{name}={value_text(value)}" for name, value in values.items()]
    return f"--hparams={shlex.quote(','.join(items))}"


def _unchanged_items(record: SearchRecord, values: Mapping[str, AnyValue]) -> list[str]:
    """Returns the changes of all trials that the best trial's values do not override."""
    stripped = [item.strip() for item in assignments(record.hparams_changes) if item.strip()]
    return [item for item in stripped if item.partition("=")[0].strip() not in values]


def to_json(record: SearchRecord, evidence: Evidence) -> str:
    """Returns the results and their evidence as JSON."""
    best = evidence.best
    content: dict[str, Any] = {
        "hparams": hparams_of(record, evidence),
        "metric": record.metric,
        "lower_is_better": record.lower_is_better,
        "value": evidence.value,
        "step": best.evaluated,
        "trial": best.number,
        "run": str(best.output_dir),
        "evidence": {
            "summary": summary(record),
            "unchanged_set": None
            if evidence.default_step is None
            else {
                "step": evidence.default_step,
                "value": evidence.default_value,
                "best_there": evidence.best_value,
            },
            "median_of_others": evidence.median,
            "others": evidence.others,
            "trials": {state: record.counts.get(state, 0) for state in STATES},
            "searcher": record.searcher,
            "seed": record.seed,
            "command": record.command,
            "over": record.over,
        },
    }
    if record.hparams_set:
        content |= {
            "of_problem": record.problem,
            "model": record.model,
            "hparams_set": record.hparams_set,
            "hparams_changes": record.hparams_changes,
            "flag": hparams_flag(record, evidence),
        }
    else:
        content["trial_code"] = record.trial
    return json.dumps(content, indent=2, default=str) + "\n"


def _wrapped(record: SearchRecord, width: int) -> list[str]:
    """Returns the evidence as lines of a docstring or a comment."""
    date = time.strftime("%Y-%m-%d", time.gmtime(record.began))
    over = "" if record.over else "  The search was not over."
    states = ", ".join(f"{count} {state}" for state, count in record.counts.items())
    how = f"{record.name}: {record.searcher}, seed {record.seed}, started {date}; "
    lines = [*summary(record), f"{how}{counted(len(record.trials), 'trial')}: {states}.{over}"]
    if record.command:
        lines.append(f"Command: {record.command}")
    wrapper = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)
    return [part for line in lines for part in wrapper.wrap(line)]


def _python(record: SearchRecord, evidence: Evidence) -> str:
    """Returns a Python file for a user directory that registers the hparams set."""
    body = _wrapped(record, _WIDTH - 4)
    # Escapes names and commands: they must not end the docstring or form escape sequences.
    docstring = "\n    ".join(body).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    name, base = set_name(record), record.hparams_set
    values = hparams_of(record, evidence)
    changed = _unchanged_items(record, values)
    start = f"    base = registry.hparams({_literal(base)})\n"
    if changed:
        call = f"{_literal(','.join(changed))}, {_literal(name)}"
        line = f"    base = base.parse({call})\n"
        start += line if len(line) <= _WIDTH else f"    base = base.parse(\n        {call}\n    )\n"
    fields = "".join(f"        {key}={_literal(value)},\n" for key, value in values.items())
    return (
        f'"""The best hyperparameters of a search: copy this file to your --t2t_usr_dir."""\n\n'
        "from __future__ import annotations\n\n"
        "from t2t_torch import registry\n"
        "from t2t_torch.hparam import HParams\n"
        "from t2t_torch.registry import register_hparams\n\n\n"
        "@register_hparams\n"
        f"def {name}() -> HParams:\n"
        f'    """What a search around {base} found.\n\n    {docstring}\n    """\n'
        f"{start}"
        f"    return base.replace(\n{fields}    )\n"
    )


def _literal(value: AnyValue) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


LEAST_TRIALS = 8
"""Minimum number of trials."""

_SHUFFLES = 20
_BEST = 0.25  # the part of the trials that is compared with all
_ONE_IN = 20  # one in so many shuffled shares is above chance
_PER_NAME = 10  # trials per hyperparameter from which on shares are reliable


@dataclass(frozen=True)
class HparamImportance:
    """Importance of one hyperparameter.

    Attributes:
      name: name of the hyperparameter.
      share: share of the difference between the best trials and all, from 0 to 1.
      chance: share that it would reach if the metric were shuffled; smaller shares are not
        significant.
    """

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class Importance:
    """Importances of all hyperparameters.

    Attributes:
      shares: importances in descending order; empty without enough data.
      step: step at which the trials were compared.
      reliability: sentence on the reliability of the shares.
    """

    shares: tuple[HparamImportance, ...]
    step: int | None
    reliability: str


def importance_of(record: SearchRecord) -> Importance:
    """Estimates the importance of hyperparameters at the latest step that most trials reached.

    optuna's PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255) compares the best quarter of the
    trials with all, by rank: a diverged trial is only the last.  Failed trials are excluded.  The
    shares expected by chance are estimated by shuffling; with few trials they are large.
    """
    space = [axis for axis in record.space if axis.kind != "const"]
    names = {axis.name for axis in space}
    trials = [one for one in record.trials if one.state != "failed" and names <= {*one.hparams}]
    step = common_step(trials)
    trials = [one for one in trials if any(step == measured for measured, _ in one.curve)]
    if len(trials) < LEAST_TRIALS or step is None or not space:
        count = f"{counted(len(trials), 'trial')} can be compared; from {LEAST_TRIALS} on this says"
        return Importance((), step, f"{count} how much each hyperparameter matters.")
    losses = [record.loss_of(one.values.get(step)) for one in trials]
    ordered = sorted(losses)
    ranks = [float(ordered.index(loss)) for loss in losses]
    if not any(ranks):
        return Importance((), step, f"All trials have the same value at step {step:,}.")
    explained = _divergences(space, trials, ranks)
    total = sum(explained.values()) or 1.0
    draw = random.Random(record.seed)
    by_chance = [
        _divergences(space, trials, draw.sample(ranks, len(ranks))) for _ in range(_SHUFFLES)
    ]
    made = [
        HparamImportance(
            name,
            share / total,
            statistics.quantiles([one[name] for one in by_chance], n=_ONE_IN)[-1] / total,
        )
        for name, share in explained.items()
    ]
    made.sort(key=lambda one: -one.share)
    return Importance(tuple(made), step, _reliability(len(trials), made, step, record.metric))


def _divergences(
    space: Sequence[SpaceAxis], trials: Sequence[TrialRecord], ranks: Sequence[float]
) -> dict[str, float]:
    """Returns by hyperparameter how much the trials of the lowest ranks differ from all."""
    optuna = optuna_module()
    scales = {
        axis.name: scale_of(axis, [one.hparams[axis.name] for one in trials]) for axis in space
    }
    distributions = {
        name: optuna.distributions.CategoricalDistribution(scale.names)
        if scale.names
        else optuna.distributions.FloatDistribution(0.0, 1.0)
        for name, scale in scales.items()
    }
    study = optuna.create_study()
    for trial, rank in zip(trials, ranks, strict=True):
        places = {
            name: written(trial.hparams[name]) if scale.names else scale.place(trial.hparams[name])
            for name, scale in scales.items()
        }
        study.add_trial(
            optuna.trial.create_trial(params=places, distributions=distributions, value=rank)
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=_BEST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental
        shares: dict[str, float] = optuna.importance.get_param_importances(
            study, evaluator=evaluator, params=list(scales), normalize=False
        )
    return shares


def _reliability(trials: int, made: Sequence[HparamImportance], step: int, metric: str) -> str:
    names = counted(len(made), "hyperparameter")
    above = sum(one.share > one.chance for one in made)
    base = f"{counted(trials, 'trial')} for {names}, ranked by {metric} at step {number(step)}: "
    if not above:
        return f"{base}no share is above what chance alone gives. Run more trials."
    if trials < _PER_NAME * len(made):
        return f"{base}a hint, not a measurement."
    return f"{base}a share above that of chance would come in one search in twenty."
