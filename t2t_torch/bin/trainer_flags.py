"""Flags of `t2t-trainer`, checks of their combinations, and the resulting `RunConfig`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import flags

from t2t_torch.bin import config_file
from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.mode import Split
from t2t_torch.settings import Settings, hp
from t2t_torch.train.run_config import DECODING, IN_TURNS, SCHEDULES, TRAINING, RunConfig


class TrainerOptions(Settings):
    """Flags of `t2t-trainer` that are not fields of `RunConfig`."""

    schedule: str = hp(
        next(iter(SCHEDULES)),
        "\n".join(f"{name}: {one.meaning}" for name, one in SCHEDULES.items()),
        choices=tuple(SCHEDULES),
    )
    teacher: tuple[str, ...] = hp(
        (),
        "Teacher run whose probabilities are imitated, as --hp_distill_from; several, "
        "separated by commas, are averaged, or teach one problem each.",
    )
    eval_use_test_set: bool = hp(False, "Evaluates the test split instead of the dev split.")
    generate_data: bool = hp(False, "Runs t2t-datagen first if the data does not exist.")
    worker_gpu: int = hp(1, "Device: 1: a GPU per process if available; 0: the CPU.", low=0)
    loader_workers: int = hp(
        1,
        "Number of threads that prepare batches; 0: batches are prepared when needed.",
        low=0,
        high=256,
    )
    threads: str = hp(
        "auto",
        "Threads of a CPU; auto: those of OMP_NUM_THREADS, of the run's last start, or all.",
    )
    signal_exit_code: int = hp(
        0,
        "Exit code after a signal; 0: 128 + its number. With 75 some schedulers start the job"
        " again.",
        low=0,
        high=255,
    )
    hp_: tuple[str, ...] = hp(
        (), "One hyperparameter, name=value; may be repeated; also --hp_name=value.", repeated=True
    )
    config: str | None = hp(
        None,
        "JSON file of flags and hyperparameters; flags given here win.  With --trial: the YAML of"
        " the experiment.",
        path=True,
    )
    print_config: bool = hp(False, "Prints the JSON that reproduces this command and exits.")
    help_hparams: bool = hp(False, "Prints the hyperparameters with their sources and exits.")
    dry_run: bool = hp(
        False,
        "Prints examples, buckets, steps, parameters and memory and exits, without training "
        "or writing.",
    )
    trial: str | None = hp(
        None,
        "PyTorchTrial to train instead of a problem: its folder, file or module, with :Class "
        "if there are several.  See docs/how_to/trials.md.",
    )
    test_mode: bool = hp(
        False,
        "Smoke check of a trial: runs one batch through all methods and prints the shapes; "
        "keeps nothing.",
    )
    global_batch_size: int = hp(
        0,
        "Number of records per optimizer step of a trial, over all processes; 0: that of the "
        "configuration.",
        low=0,
    )
    max_restarts: int | None = hp(
        None,
        "Maximum number of restarts of a failed trial from its newest checkpoint; default: "
        "that of the configuration.",
        low=0,
    )
    download_timeout: float = hp(
        7200.0,
        "Seconds that the other processes of a machine wait for download_data of a trial.",
        low=0.0,
    )
    hparams_range: str | None = hp(
        None, "Named search space; starts a search as t2t-tuner does, instead of one training."
    )
    autotune_objective: str | None = hp(None, "Metric that ranks the runs of a search.")
    autotune_maximize: bool | None = hp(
        None,
        "Higher values of the metric of a search are better; default: as declared by the metric.",
    )
    autotune_max_trials: int = hp(10, "Number of runs of a search.", low=1, high=10000)
    autotune_parallel_trials: int = hp(
        1, "Number of concurrent runs of a search.", low=1, high=10000
    )
    decode_hparams: str = hp("", "Decoding settings of schedules that decode.")
    decode_from_file: str | None = hp(
        None, "File of inputs of schedules that decode; default: the dev split.", path=True
    )
    decode_to_file: str | None = hp(None, "File of outputs of schedules that decode.", path=True)
    decode_reference: str | None = hp(
        None, "File of reference outputs of schedules that decode.", path=True
    )
    decode_problem: str | None = hp(None, "Problem of a run of several problems that is decoded.")


FLAGS = shared.CommandFlags(
    "t2t-trainer",
    RunConfig,
    TrainerOptions,
    common=(
        *("problem", "model", "hparams_set", "hparams", "data_dir", "output_dir", "tmp_dir"),
        *("eval_metrics", "t2t_usr_dir", "trust_code", "random_seed", "registry_help"),
        "verify_data",
    ),
    without=("eval_split",),
)
_OF_ONE_START = (
    "train_steps pause_at_step random_seed eval_split resume_data warm_start_from "
    "warm_start_patterns profile"
)
REMEMBERED = (
    *(name for name in RunConfig.declared() if name not in _OF_ONE_START.split()),
    "loader_workers",
    "global_batch_size",
)
"""Flags that a resumed run takes from its start if the new command does not give them.
(`train_steps` is in task.json, the seed in the checkpoint.)"""
_HP = re.compile(r"--?hp_(\w+)(?:=(.*))?", re.DOTALL)

flag = FLAGS.value_of


def given(name: str) -> bool:
    """Returns True if a flag was given, on the command line or in `--config`."""
    return FLAGS[name].present > 0


def chosen(name: str) -> bool:
    """Returns True if a flag was given a value other than its default."""
    return given(name) and flag(name) != FLAGS[name].default


def trains() -> bool:
    """Returns True if the schedule trains."""
    return flag("schedule") in TRAINING


def eval_split() -> Split:
    """Returns the split that the schedule evaluates or decodes."""
    if flag("schedule").endswith("_on_train_data"):
        return Split.TRAIN
    return Split.TEST if flag("eval_use_test_set") else Split.EVAL


def run_config(train_steps: int) -> RunConfig:
    """Returns the settings of the run.

    Args:
      train_steps: steps at which the run ends, from the flag or the run; 0 if epochs decide.
    """
    values = {name: flag(name) for name in RunConfig.declared() if name in FLAGS}
    del values["train_steps"]
    if train_steps:
        values["train_steps"] = train_steps
    return RunConfig(eval_split=eval_split(), **values)


def expanded(values: flags.FlagValues, arguments: Sequence[str]) -> list[str]:
    """Returns arguments with `--config` and the short forms of hyperparameters expanded.

    `--hp_name=value` and `--hp_name value`, as in tensor2tensor, become `--hp=name=value`.

    Raises:
      UsageError: as `config_file.expanded`; or a short form has no value.
    """
    return config_file.expanded(values, _without_shorthands(arguments))


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
    """Checks the given flags against each other.

    Raises:
      UsageError: flags contradict each other, or one has no effect; all are reported.
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
    """Yields errors in the settings of early stopping and learning-rate plateaus."""
    stops = flag("eval_early_stopping_steps") > 0 or flag("eval_patience") > 0
    falls = flag("reduce_lr_on_plateau_factor") < 1
    if flag("reduce_lr_on_plateau_factor") == 0:
        yield "--reduce_lr_on_plateau_factor=0 would end all learning; give more, at most 1."
    for name, on in {
        "eval_early_stopping_steps": stops,
        "eval_patience": stops,
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
    # 0.1 was the default of earlier versions, whose runs record it.
    if flag("eval_early_stopping_metric_delta") not in (None, 0.1) and not stops:
        yield (
            "--eval_early_stopping_metric_delta is read with --eval_early_stopping_steps or "
            "--eval_patience alone."
        )
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
    given_names = [name for name in _OF_DECODING if chosen(name)]
    if schedule not in DECODING:
        for name in given_names:
            yield f"--{name} is for decoding, which --schedule={schedule} does not do."
        return
    if schedule.endswith("_from_file") and not flag("decode_from_file"):
        yield f"--schedule={schedule} needs --decode_from_file."
    if schedule.endswith("_data"):
        for name in ("decode_from_file", "decode_reference"):
            if name in given_names:
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
