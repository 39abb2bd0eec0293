"""The search set by the flags of `t2t-tuner`: target, search space and plan."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.errors import CheckpointError, HParamsError, UsageError
from t2t_torch.files import read_json, write_text
from t2t_torch.search_space import Space
from t2t_torch.settings import Settings, hp
from t2t_torch.trust import check_code
from t2t_torch.tune.search_plan import MODES, SEARCHERS, WITH_RUNGS, SearchPlan
from t2t_torch.tune.study import without_password

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.trial.config import ExperimentConfig
    from t2t_torch.tune.search_target import SearchTarget


# The flags of `t2t-tuner`, and how a resumed search takes them from its start.


NAME = "tuner.json"
"""In the search's folder: the flags that it was started with."""

_MODULE_FILE = "module_file"
"""There: the file of a trial that is a module; see `RunRecord`."""

_STEPS_OF = "steps_of"
"""There, beside the flags: what loaders have said of a length."""


class SearchOptions(Settings):
    """Flags of `t2t-tuner`."""

    hparams: str = hp("", 'Changes to the set, in all trials: "hidden_size=64".')
    output_dir: str | None = hp(
        None, "Directory of the search: trials, trial history, page and findings.", path=True
    )
    hparams_range: str | None = hp(None, "Named search space.  Names: --registry_help.")
    ranges: str | None = hp(
        None,
        "YAML file of the search space, instead of --hparams_range: {type: "
        "int|double|log|categorical, ...} per name.",
        path=True,
    )
    trial: str | None = hp(
        None, "A PyTorchTrial in place of a problem: dir, file.py or module[:Class]", path=True
    )
    config: str | None = hp(
        None, "YAML file of the trial's experiment, with the search space.", path=True
    )
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
    parallel: int = hp(1, "Number of concurrent trainings.", low=1, high=1024)
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


FLAGS = shared.CommandFlags(
    "t2t-tuner",
    SearchOptions,
    common=(
        *shared.RUN_FLAGS,
        "hparams",
        "data_dir",
        "output_dir",
        "eval_metrics",
        *shared.CODE_FLAGS,
    ),
)
flag = FLAGS.value_of

_PATHS = ("data_dir", "config", "ranges", "trial", "t2t_usr_dir")
_TOGETHER = (
    ("problem", "trial"),
    ("hparams_range", "ranges"),
    ("metric", "metric_minimize"),
    ("mode", "bracket_rungs"),
)
"""Flags of which none is remembered if one is given: what it says is all that is said."""
_OF_ONE_START = (
    "output_dir parallel max_restarts report_only registry_help trust_code verbosity".split()
)
"""Flags that are not taken from the beginning of a search."""


def given(name: str) -> bool:
    """Returns True if a flag was given, now or when the search started."""
    return bool(FLAGS[name].present) or FLAGS[name].value != FLAGS[name].default


def study_name(output_dir: Path) -> str:
    """Returns the name of the search in its storage."""
    return flag("study_name") or output_dir.name


def recall(output_dir: Path) -> dict[str, int]:
    """Sets flags that were not given to the values with which the search started.

    Returns:
      Optimizer steps by length, as given to `remember`.

    Raises:
      CheckpointError: the recorded flags cannot be read, or the search is stored elsewhere.
    """
    file = output_dir / NAME
    try:
        known = read_json(file)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CheckpointError(
            f"{file} is damaged: {error}. Remove it, and give the flags of the search again."
        ) from error
    steps_of: dict[str, int] = known.pop(_STEPS_OF, {})
    _check_storage(output_dir, known.get("storage") or "")
    _check_study_name(output_dir, known.get("study_name") or output_dir.name)
    for names in _TOGETHER:
        if any(FLAGS[name].present for name in names):
            known = {name: value for name, value in known.items() if name not in names}
    for name, value in known.items():
        if name in FLAGS and not FLAGS[name].present:
            FLAGS[name].value = value
            for folder in value if name == "t2t_usr_dir" else ():
                check_code(output_dir, folder)
    if flag("trial"):
        _check_trial(output_dir, known.get(_MODULE_FILE, ""))
    return steps_of


def _check_trial(output_dir: Path, module_file: str) -> None:
    """Checks that the code that the search recalls may be executed; see `trust`."""
    # Imported here to keep --help fast.
    from t2t_torch.trial.config import ExperimentConfig
    from t2t_torch.trial.run_record import check_functions, check_trial

    if not FLAGS["trial"].present:
        check_trial(flag("trial"), output_dir, module_file)
    if flag("config") and not (FLAGS["trial"].present and FLAGS["config"].present):
        functions = ExperimentConfig.read(Path(flag("config"))).functions
        check_functions(flag("trial"), output_dir, functions)


def _check_study_name(output_dir: Path, known: str) -> None:
    """Checks that the flags name the search whose runs are in this folder.

    Raises:
      CheckpointError: they name another one.
    """
    if FLAGS["study_name"].present and flag("study_name") != known:
        raise CheckpointError(
            f"the search of {output_dir} is --study_name={known}. Leave the flag out to resume "
            "it; or begin another one in another --output_dir."
        )


def _check_storage(output_dir: Path, known: str) -> None:
    """Checks that the storage is that of the search, which would start again in another one.

    Raises:
      CheckpointError: it is another one, or its URL needs a password.
    """
    requested = without_password(flag("storage") or "")
    if not FLAGS["storage"].present and "***" not in known:
        return
    if requested != known:
        where = f"at --storage={known}" if known else "in its own journal, without --storage"
        raise CheckpointError(
            f"the search of {output_dir} is kept {where}. Say so, with the password if it has one; "
            "or begin one in another --output_dir."
        )


def remember(output_dir: Path, steps_of: Mapping[str, int]) -> None:
    """Records the flags for resuming the search, without passwords.

    Args:
      output_dir: directory of the search.
      steps_of: optimizer steps of lengths that depend on data loaders, by length.
    """
    # The folder may be moved, and have another name then.
    known = {**_to_remember(), "study_name": study_name(output_dir), _STEPS_OF: dict(steps_of)}
    if flag("trial"):
        from t2t_torch.trial.run_record import module_file_of  # keeps --help fast

        known[_MODULE_FILE] = module_file_of(flag("trial"))
    file = output_dir / NAME
    write_text(file, json.dumps(known, indent=2) + "\n")


def command(output_dir: Path) -> str:
    """Returns the shell command that starts this search."""
    known = _to_remember()
    if known.get("study_name") == output_dir.name:
        del known["study_name"]
    parts = [f"--{name}={_shown(value)}" for name, value in known.items()]
    return shlex.join(["t2t-tuner", *parts, f"--output_dir={output_dir}"])


def _to_remember() -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in FLAGS:
        if name in _OF_ONE_START or not given(name):
            continue
        value = flag(name)
        if name == "storage":
            value = without_password(value)
        if name in _PATHS:
            value = list(map(absolute, value)) if isinstance(value, list) else absolute(value)
        values[name] = value
    return values


def absolute(path: str) -> str:
    """Returns the absolute path of a path or `path:Class`; module names are unchanged."""
    head, colon, name = path.rpartition(":")
    if colon and not Path(path).exists() and Path(head).exists():
        return f"{os.path.abspath(head)}:{name}"  # noqa: PTH100 -- links stay what they are
    return os.path.abspath(path) if Path(path).exists() else path  # noqa: PTH100


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


DEFAULT_MAX_TRIALS = 16
DEFAULT_MAX_RESTARTS = 5
_DEFAULT_SEED = 1
_EVALUATIONS = 10  # of a whole training, besides those at the rungs


class RequestedSearch(NamedTuple):
    """The search set by the flags.

    Attributes:
      plan: plan of the search.
      space: search space.
      subject: what a trial trains.
      max_restarts: maximum number of restarts of a failing training.
      steps_of: optimizer steps of lengths that depend on data loaders, by length.
    """

    plan: SearchPlan
    space: Space
    subject: SearchTarget
    max_restarts: int
    steps_of: Mapping[str, int]


def requested_search(known_steps: Mapping[str, int]) -> RequestedSearch:
    """Returns the search set by the flags.

    Args:
      known_steps: recorded `RequestedSearch.steps_of` of a resumed search.

    Raises:
      UsageError: flags are missing or contradict each other.
      HParamsError: the ranges are invalid.
    """
    if flag("trial"):
        return _of_trial(known_steps)
    if flag("config"):
        raise UsageError("--config is the experiment of a --trial. Give --trial, or leave it out.")
    return _of_problem()


NEEDED = ("problem", "model", "hparams_set", "data_dir", "train_steps")
"""Flags that a new search over a problem's hyperparameters must have."""


def _of_problem() -> RequestedSearch:
    from t2t_torch.tune.search_target import ProblemSearchTarget, check_read

    shared.require(FLAGS, *NEEDED)
    if bool(flag("hparams_range")) == bool(flag("ranges")):
        known = ", ".join(registry.list_names("ranged_hparams"))
        raise UsageError(
            "give either --hparams_range, a named set of ranges, or --ranges, a YAML file of them. "
            f"Named are: {known}."
        )
    if flag("model") not in registry.list_names("model"):
        registry.model(flag("model"))  # says which there are, before torch is imported
    problem = registry.problem(flag("problem")).full_name
    hparams = registry.hparams(flag("hparams_set"), flag("model")).parse(flag("hparams"))
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
    subject = ProblemSearchTarget(
        problem=problem,
        model=flag("model"),
        hparams_set=flag("hparams_set"),
        hparams=flag("hparams"),
        data_dir=Path(flag("data_dir")).absolute(),
        usr_dirs=tuple(registry.usr_dirs()),
        more=(*more, *_passed_on()),
    )
    return _search_of(
        space, subject, {"metric": metric, "lower_is_better": less, "length": length}, default
    )


def _of_trial(known_steps: Mapping[str, int]) -> RequestedSearch:
    shared.require(FLAGS, "config")
    not_of_trials = "problem model hparams_set hparams hparams_range ranges data_dir".split()
    if wrong := [name for name in not_of_trials if flag(name)]:
        raise UsageError(
            f"--{' --'.join(wrong)}: not with --trial, whose experiment (--config) says what is "
            "trained and searched."
        )
    from t2t_torch.trial.config import ExperimentConfig
    from t2t_torch.tune.search_target import TrialSearchTarget

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
    settings = {
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
    subject = TrialSearchTarget(
        trial=absolute(flag("trial")),
        config=path,
        name=_trial_name(flag("trial")),
        usr_dirs=tuple(registry.usr_dirs()),
        more=(*more, *_passed_on()),
    )
    requested = _search_of(space, subject, settings, None)
    restarts = flag("max_restarts")
    most = config.max_restarts if restarts is None else restarts
    return requested._replace(max_restarts=most, steps_of=steps_of)


def _search_of(
    space: Space, subject: SearchTarget, settings: dict[str, Any], default: Mapping[str, Any] | None
) -> RequestedSearch:
    """Combines the settings of an experiment with those of flags, which win."""
    for name in ("searcher", "max_trials", "divisor", "max_rungs", "mode", "seed"):
        if flag(name) is not None:
            settings[name] = flag(name)
    if flag("bracket_rungs"):
        settings["bracket_rungs"] = tuple(
            _whole("bracket_rungs", one) for one in flag("bracket_rungs")
        )
    settings = {"searcher": "adaptive_asha", "seed": _DEFAULT_SEED, **settings}
    _check_read(settings)
    if settings["searcher"] == "single" or not flag("default_first"):
        default = None
    if settings["searcher"] != "single" and not space.searched:
        raise UsageError(
            f"there is nothing to search: {', '.join(space.kinds) or 'no hyperparameter'} is "
            "constant. Give a range, or train it: t2t-trainer."
        )
    settings["max_trials"] = _max_trials(settings, space, has_default=default is not None)
    restarts = flag("max_restarts")
    return RequestedSearch(
        SearchPlan(**settings, default=default),
        space,
        subject,
        DEFAULT_MAX_RESTARTS if restarts is None else restarts,
        {},
    )


def _check_read(settings: Mapping[str, Any]) -> None:
    """Checks that this search uses all given flags.

    Raises:
      UsageError: some are not used; all are reported.
    """
    searcher = settings["searcher"]
    faults = []
    if searcher not in WITH_RUNGS:
        for name in ("mode", "divisor", "max_rungs", "bracket_rungs"):
            if FLAGS[name].present:
                faults.append(f"--{name}: of rungs, and --searcher={searcher} has none.")
    elif settings.get("bracket_rungs"):
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


def _max_trials(settings: Mapping[str, Any], space: Space, *, has_default: bool) -> int:
    requested: int | None = settings.get("max_trials")
    if settings["searcher"] == "single":
        return 1
    if settings["searcher"] == "grid":
        size = space.grid_size() + int(has_default)
        return size if requested is None else min(requested, size)
    return DEFAULT_MAX_TRIALS if requested is None else requested


def _problem_space(hparams: HParams) -> Space:
    if flag("hparams_range"):
        ranges = registry.ranged_hparams(flag("hparams_range"))
        ranges.check(hparams, f"--hparams_range={flag('hparams_range')}")
        return Space.of_ranges(ranges)
    from t2t_torch.trial.config import read_mapping

    path = Path(flag("ranges"))
    space = Space.of_mapping(read_mapping(path), f"{path}: ")
    faults: dict[str, None] = {}
    for name, kind in space.kinds.items():
        for value in kind.ends:
            try:
                hparams.replace(**{name: value})
            except HParamsError as error:
                faults[f"{path}: {error}"] = None
    if faults:
        raise HParamsError("\n".join(faults))
    return space


def _length(
    config: ExperimentConfig, path: Path, space: Space, known_steps: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """Returns the optimizer steps of a whole training, from the trial's data loaders if needed.

    Args:
      config: the experiment.
      path: file of the experiment.
      space: search space.
      known_steps: optimizer steps of known lengths.

    Returns:
      The steps, and those by length if data loaders were used, else none.

    Raises:
      UsageError: the experiment has no length, or it depends on the search space.
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
        from t2t_torch.trial.config import whole_length

        print(f"computing the number of steps in {written} from the loaders", file=sys.stderr)
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
