"""The flags of `t2t-trainer`, those that do not go together, and the `RunConfig` they make."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

import t2t_torch
from t2t_torch.bin import flags as shared
from t2t_torch.errors import CheckpointError, HParamsError, UsageError
from t2t_torch.hparam import HParams
from t2t_torch.mode import Split
from t2t_torch.train import run_directory
from t2t_torch.train.run_config import (
    AT_LEAST_ONE,
    AT_MOST,
    DECODING,
    IN_TURNS,
    RESUME_DATA,
    SAVE_ERRORS,
    SCHEDULES,
    TRAINING,
    RunConfig,
)

FLAGS = flags.FlagValues()  # type: ignore[no-untyped-call]
shared.define(
    FLAGS,
    "problem",
    "model",
    "hparams_set",
    "hparams",
    "data_dir",
    "output_dir",
    "tmp_dir",
    "eval_metrics",
    "t2t_usr_dir",
    "trust_code",
    "random_seed",
    "registry_help",
    "verify_data",
)
_DEFAULTS = RunConfig()
_OF_ONE_START = (
    "train_steps pause_at_step random_seed eval_split resume_data warm_start_from "
    "warm_start_patterns profile"
)
REMEMBERED = (
    *(one.name for one in dataclasses.fields(RunConfig) if one.name not in _OF_ONE_START.split()),
    "loader_workers",
    "global_batch_size",
)
"""Flags that a run that goes on takes from its beginning, where the new command is silent.
(`train_steps` is in task.json, the seed in the checkpoint.)"""
_INTEGERS = {
    "train_steps": "Optimizer steps at which the run ends, from its beginning.",
    "train_epochs": (
        "Passes over the data after which it ends, in place of --train_steps; 0: by steps."
    ),
    "train_seconds": "Seconds of training after which it ends, resumes counted; 0: no limit.",
    "pause_at_step": (
        "Step at which this command saves, evaluates and ends; the run goes on from there when it "
        "is run again.  0: none."
    ),
    "eval_steps": "Batches of an evaluation; 0: the whole split.",
    "local_eval_frequency": "Steps between checkpoints and evaluations; 0: the end only.",
    "save_checkpoints_steps": "Steps between checkpoints, besides; 0: at evaluations alone.",
    "save_checkpoints_secs": "Seconds between checkpoints, besides; 0: by steps alone.",
    "keep_checkpoint_max": "Newest checkpoints to keep; 0: all.",
    "keep_checkpoint_best": "Checkpoints of the best evaluations to keep besides; 0: none.",
    "keep_checkpoint_every": "Checkpoints of multiples of so many steps are kept; 0: none.",
    "log_step_count_steps": "Steps between reports.",
    "eval_timeout_mins": "Minutes that the continuous_ schedules wait for a checkpoint.",
    "eval_early_stopping_steps": (
        "The run ends when so many steps did not improve the watched metric; 0: never."
    ),
    "reduce_lr_on_plateau_patience": (
        "Evaluations in a row without improvement after which the learning rate falls."
    ),
    "max_consecutive_nonfinite": (
        "Steps in a row whose loss or gradient is not finite that are left out before the run ends."
    ),
}
"""Flag -> meaning; the least values are those of `RunConfig`."""
_FLOATS = {
    "keep_checkpoint_every_n_hours": ("A checkpoint of every so many hours is kept; 0: none."),
    "eval_early_stopping_metric_delta": ("What the watched metric must improve by to count."),
    "reduce_lr_on_plateau_factor": (
        "What the learning rate is multiplied by at a plateau of the watched metric; 1: never."
    ),
    "reduce_lr_on_plateau_threshold": (
        "What the watched metric must improve by to count, for the learning rate."
    ),
}
_BOOLEANS = {
    "async_save": "A thread writes checkpoints while training goes on.",
    "eval_early_stopping_metric_minimize": (
        "Less of the watched metric is better; by default as the metric says itself."
    ),
    "profile": "Profiles steps of the run; see docs/watch_a_run.md.",
}


def _define_config() -> None:
    """Defines the flags that are fields of `RunConfig`, with its defaults."""
    for name, meaning in _INTEGERS.items():
        default, least = getattr(_DEFAULTS, name), int(name in AT_LEAST_ONE)
        flags.DEFINE_integer(name, default, meaning, lower_bound=least, flag_values=FLAGS)
    for name, meaning in _FLOATS.items():
        default, most = getattr(_DEFAULTS, name), AT_MOST.get(name)
        flags.DEFINE_float(
            name, default, meaning, lower_bound=0.0, upper_bound=most, flag_values=FLAGS
        )
    for name, meaning in _BOOLEANS.items():
        flags.DEFINE_boolean(name, getattr(_DEFAULTS, name), meaning, flag_values=FLAGS)
    flags.DEFINE_string(
        "eval_early_stopping_metric",
        _DEFAULTS.eval_early_stopping_metric,
        "The watched metric, as evaluations print it: it says which checkpoint is best, when to "
        "stop early and when to reduce the learning rate.",
        flag_values=FLAGS,
    )
    flags.DEFINE_enum(
        "on_save_error",
        _DEFAULTS.on_save_error,
        SAVE_ERRORS,
        "What to do when a checkpoint cannot be written: continue (and warn), or fail.",
        flag_values=FLAGS,
    )
    flags.DEFINE_enum(
        "resume_data",
        _DEFAULTS.resume_data,
        RESUME_DATA,
        "How to go on when the data changed: exact refuses, restart begins an epoch, approx goes "
        "on after as many batches.",
        flag_values=FLAGS,
    )
    shared.define_path(
        FLAGS,
        "warm_start_from",
        "",
        "A run, a checkpoint or a safetensors file whose weights a new run begins with.",
    )
    flags.DEFINE_list(
        "warm_start_patterns",
        [],
        "What to take from there: regular expressions of names; old->new renames, ! leaves out.",
        flag_values=FLAGS,
    )
    flags.DEFINE_list(
        "hooks", [], "Registered hooks that watch the run.  Names: --registry_help.", FLAGS
    )


def _define_others() -> None:
    """Defines what this command alone knows."""
    flags.DEFINE_enum("schedule", SCHEDULES[0], SCHEDULES, "What is done.", flag_values=FLAGS)
    flags.DEFINE_list(
        "teacher",
        [],
        "Run whose probabilities are imitated: the same as --hp_distill_from; several with commas "
        "are one teacher, their mean; of several problems each teaches its own.",
        flag_values=FLAGS,
    )
    flags.DEFINE_boolean(
        "eval_use_test_set", False, "Evaluates on the test split, not on dev.", flag_values=FLAGS
    )
    flags.DEFINE_boolean(
        "generate_data", False, "Runs t2t-datagen first; does nothing if done.", flag_values=FLAGS
    )
    flags.DEFINE_integer(
        "worker_gpu",
        1,
        "1: a GPU for each process, if there are any; 0: the CPU.",
        lower_bound=0,
        flag_values=FLAGS,
    )
    flags.DEFINE_integer(
        "loader_workers",
        1,
        "Threads that make batches; 0: each is made when it is needed.",
        lower_bound=0,
        upper_bound=256,
        flag_values=FLAGS,
    )
    flags.DEFINE_integer(
        "signal_exit_code",
        0,
        "Exit code after a signal; 0: 128 + its number; 75 tells some schedulers to start again.",
        lower_bound=0,
        upper_bound=255,
        flag_values=FLAGS,
    )
    flags.DEFINE_multi_string(
        "hp",
        [],
        "One hyperparameter, name=value; may be repeated.  --hp_name=value is the same.",
        flag_values=FLAGS,
    )
    FLAGS["hp"].help = "One hyperparameter, name=value; may be repeated; also --hp_name=value."
    shared.define_path(
        FLAGS,
        "config",
        None,
        "JSON file of flags and hyperparameters; flags given here win.  With --trial: the YAML of "
        "the experiment.",
    )
    for name, meaning in {
        "print_config": "Prints the JSON that reproduces this command, and exits.",
        "help_hparams": "Prints the hparams, who set each, and exits.",
        "dry_run": "Prints examples, buckets, steps, parameters and memory, and exits; trains and "
        "writes nothing.",
    }.items():
        flags.DEFINE_boolean(name, False, meaning, flag_values=FLAGS)


def _define_trial() -> None:
    """Defines what a trial has in place of a problem, a model and a set."""
    flags.DEFINE_string(
        "trial",
        None,
        "In place of a problem, a PyTorchTrial: its folder, file or module, and :Class where there "
        "are several.  See docs/trials.md.",
        flag_values=FLAGS,
    )
    flags.DEFINE_boolean(
        "test_mode",
        False,
        "Of a trial: one batch through everything, and its shapes; nothing is kept.",
        flag_values=FLAGS,
    )
    flags.DEFINE_integer(
        "global_batch_size",
        0,
        "Of a trial: records of an optimizer step, of all processes, made of as many of the "
        "loader's batches as it takes; 0: as the configuration says.",
        lower_bound=0,
        flag_values=FLAGS,
    )
    flags.DEFINE_integer(
        "max_restarts",
        None,
        "Of a trial: how often its failure begins again from the newest checkpoint; by default as "
        "the configuration says.",
        lower_bound=0,
        flag_values=FLAGS,
    )
    flags.DEFINE_float(
        "download_timeout",
        7200.0,
        "Of a trial: seconds that the other processes of a machine wait for its download_data.",
        lower_bound=0.0,
        flag_values=FLAGS,
    )


def _define_search() -> None:
    """Defines tensor2tensor's flags of a search, which `t2t-tuner` makes."""
    flags.DEFINE_string(
        "hparams_range",
        None,
        "Searches these named ranges, as t2t-tuner does, in place of one training.",
        flag_values=FLAGS,
    )
    flags.DEFINE_string(
        "autotune_objective", None, "Of a search: the metric that ranks runs.", flag_values=FLAGS
    )
    flags.DEFINE_boolean(
        "autotune_maximize",
        None,
        "Of a search: more of it is better; by default as the metric says itself.",
        flag_values=FLAGS,
    )
    for name, default, meaning in (
        ("autotune_max_trials", 10, "Of a search: runs in all."),
        ("autotune_parallel_trials", 1, "Of a search: runs at once."),
    ):
        flags.DEFINE_integer(name, default, meaning, 1, 10_000, flag_values=FLAGS)


def _define_decoding() -> None:
    """Defines what the schedules that decode read."""
    flags.DEFINE_string("decode_hparams", "", "How the schedules decode.", flag_values=FLAGS)
    shared.define_path(FLAGS, "decode_from_file", None, "What they decode; else the dev split.")
    shared.define_path(FLAGS, "decode_to_file", None, "Where they write to.")
    shared.define_path(FLAGS, "decode_reference", None, "What they compare with.")
    flags.DEFINE_string(
        "decode_problem", None, "Of several problems, the one that they decode.", flag_values=FLAGS
    )


_define_config()
_define_others()
_define_trial()
_define_search()
_define_decoding()


def flag(name: str) -> Any:
    """Returns a flag's value."""
    return FLAGS[name].value


def given(name: str) -> bool:
    """Whether a flag was given, on the command line or in `--config`."""
    return FLAGS[name].present > 0


def chosen(name: str) -> bool:
    """Whether a flag was given another value than it has by itself, as a whole file also does."""
    return given(name) and flag(name) != FLAGS[name].default


def trains() -> bool:
    """Whether the schedule trains."""
    return flag("schedule") in TRAINING


def eval_split() -> Split:
    """Returns what the schedule evaluates or decodes."""
    if flag("schedule").endswith("_on_train_data"):
        return Split.TRAIN
    return Split.TEST if flag("eval_use_test_set") else Split.EVAL


def run_config(train_steps: int) -> RunConfig:
    """Returns what the flags say.

    Args:
      train_steps: steps at which the run ends: the flag's or the run directory's.
    """
    values = {
        field.name: flag(field.name)
        for field in dataclasses.fields(RunConfig)
        if field.name not in ("train_steps", "eval_split")
    }
    for name in ("warm_start_patterns", "hooks"):
        values[name] = tuple(values[name])
    return RunConfig(train_steps=train_steps, eval_split=eval_split(), **values)


# Flags of `t2t-trainer` that do not go together, or that nothing would read.


_OF_DECODING = (
    *("decode_hparams", "decode_from_file", "decode_to_file", "decode_reference"),
    "decode_problem",
)
_OF_TRAINING = (
    *("profile", "pause_at_step", "warm_start_from", "train_epochs", "train_seconds"),
    "generate_data",
)


def check_flags() -> None:
    """Checks the flags that were given against each other.

    Raises:
      UsageError: some contradict each other, or one would be read by nothing; all are told.
    """
    faults = [*_of_length(), *_of_rules(), *_of_schedule(), *_of_decoding(), *_of_place()]
    if faults:
        raise UsageError("\n".join(faults))


def _of_length() -> Iterator[str]:
    if given("train_steps") and flag("train_epochs"):
        yield "--train_steps and --train_epochs both say where the run ends: give one of them."
    if flag("warm_start_patterns") and not flag("warm_start_from"):
        yield "--warm_start_patterns chooses among the parameters of --warm_start_from: give it."
    if flag("worker_gpu") > 1:
        yield (
            f"--worker_gpu={flag('worker_gpu')}: a process trains on one GPU. Start several: "
            f"torchrun --nproc-per-node={flag('worker_gpu')} -m t2t_torch.bin.trainer ..."
        )
    if flag("print_config") and flag("dry_run"):
        yield "--print_config and --dry_run both print and exit: give one of them."


def _of_rules() -> Iterator[str]:
    """Yields what is wrong with early stopping, and with the rate that falls at a plateau."""
    stops = flag("eval_early_stopping_steps") > 0
    falls = flag("reduce_lr_on_plateau_factor") < 1
    if flag("reduce_lr_on_plateau_factor") == 0:
        yield "--reduce_lr_on_plateau_factor=0 would end all learning; give more, at most 1."
    for name, on in {
        "eval_early_stopping_steps": stops,
        "reduce_lr_on_plateau_factor": falls,
    }.items():
        if not on or not chosen(name):
            continue
        if flag("schedule") not in IN_TURNS:
            yield (
                f"--{name} needs evaluations while training, which --schedule={flag('schedule')} "
                f"does not make. Give --schedule={' or '.join(sorted(IN_TURNS))}."
            )
        elif not flag("local_eval_frequency"):
            yield f"--{name} needs evaluations on the way: --local_eval_frequency=0 makes none."
    if chosen("eval_early_stopping_metric_delta") and not stops:
        yield "--eval_early_stopping_metric_delta is read with --eval_early_stopping_steps alone."
    for name in ("reduce_lr_on_plateau_patience", "reduce_lr_on_plateau_threshold"):
        if chosen(name) and not falls:
            yield f"--{name} is read with --reduce_lr_on_plateau_factor below 1 alone."


def _of_schedule() -> Iterator[str]:
    schedule = flag("schedule")
    for name in _OF_TRAINING:
        if schedule not in TRAINING and chosen(name):
            yield f"--{name} is for training, which --schedule={schedule} does not do."
    if schedule == "test" and flag("pause_at_step"):
        yield "--pause_at_step: --schedule=test trains one step."
    if schedule.endswith("_on_train_data") and flag("eval_use_test_set"):
        yield f"--eval_use_test_set: --schedule={schedule} looks at the training split."


def _of_decoding() -> Iterator[str]:
    schedule = flag("schedule")
    asked = [name for name in _OF_DECODING if chosen(name)]
    if schedule not in DECODING:
        for name in asked:
            yield f"--{name} is for decoding, which --schedule={schedule} does not do."
        return
    if schedule.endswith("_from_file") and not flag("decode_from_file"):
        yield f"--schedule={schedule} needs --decode_from_file."
    if schedule.endswith("_data"):
        for name in ("decode_from_file", "decode_reference"):
            if name in asked:
                yield f"--{name}: --schedule={schedule} decodes the generated data."
    elif flag("decode_reference") and not flag("decode_from_file"):
        yield "--decode_reference belongs to --decode_from_file; data has its own targets."
    for name in ("decode_from_file", "decode_reference"):
        if flag(name) and not Path(flag(name)).is_file():
            yield f"--{name}={flag(name)}: there is no such file."


def _of_place() -> Iterator[str]:
    out, data = flag("output_dir"), flag("data_dir")
    if out and data and Path(out).resolve() == Path(data).resolve():
        yield "--output_dir and --data_dir are the same folder; give a run its own."


# A run as one JSON file: any flag, and the hyperparameters as an object.
#
#     {"problem": "translate_multi30k_ende", "model": "transformer", "train_steps": 10000,
#      "hparams_set": "transformer_small", "hparams": {"hidden_size": 512}}
#
# `--config=run.json` reads it; flags of the command line win.  Every run writes the file that
# reproduces it, `config.json`, which also says what wrote it: `version` and `processes`.


NAME = "config.json"
"""What a run calls its own."""

_ABOUT = ("version", "processes")
_NOT_KEPT = frozenset(
    """
    autotune_max_trials autotune_maximize autotune_objective autotune_parallel_trials config dry_run
    generate_data help_hparams hp hparams hparams_range output_dir pause_at_step print_config
    registry_help resume_data test_mode teacher tmp_dir trust_code verbosity verify_data
    """.split()
)
_ENDS = ("train_steps", "train_epochs")
_HP = re.compile(r"--?hp_(\w+)(?:=(.*))?", re.DOTALL)


def expanded(values: flags.FlagValues, arguments: Sequence[str]) -> list[str]:
    """Returns arguments without files: those of `--config` first, so that given ones win.

    `--hp_name=value` and `--hp_name value`, tensor2tensor's, become `--hp=name=value`.

    Raises:
      UsageError: the file cannot be read, or something in it is no flag or of a wrong type.
    """
    known = _without_shorthands(arguments)
    file = _value_of("config", known)
    if not file or _value_of("trial", known) or file.endswith((".yaml", ".yml")):
        return known  # of a trial it is the experiment's
    read = RunJson.read(Path(file).expanduser(), values)
    # A list is added to, not replaced, by absl: what is given replaces it as other flags do.
    given = {word.lstrip("-").partition("=")[0] for word in known if word.startswith("-")}
    for one, other in (_ENDS, _ENDS[::-1]):
        if _value_of(one, known) not in ("", "0"):
            given.add(other)  # where the run ends is said in one way or the other
    return [
        *(word for name, words in read.words.items() if name not in given for word in words),
        *known,
    ]


def _without_shorthands(arguments: Sequence[str]) -> list[str]:
    words, pending = [], list(arguments)
    while pending:
        word = pending.pop(0)
        match = _HP.fullmatch(word)
        if match is None:
            words.append(word)
            continue
        value = match[2]
        if value is None:
            if not pending:
                raise UsageError(f"{word} needs a value: {word}=...")
            value = pending.pop(0)
        words.append(f"--hp={match[1]}={value}")
    return words


def _value_of(name: str, arguments: Sequence[str]) -> str:
    """Returns what the last `--name=value` or `--name value` says; "" if there is none."""
    value = ""
    for index, word in enumerate(arguments):
        bare = word.lstrip("-") if word.startswith("-") else ""
        if bare.startswith(f"{name}="):
            value = bare.partition("=")[2]
        elif bare == name and index + 1 < len(arguments):
            value = arguments[index + 1]
    return value


class RunJson:
    """A file of flags and hyperparameters, checked.

    Attributes:
      words: flag -> the arguments that it stands for.
      hparams: what its object says.

    Args:
      path: the file, for messages.
      content: what stands in it.
      values: the flags that there are.

    Raises:
      UsageError: something is no flag, or of a wrong type; all are named.
    """

    def __init__(self, path: Path, content: Mapping[str, Any], values: flags.FlagValues) -> None:
        self.path = path
        self.words: dict[str, list[str]] = {}
        self.hparams: dict[str, Any] = {}
        faults = []
        for name, value in content.items():
            if name == "hparams" and isinstance(value, dict):
                self.hparams = value
            elif name in _ABOUT:
                continue
            elif name not in values or name in ("config", "flagfile"):
                faults.append(_unknown(name, values))
            else:
                words = _words(values[name], name, value)
                if words is None:
                    faults.append(f"{name}: {json.dumps(value)} should be {_kind(values[name])}.")
                else:
                    self.words[name] = words
        if faults:
            raise UsageError("\n".join(f"{path}: {fault}" for fault in faults))
        self._about = {name: content[name] for name in _ABOUT if name in content}

    @classmethod
    def read(cls, path: Path, values: flags.FlagValues) -> RunJson:
        """Reads a file.

        Raises:
          UsageError: as the class; or it is not there, or is no JSON object.
        """
        return cls(path, _content(path), values)

    def applied(self, hparams: HParams) -> HParams:
        """Returns a set changed by the file's object, which signs only what it changes.

        Raises:
          UsageError: a name is unknown, or a value not of its type.
        """
        changes = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.hparams.items()
            if name != "provenance"
        }
        fields = type(hparams).model_fields
        changes = {
            name: value
            for name, value in changes.items()
            if name not in fields or not _same(getattr(hparams, name), value)
        }
        try:
            return hparams.replace(**changes).signed(self.path.name) if changes else hparams
        except HParamsError as error:
            raise UsageError(f"{self.path}: hparams: {error}") from None

    def warn(self, processes: int) -> None:
        """Says on stderr if another version wrote the file, or a run of more or fewer processes."""
        here = {"version": t2t_torch.__version__, "processes": processes}
        for name, value in self._about.items():
            if value != here[name]:
                print(
                    f"WARNING: {self.path} is of {name} {value}, here it is {here[name]}: the "
                    "result may be another one",
                    file=sys.stderr,
                )


def content_of(
    values: flags.FlagValues, hparams: HParams, known: Mapping[str, Any], *, processes: int
) -> dict[str, Any]:
    """Returns the JSON that reproduces a run.

    `--output_dir` is not in it: it is for the next run to say.

    Args:
      values: the flags.
      hparams: as they were resolved.
      known: what is known better than the flags say it: None leaves one out.
      processes: that train together.
    """
    content: dict[str, Any] = {"version": t2t_torch.__version__, "processes": processes}
    for name in values:
        value = known.get(name, values[name].value)
        if name in _NOT_KEPT or value in (None, "", []):
            continue
        is_path = values[name].parser.flag_type() == "path"
        content[name] = str(Path(value).absolute()) if is_path else value
    content["hparams"] = hparams.model_dump(mode="json")
    return content


def written(content: Mapping[str, Any]) -> str:
    """Returns the file's text."""
    return json.dumps(content, indent=2) + "\n"


def remembered(directory: Path, names: Iterable[str], values: flags.FlagValues) -> dict[str, Any]:
    """Returns what a run's own file says of some flags; of another version it may know fewer.

    Raises:
      CheckpointError: it is no JSON object, or a value is of a wrong type.
    """
    path = directory / NAME
    if not path.exists():
        return {}
    try:
        with contextlib.suppress(OSError):  # `_content` says what is wrong
            run_directory.read_checked(directory, NAME)
        content = _content(path)
        found = {name: content[name] for name in names if name in content}
        RunJson(path, found, values)  # checks them
    except UsageError as error:
        raise CheckpointError(
            f"{error}\n{run_directory.how_to_restore(directory, NAME)}\nOr delete it and give the "
            "flags again that are not the defaults: it remembers how the run is evaluated and "
            "saved."
        ) from error
    return found


def argument(values: flags.FlagValues, name: str, value: Any) -> str:
    """Returns what says a flag's JSON value on the command line."""
    return " ".join(_words(values[name], name, value) or ())


def _content(path: Path) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"{path} says {', '.join(twice)} twice.")
        return dict(items)

    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=pairs)
    except FileNotFoundError:
        raise UsageError(f"--config={path}: there is no such file.") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}. A JSON file was expected, such as the "
            f"{NAME} of a run."
        ) from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(
            f'{path} should be a JSON object of flags, like {{"problem": "...", "hparams": '
            f'{{"batch_size": 1024}}}}, not {type(content).__name__}.'
        )
    return content


def _unknown(name: str, values: flags.FlagValues) -> str:
    if name in HParams.model_fields:
        return f'{name!r} is a hyperparameter: write it as "hparams": {{"{name}": ...}}.'
    near = difflib.get_close_matches(name, list(values), n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"unknown flag {name!r}.{hint} All flags: --help"


def _kind(flag: flags.Flag[Any]) -> str:
    """Says which JSON a flag takes."""
    if flag.name == "hparams":
        return 'an object, {"name": value}, or a string, "name=value,..."'
    if _is_repeated(flag) or isinstance(flag.parser, flags.ListParser):
        return "a list of strings"
    if flag.boolean:
        return "true or false"
    kinds = {"int": "an integer", "float": "a number"}
    return kinds.get(flag.parser.flag_type(), "a string")


def _is_repeated(flag: flags.Flag[Any]) -> bool:
    return isinstance(flag, flags.MultiFlag)


def _words(flag: flags.Flag[Any], name: str, value: Any) -> list[str] | None:
    """Returns the arguments that say a JSON value; None if it is not of the flag's type."""
    if value is None:
        return [] if flag.default is None else None
    kind = _kind(flag)
    if kind == "a list of strings":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return None
        items = value if _is_repeated(flag) else [",".join(value)]
        return [f"--{name}={item}" for item in items]
    if isinstance(value, bool):
        return [f"--{name}={str(value).lower()}"] if flag.boolean else None
    kinds: dict[str, Any] = {"an integer": int, "a number": (int, float), "true or false": bool}
    return [f"--{name}={value}"] if isinstance(value, kinds.get(kind, str)) else None


def _same(ours: Any, value: Any) -> bool:
    """Whether a value is a field's; true is not 1."""
    return bool(ours == value) and isinstance(ours, bool) == isinstance(value, bool)
