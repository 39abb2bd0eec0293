"""The search that the flags of `t2t-tuner` ask for: what is trained, searched, and how."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.bin.tuner_flags import FLAGS, absolute, flag, given
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.tune.reading import check_read
from t2t_torch.tune.search_plan import WITH_RUNGS, SearchPlan
from t2t_torch.tune.space import Categorical, Constant, Integer, Kind, LogDouble, Space
from t2t_torch.tune.subject import ProblemSubject, Subject, TrialSubject
from t2t_torch.tune.whole_length import whole_length

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.trial.experiment_config import ExperimentConfig

DEFAULT_MAX_TRIALS = 16
DEFAULT_MAX_RESTARTS = 5
_DEFAULT_SEED = 1
_EVALUATIONS = 10  # of a whole training, besides those at the rungs


class AskedSearch(NamedTuple):
    """What the flags ask for.

    Attributes:
      plan: how is searched.
      space: what is searched.
      subject: what is trained.
      max_restarts: of a training that breaks.
      steps_of: a length that the trial's loaders were asked for, as it is written -> its steps.
    """

    plan: SearchPlan
    space: Space
    subject: Subject
    max_restarts: int
    steps_of: Mapping[str, int]


def asked_search(known_steps: Mapping[str, int]) -> AskedSearch:
    """Returns the search that the flags ask for.

    Args:
      known_steps: `AskedSearch.steps_of` of the search's beginning.

    Raises:
      UsageError: flags are missing or do not go together.
      HParamsError: the ranges do not fit.
    """
    if flag("trial"):
        return _of_trial(known_steps)
    if flag("config"):
        raise UsageError("--config is the experiment of a --trial. Give --trial, or leave it out.")
    return _of_problem()


def _of_problem() -> AskedSearch:
    shared.require(FLAGS, "problem", "model", "hparams_set", "data_dir", "train_steps")
    if bool(flag("hparams_range")) == bool(flag("ranges")):
        known = ", ".join(registry.list_names("ranged_hparams"))
        raise UsageError(
            "give either --hparams_range, a named set of ranges, or --ranges, a YAML file of them. "
            f"Named are: {known}."
        )
    if flag("model") not in registry.list_names("model"):
        registry.model(flag("model"))  # says which there are, before torch is imported
    problem = registry.problem(flag("problem")).full_name
    hparams = registry.hparams(flag("hparams_set")).parse(flag("hparams"))
    space = _problem_space(hparams)
    source = "hparams_range" if flag("hparams_range") else "ranges"
    check_read(hparams, space, f"--{source}={flag(source)}")
    default = {name: _plain(getattr(hparams, name)) for name in space.kinds}
    metric = flag("metric") or "loss"
    less = flag("metric_minimize")
    if less is None:
        less = _lower_is_better(metric)
    length = flag("train_steps")
    more = [
        f"--eval_steps={flag('eval_steps') or 0}",
        f"--local_eval_frequency={flag('local_eval_frequency') or max(length // _EVALUATIONS, 1)}",
        f"--eval_early_stopping_metric={metric}",
        f"--eval_early_stopping_metric_minimize={str(less).lower()}",
    ]
    subject = ProblemSubject(
        problem=problem,
        model=flag("model"),
        hparams_set=flag("hparams_set"),
        hparams=flag("hparams"),
        data_dir=Path(flag("data_dir")).absolute(),
        usr_dirs=tuple(registry.usr_dirs()),
        more=(*more, *_passed_on()),
    )
    return _asked(
        space, subject, {"metric": metric, "lower_is_better": less, "length": length}, default
    )


def _of_trial(known_steps: Mapping[str, int]) -> AskedSearch:
    shared.require(FLAGS, "config")
    not_of_trials = "problem model hparams_set hparams hparams_range ranges data_dir".split()
    if wrong := [name for name in not_of_trials if flag(name)]:
        raise UsageError(
            f"--{' --'.join(wrong)}: not with --trial, whose experiment (--config) says what is "
            "trained and searched."
        )
    from t2t_torch.trial.experiment_config import ExperimentConfig

    path = Path(flag("config")).absolute()
    config = ExperimentConfig.read(path)
    searcher = config.searcher
    space = Space.of_mapping(config.hyperparameters)
    metric = flag("metric") or searcher.metric
    if not metric:
        raise UsageError(
            f"{path} names no metric to rank trials by. Write searcher: {{metric: ...}}, or give "
            "--metric."
        )
    less = flag("metric_minimize")
    steps_of: dict[str, int] = {}
    length = flag("train_steps")
    if length is None:
        length, steps_of = _length(config, path, space, known_steps)
    found = {
        "metric": metric,
        "lower_is_better": searcher.smaller_is_better if less is None else less,
        "length": length,
        "searcher": searcher.name,
        "max_trials": searcher.trials,
        "divisor": searcher.divisor,
        "max_rungs": searcher.max_rungs,
        "mode": searcher.mode,
        "bracket_rungs": searcher.bracket_rungs,
        "max_concurrent": searcher.max_concurrent_trials,
        "seed": config.reproducibility.experiment_seed,
    }
    # The tuner begins again itself what breaks, and counts it.
    more = ["--max_restarts=0"]
    for name in ("eval_steps", "local_eval_frequency"):
        if flag(name) is not None:
            more.append(f"--{name}={flag(name)}")
    if flag("metric"):
        more.append(f"--eval_early_stopping_metric={metric}")
    if less is not None:
        more.append(f"--eval_early_stopping_metric_minimize={str(less).lower()}")
    subject = TrialSubject(
        trial=absolute(flag("trial")),
        config=path,
        class_name=_trial_name(flag("trial")),
        usr_dirs=tuple(registry.usr_dirs()),
        more=(*more, *_passed_on()),
    )
    asked = _asked(space, subject, found, None)
    restarts = flag("max_restarts")
    most = config.max_restarts if restarts is None else restarts
    return asked._replace(max_restarts=most, steps_of=steps_of)


def _asked(
    space: Space, subject: Subject, found: dict[str, Any], default: Mapping[str, Any] | None
) -> AskedSearch:
    """Joins what was found with what the flags say, which are stronger."""
    for name in ("searcher", "max_trials", "divisor", "max_rungs", "mode", "seed"):
        if flag(name) is not None:
            found[name] = flag(name)
    if flag("bracket_rungs"):
        found["bracket_rungs"] = tuple(
            _whole("bracket_rungs", one) for one in flag("bracket_rungs")
        )
    found = {"searcher": "adaptive_asha", "seed": _DEFAULT_SEED, **found}
    _check_read(found)
    if found["searcher"] == "single" or not flag("default_first"):
        default = None
    if found["searcher"] != "single" and not space.searched:
        raise UsageError(
            f"there is nothing to search: {', '.join(space.kinds) or 'no hyperparameter'} is "
            "constant. Give a range, or train it: t2t-trainer."
        )
    found["max_trials"] = _max_trials(found, space, has_default=default is not None)
    restarts = flag("max_restarts")
    return AskedSearch(
        SearchPlan(**found, default=default),
        space,
        subject,
        DEFAULT_MAX_RESTARTS if restarts is None else restarts,
        {},
    )


def _check_read(found: Mapping[str, Any]) -> None:
    """Refuses flags of this command line that nothing in this search reads.

    Raises:
      UsageError: some were given; all are told.
    """
    searcher = found["searcher"]
    faults = []
    if searcher not in WITH_RUNGS:
        for name in ("mode", "divisor", "max_rungs", "bracket_rungs"):
            if FLAGS[name].present:
                faults.append(f"--{name}: of rungs, and --searcher={searcher} has none.")
    elif found.get("bracket_rungs"):
        for name in ("mode", "max_rungs"):
            if FLAGS[name].present:
                faults.append(f"--{name}: bracket_rungs, which are given, say how many rungs.")
    elif searcher == "asha" and FLAGS["mode"].present:
        faults.append("--mode: of several brackets, and --searcher=asha has one.")
    if searcher == "single" and FLAGS["max_trials"].present and flag("max_trials") != 1:
        faults.append(f"--max_trials={flag('max_trials')}: --searcher=single has one trial.")
    if FLAGS["default_first"].present and (flag("trial") or searcher == "single"):
        what = "a --trial has no unchanged set" if flag("trial") else "--searcher=single has one"
        faults.append(f"--default_first: the unchanged set comes before others; {what}.")
    if faults:
        raise UsageError("\n".join([*faults, "Leave it out."]))


def _max_trials(found: Mapping[str, Any], space: Space, *, has_default: bool) -> int:
    asked: int | None = found.get("max_trials")
    if found["searcher"] == "single":
        return 1
    if found["searcher"] == "grid":
        size = space.grid_size() + int(has_default)
        return size if asked is None else min(asked, size)
    return DEFAULT_MAX_TRIALS if asked is None else asked


def _problem_space(hparams: HParams) -> Space:
    if flag("hparams_range"):
        ranges = registry.ranged_hparams(flag("hparams_range"))
        ranges.check(hparams, f"--hparams_range={flag('hparams_range')}")
        return Space.of_ranges(ranges)
    from t2t_torch.trial.strict_yaml import read_mapping

    path = Path(flag("ranges"))
    space = Space.of_mapping(read_mapping(path), f"{path}: ")
    faults: dict[str, None] = {}
    for name, kind in space.kinds.items():
        for value in _ends(kind):
            try:
                hparams.replace(**{name: value})
            except HParamsError as error:
                faults[f"{path}: {error}"] = None
    if faults:
        raise HParamsError("\n".join(faults))
    return space


def _ends(kind: Kind) -> tuple[Any, ...]:
    """Returns values of a kind that have to be allowed if all are."""
    if isinstance(kind, Constant):
        return (kind.value,)
    if isinstance(kind, Categorical):
        return kind.values
    if isinstance(kind, LogDouble):
        return kind.base**kind.low, kind.base**kind.high
    if isinstance(kind, Integer):
        return kind.low, kind.high
    return kind.low, kind.high


def _length(
    config: ExperimentConfig, path: Path, space: Space, known_steps: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """Returns the optimizer steps of a whole training; its loaders are asked if they know.

    Args:
      config: the experiment.
      path: of its file.
      space: what is searched.
      known_steps: lengths as they are written -> steps that loaders have told already.

    Returns:
      The steps, and what loaders have told of them: empty if they were not needed.

    Raises:
      UsageError: the experiment does not say it, or it depends on what is searched.
    """
    length = config.searcher.length
    if length is None:
        raise UsageError(
            f"{path} does not say how long to train. Write searcher: {{max_length: {{batches: "
            "1000}}, or give --train_steps."
        )
    if length.unit in ("records", "epochs"):
        written = str(length)
        if written in known_steps:
            return known_steps[written], dict(known_steps)
        print(f"asking the loaders how many steps {written} are", file=sys.stderr)
        steps = whole_length(flag("trial"), path, space, registry.usr_dirs())
        return steps, {written: steps}
    scale = config.scale(world_size=1, records_per_batch=1.0, batches_per_epoch=None)
    return scale.steps(length), {}


def _passed_on() -> list[str]:
    more = [f"--worker_gpu={flag('worker_gpu')}"] if given("worker_gpu") else []
    if flag("eval_metrics"):
        more.append(f"--eval_metrics={','.join(flag('eval_metrics'))}")
    return more


def _lower_is_better(metric: str) -> bool:
    if metric.rpartition("/")[2] == "loss":
        return True
    from t2t_torch.metrics.metric import lower_is_better

    return lower_is_better(metric)


def _trial_name(spec: str) -> str:
    head, colon, name = spec.rpartition(":")
    return name if colon and head else Path(spec).stem


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--{name}: {text!r} is no whole number.") from None
