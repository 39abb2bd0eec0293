"""Flags of `t2t-trainer` that do not go together, or that nothing would read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_torch.bin.trainer_flags import chosen, flag, given
from t2t_torch.errors import UsageError
from t2t_torch.train.run_config import DECODING, IN_TURNS, TRAINING

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
