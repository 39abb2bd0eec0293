"""Settings of a search, what a resumed search takes from its start, and the search they request."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_torch import errors, registry, search_space, trust
from t2t_torch.atomic_files import write_text
from t2t_torch.executor import RunnerSettings
from t2t_torch.files import read_json
from t2t_torch.settings import Settings, hp, hp_path, require
from t2t_torch.tune.search_plan import MODES, SEARCHERS, WITH_RUNGS, SearchPlan
from t2t_torch.tune.study import without_password
from t2t_torch.workflows.context import DATA_DIR, EVAL_METRICS, HPARAMS_SET, MODEL, PROBLEM
from t2t_torch.workflows.run_kind import check_read, requested_kind

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.tune.search_target import SearchTarget


class SearchSettings(trust.CodeSettings, RunnerSettings):
    """Hyperparameter search: trains many trials, stops bad ones early, reports the best.

        t2t-tuner --problem=dates_to_iso --model=transformer --hparams_set=transformer_tiny \\
            --hparams_range=transformer_tiny_range --data_dir=data --output_dir=search \\
            --metric=loss --max_trials=16 --train_steps=400 --parallel=2
        t2t-tuner --trial=my_trial --config=experiment.yaml --output_dir=search

    Each trial is a run of t2t-trainer in trials/<number>; best/ is the directory of the best one.
    The results are printed at the end, and written to search.html and to files ready to use. Run it
    again with the same --output_dir to resume, also after kill -9.  Several tuners, also on other
    machines (--storage), share a search. SIGTERM or SIGINT lets the trainings save, and exits with
    128 + the signal's number.
    """

    problem: str | None = PROBLEM
    model: str | None = MODEL
    hparams_set: str | None = HPARAMS_SET
    hparams: str = hp("", 'Changes to the set, in all trials: "hidden_size=64".')
    data_dir: str | None = DATA_DIR
    output_dir: str | None = hp_path(
        "Directory of the search: trials, trial history, page and findings."
    )
    eval_metrics: tuple[str, ...] = EVAL_METRICS
    hparams_range: str | None = hp(None, "Named search space.  Names: --registry_help.")
    ranges: str | None = hp_path(
        "YAML file of the search space, instead of --hparams_range: {type: "
        "int|double|log|categorical, ...} per name."
    )
    trial: str | None = hp_path(
        "A PyTorchTrial in place of a problem: dir, file.py or module[:Class]"
    )
    config: str | None = hp_path("YAML file of the trial's experiment, with the search space.")
    searcher: str | None = hp(
        None,
        "Search method; adaptive_asha (default): stops trials that fall behind at rungs; "
        "random; grid; tpe: samples more where results were good; single.",
        choices=SEARCHERS,
    )
    metric: str | None = hp(None, "Metric that ranks trials, as named by evaluations.")
    metric_minimize: bool | None = hp(
        None, "Lower values are better; default: as declared by the metric or the experiment."
    )
    max_trials: int | None = hp(
        None, "Number of trials, including the unchanged set; default: 16.", low=1
    )
    train_steps: int | None = hp(None, "Optimizer steps of a complete training.", low=1)
    max_rungs: int | None = hp(None, "Maximum number of rungs of ASHA; default: 5.", low=1)
    seed: int | None = hp(
        None, "Random seed of the search and of its trainings; default: 1.", low=0
    )
    eval_steps: int | None = hp(
        None, "Number of batches per evaluation; 0, the default: the whole split.", low=0
    )
    local_eval_frequency: int | None = hp(
        None,
        "Steps between evaluations in addition to those at rungs; default: a tenth of "
        "--train_steps.",
        low=1,
    )
    max_restarts: int | None = hp(
        None,
        "Maximum number of restarts of a failed training from its checkpoint; default: 5.",
        low=0,
    )
    worker_gpu: int | None = hp(
        None, "1: a GPU for each training, if there are any; 0: the CPU.", low=0
    )
    parallel: int = hp(
        1,
        "Number of concurrent trainings; with --runner each is one of its tasks.",
        low=1,
        high=1024,
    )
    divisor: float | None = hp(
        None, "Reduction factor: one of this many trials continues at each rung; default: 4."
    )
    mode: str | None = hp(
        None,
        "Allocation of trials to rungs; aggressive: all start at the lowest rung; "
        "conservative: some start at each rung; standard: between them.",
        choices=MODES,
    )
    bracket_rungs: tuple[str, ...] = hp((), "Number of rungs of each bracket, instead of --mode.")
    default_first: bool = hp(
        True, "The first trial is the unchanged set, and is trained to the end for comparison."
    )
    storage: str | None = hp(
        None,
        "URL of a database through which machines share a search; default: a file in --output_dir.",
    )
    study_name: str | None = hp(
        None, "Of the search in the storage; by default the name of --output_dir."
    )
    report_only: bool = hp(False, "Writes the page and the findings without training.")


NAME = "tuner.json"
"""In the search's folder: the settings with which it was started."""


_STEPS_OF = "steps_of"
"""There, beside the settings: what loaders have said of a length."""

_PATHS = ("data_dir", "config", "ranges", "trial", "t2t_usr_dir")
_TOGETHER = (
    ("problem", "trial"),
    ("hparams_range", "ranges"),
    ("metric", "metric_minimize"),
    ("mode", "bracket_rungs"),
)
"""Settings of which none is remembered if one is given: what it says is all that is said."""
_OF_ONE_START = (
    *("output_dir", "parallel", "max_restarts", "report_only", "trust_code"),
    *RunnerSettings.declared(),
)
"""Settings that are not taken from the beginning of a search."""


def study_name(settings: SearchSettings, output_dir: Path) -> str:
    """Returns the name of the search in its storage."""
    return settings.study_name or output_dir.name


def recall(settings: SearchSettings, output_dir: Path) -> tuple[SearchSettings, dict[str, int]]:
    """Takes what is not given from the start of the search.

    Args:
      settings: the given settings.
      output_dir: directory of the search.

    Returns:
      The settings, and the optimizer steps by length, as given to `remember`.

    Raises:
      CheckpointError: the recorded settings cannot be read, or the search is stored elsewhere.
      UsageError: recorded code comes with the search, which is not trusted; see `trust`.
    """
    file = output_dir / NAME
    try:
        known = read_json(file)
    except FileNotFoundError:
        return settings, {}
    except ValueError as error:
        raise errors.CheckpointError(
            f"{file} is damaged: {error}. Remove it, and give the flags of the search again."
        ) from error
    steps_of: dict[str, int] = known.pop(_STEPS_OF, {})
    _check_place(settings, output_dir, known)
    for names in _TOGETHER:
        if settings.given.intersection(names):
            known = {name: value for name, value in known.items() if name not in names}
    remembered = settings.declared().keys() - _OF_ONE_START
    own = {name: value for name, value in known.items() if name in remembered}
    recalled = settings.with_defaults(**own)
    if "t2t_usr_dir" not in settings.given:
        for folder in recalled.t2t_usr_dir:
            trust.check_code(output_dir, folder)
    requested_kind(recalled).check_search(recalled, output_dir, known)
    return recalled, steps_of


def _check_place(settings: SearchSettings, output_dir: Path, known: Mapping[str, Any]) -> None:
    """Checks that settings name the search whose runs are in this folder, and its storage.

    Raises:
      CheckpointError: they name another one, or the URL of the storage needs a password.
    """
    storage = known.get("storage") or ""
    is_meant = "storage" in settings.given or "***" in storage
    if is_meant and without_password(settings.storage or "") != storage:
        where = f"at --storage={storage}" if storage else "in its own journal, without --storage"
        raise errors.CheckpointError(
            f"the search of {output_dir} is kept {where}. Say so, with the password if it has one; "
            "or begin one in another --output_dir."
        )
    name = known.get("study_name") or output_dir.name
    if "study_name" in settings.given and settings.study_name != name:
        raise errors.CheckpointError(
            f"the search of {output_dir} is --study_name={name}. Leave the flag out to resume "
            "it; or begin another one in another --output_dir."
        )


def remember(settings: SearchSettings, output_dir: Path, steps_of: Mapping[str, int]) -> None:
    """Records the settings for resuming the search, without passwords.

    Args:
      settings: the settings.
      output_dir: directory of the search.
      steps_of: optimizer steps of lengths that depend on data loaders, by length.
    """
    # The folder may be moved, and have another name then.
    known = {
        **_to_remember(settings),
        "study_name": study_name(settings, output_dir),
        _STEPS_OF: dict(steps_of),
    }
    known |= requested_kind(settings).recorded_of_search(settings)
    write_text(output_dir / NAME, json.dumps(known, indent=2) + "\n")


def command(settings: SearchSettings, output_dir: Path) -> str:
    """Returns the shell command that starts this search."""
    known = _to_remember(settings)
    if known.get("study_name") == output_dir.name:
        del known["study_name"]
    words = SearchSettings(**known).arguments()
    return shlex.join(["t2t-tuner", *words, f"--output_dir={output_dir}"])


def _to_remember(settings: SearchSettings) -> dict[str, Any]:
    """Returns the values other than defaults, with absolute paths and without passwords."""
    fields = settings.declared()
    values = {
        name: value
        for name, value in settings
        if name not in _OF_ONE_START and value != fields[name].default
    }
    if settings.storage:
        values["storage"] = without_password(settings.storage)
    for name in values.keys() & _PATHS:
        value = values[name]
        values[name] = absolute(value) if isinstance(value, str) else tuple(map(absolute, value))
    return values


def absolute(path: str) -> str:
    """Returns the absolute path of a path or `path:Class`; module names are unchanged."""
    head, colon, name = path.rpartition(":")
    if colon and not Path(path).exists() and Path(head).exists():
        return f"{os.path.abspath(head)}:{name}"  # noqa: PTH100 -- links stay what they are
    return os.path.abspath(path) if Path(path).exists() else path  # noqa: PTH100


_SAME = """
    problem model hparams_set hparams data_dir output_dir eval_metrics train_steps eval_steps
    local_eval_frequency worker_gpu hparams_range t2t_usr_dir trust_code
"""
_OF_TRAINER = {
    **{name: name for name in _SAME.split()},
    "random_seed": "seed",
    "autotune_objective": "metric",
    "autotune_max_trials": "max_trials",
    "autotune_parallel_trials": "parallel",
}
"""Names of settings by their names in those of training."""


def search_settings_of(settings: Settings) -> SearchSettings:
    """Returns the search that settings of training request.

    They are tensor2tensor's: `t2t-trainer --hparams_range=... --autotune_*`.

    Args:
      settings: settings of `t2t-trainer`, with `hparams_range`.

    Raises:
      UsageError: a setting is given that a search does not use.
      HParamsError: a value is out of bounds.
    """
    values, read = dict(settings), {*_OF_TRAINER, "autotune_maximize", "schedule"}
    strange = [
        name.rstrip("_") for name in values if settings.is_changed(name) and name not in read
    ]
    if strange:
        raise errors.UsageError(
            f"--{', --'.join(strange)}: nothing in a search (--hparams_range) reads it. Leave it "
            "out, or run t2t-tuner, which has more flags."
        )
    if settings.is_changed("schedule"):
        raise errors.UsageError(
            f"--schedule={values['schedule']}: a search trains and evaluates in turns."
        )
    own = {new: values[old] for old, new in _OF_TRAINER.items() if old in settings.given}
    own["max_trials"] = values["autotune_max_trials"]
    if "autotune_maximize" in settings.given:
        own["metric_minimize"] = not values["autotune_maximize"]
    return SearchSettings(**own)


DEFAULT_MAX_TRIALS = 16
DEFAULT_MAX_RESTARTS = 5
_DEFAULT_SEED = 1
_EVALUATIONS = 10  # of a whole training, besides those at the rungs
_OF_PLANS = ("searcher", "max_trials", "divisor", "max_rungs", "mode", "seed")


class RequestedSearch(NamedTuple):
    """The search that settings request.

    Attributes:
      plan: plan of the search.
      space: search space.
      subject: what a trial trains.
      max_restarts: maximum number of restarts of a failing training.
      steps_of: optimizer steps of lengths that depend on data loaders, by length.
    """

    plan: SearchPlan
    space: search_space.Space
    subject: SearchTarget
    max_restarts: int
    steps_of: Mapping[str, int]


def requested_search(settings: SearchSettings, known_steps: Mapping[str, int]) -> RequestedSearch:
    """Returns the search that settings request.

    Args:
      settings: the settings.
      known_steps: recorded `RequestedSearch.steps_of` of a resumed search.

    Raises:
      UsageError: settings are missing or contradict each other.
      HParamsError: the ranges are invalid.
    """
    kind = requested_kind(settings)
    check_read(kind, "search", settings)
    require(settings, *kind.needed_by_search)
    made = kind.requested_search(settings, known_steps)
    most = settings.max_restarts
    return made if most is None else made._replace(max_restarts=most)


def search_of_problem(settings: SearchSettings) -> RequestedSearch:
    """Returns the requested search over the hyperparameters of a problem's model."""
    from t2t_torch.tune.search_target import ProblemSearchTarget, check_read

    model, hparams_set = str(settings.model), str(settings.hparams_set)
    if bool(settings.hparams_range) == bool(settings.ranges):
        named = ", ".join(registry.list_names("ranged_hparams"))
        raise errors.UsageError(
            "give either --hparams_range, a named set of ranges, or --ranges, a YAML file of them. "
            f"Named are: {named}."
        )
    if model not in registry.list_names("model"):
        registry.model(model)  # says which there are, before torch is imported
    problem = registry.problem(str(settings.problem)).full_name
    hparams = registry.hparams(hparams_set, model).parse(settings.hparams)
    space, source = _problem_space(settings, hparams)
    check_read(hparams, space, source)
    metric, less = settings.metric or "loss", settings.metric_minimize
    if less is None:
        less = metric.rpartition("/")[2] == "loss"
        if not less:
            from t2t_torch.metrics.metric import lower_is_better  # imports torch

            less = lower_is_better(metric)
    length = settings.train_steps or 0
    more = [
        f"--eval_steps={settings.eval_steps or 0}",
        f"--local_eval_frequency={settings.local_eval_frequency or max(length // _EVALUATIONS, 1)}",
        f"--eval_early_stopping_metric={metric}",
        f"--eval_early_stopping_metric_minimize={str(less).lower()}",
    ]
    subject = ProblemSearchTarget(
        problem=problem,
        model=model,
        hparams_set=hparams_set,
        hparams=settings.hparams,
        data_dir=Path(str(settings.data_dir)).absolute(),
        usr_dirs=tuple(registry.usr_dirs()),
        more=(*more, *trainer_arguments(settings, "worker_gpu", "eval_metrics")),
    )
    default = {name: getattr(hparams, name) for name in space.kinds}
    known = {"metric": metric, "lower_is_better": less, "length": length}
    plan = plan_of(settings, space, known, default)
    return RequestedSearch(plan, space, subject, DEFAULT_MAX_RESTARTS, {})


def plan_of(
    settings: SearchSettings,
    space: search_space.Space,
    known: Mapping[str, Any],
    default: Mapping[str, Any] | None,
) -> SearchPlan:
    """Returns the plan of an experiment, or of defaults, with the settings, which win."""
    own = {name: getattr(settings, name) for name in _OF_PLANS}
    own["bracket_rungs"] = tuple(_whole("bracket_rungs", one) for one in settings.bracket_rungs)
    plan = {"searcher": "adaptive_asha", "seed": _DEFAULT_SEED, **known}
    plan |= {name: value for name, value in own.items() if value not in (None, ())}
    _check_read(settings, plan, has_default=default is not None)
    if plan["searcher"] == "single" or not settings.default_first:
        default = None
    if plan["searcher"] != "single" and not space.searched:
        raise errors.UsageError(
            f"there is nothing to search: {', '.join(space.kinds) or 'no hyperparameter'} is "
            "constant. Give a range, or train it: t2t-trainer."
        )
    plan["max_trials"] = _max_trials(plan, space, has_default=default is not None)
    return SearchPlan(**plan, default=default)


def _check_read(settings: SearchSettings, plan: Mapping[str, Any], *, has_default: bool) -> None:
    """Checks that a search uses all given settings.

    Raises:
      UsageError: some are not used; all are reported.
    """
    searcher, given, unread, why = plan["searcher"], settings.given, "", ""
    if searcher not in WITH_RUNGS:
        unread = "mode divisor max_rungs bracket_rungs"
        why = f"of rungs, and --searcher={searcher} has none"
    elif plan.get("bracket_rungs"):
        unread, why = "mode max_rungs", "bracket_rungs, which are given, say how many rungs"
    elif searcher == "asha":
        unread, why = "mode", "of several brackets, and --searcher=asha has one"
    faults = [f"--{name}: {why}." for name in unread.split() if name in given]
    if searcher == "single" and "max_trials" in given and settings.max_trials != 1:
        faults.append(f"--max_trials={settings.max_trials}: --searcher=single has one trial.")
    if "default_first" in given and (not has_default or searcher == "single"):
        what = "--searcher=single has one" if has_default else "a --trial has no unchanged set"
        faults.append(f"--default_first: the unchanged set comes before others; {what}.")
    if faults:
        raise errors.UsageError("\n".join([*faults, "Leave it out."]))


def _max_trials(plan: Mapping[str, Any], space: search_space.Space, *, has_default: bool) -> int:
    requested: int | None = plan.get("max_trials")
    if plan["searcher"] == "single":
        return 1
    if plan["searcher"] == "grid":
        size = space.grid_size() + int(has_default)
        return size if requested is None else min(requested, size)
    return DEFAULT_MAX_TRIALS if requested is None else requested


def _problem_space(settings: SearchSettings, hparams: HParams) -> tuple[search_space.Space, str]:
    """Returns the search space, and the setting that names it."""
    if settings.hparams_range:
        ranges = registry.ranged_hparams(settings.hparams_range)
        source = f"--hparams_range={settings.hparams_range}"
        ranges.check(hparams, source)
        return search_space.Space.of_ranges(ranges), source
    from t2t_torch.yaml_file import read_mapping

    path = Path(str(settings.ranges))
    space = search_space.Space.of_mapping(read_mapping(path), f"{path}: ")
    if faults := search_space.faults_of(space.kinds, hparams):
        raise errors.HParamsError("\n".join(f"{path}: {fault}" for fault in faults))
    return space, f"--ranges={settings.ranges}"


def trainer_arguments(settings: SearchSettings, *names: str) -> list[str]:
    """Returns the settings of these names that are given as flags of t2t-trainer."""
    fields = settings.declared()
    values = ((name, getattr(settings, name)) for name in names)
    return [word for n, value in values if value != () for word in fields[n].arguments(n, value)]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.UsageError(f"--{name}: {text!r} is no whole number.") from None
