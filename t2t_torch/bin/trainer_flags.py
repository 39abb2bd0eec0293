"""The flags of `t2t-trainer`, those that do not go together, and the `RunConfig` they make."""

from __future__ import annotations

import dataclasses
from typing import Any

from absl import flags

from t2t_torch.bin import flags as shared
from t2t_torch.mode import Split
from t2t_torch.train.run_config import (
    AT_LEAST_ONE,
    AT_MOST,
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
