"""Settings of a run: everything about training except problem, model and hparams."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal, NamedTuple

from t2t_torch import reporter
from t2t_torch.errors import CheckpointError, HParamsError, UsageError
from t2t_torch.mode import Split
from t2t_torch.settings import Settings, hp

if TYPE_CHECKING:
    from pathlib import Path

    from t2t_torch.checkpoint.checkpoint import Checkpoint, TrainerState
    from t2t_torch.distributed.process_group import World
    from t2t_torch.hparam import HParams
    from t2t_torch.train.task import Task, TrainSource


DEFAULT_SEED = 1


class RunSchedule(NamedTuple):
    """Actions of a `--schedule` value; executed by `Experiment`.

    Attributes:
      meaning: description for `--help`.
      trains: True if it trains; other schedules read the results of a training process.
      evaluates: True if it evaluates.
      decodes: True if it decodes.
      repeats: True if it repeats these actions, alternating with training or at each new
        checkpoint.
      data: the split to evaluate or decode, "train" or "eval"; empty: `--eval_split`, or for
        decoding the command's data.
    """

    meaning: str
    trains: bool = False
    evaluates: bool = False
    decodes: bool = False
    repeats: bool = False
    data: str = ""


_IN_TURNS = RunSchedule(
    "Train; evaluate every local_eval_frequency steps, and at the end.",
    trains=True,
    evaluates=True,
    repeats=True,
)
SCHEDULES: dict[str, RunSchedule] = {
    "continuous_train_and_eval": _IN_TURNS,
    "train_and_evaluate": _IN_TURNS._replace(meaning="The same, by another name."),
    "train": RunSchedule("Train, and evaluate nothing.", trains=True),
    "evaluate": RunSchedule("Evaluate the newest checkpoint once.", evaluates=True),
    "evaluate_on_train_data": RunSchedule(
        "Evaluate the newest checkpoint once, on the training split.", evaluates=True, data="train"
    ),
    "train_eval_and_decode": RunSchedule(
        "Train; evaluate and decode every local_eval_frequency steps, and at the end.",
        trains=True,
        evaluates=True,
        decodes=True,
        repeats=True,
    ),
    "continuous_eval": RunSchedule(
        "Evaluate each new checkpoint, up to the run's last.", evaluates=True, repeats=True
    ),
    "continuous_eval_on_train_data": RunSchedule(
        "Evaluate each new checkpoint on the training split, up to the run's last.",
        evaluates=True,
        repeats=True,
        data="train",
    ),
    "decode": RunSchedule("Decode with the newest checkpoint once.", decodes=True),
    "continuous_decode": RunSchedule(
        "Decode with each new checkpoint, up to the run's last.", decodes=True, repeats=True
    ),
    "continuous_decode_on_train_data": RunSchedule(
        "Decode the training split with each new checkpoint.",
        decodes=True,
        repeats=True,
        data="train",
    ),
    "continuous_decode_on_eval_data": RunSchedule(
        "Decode the evaluated split with each new checkpoint.",
        decodes=True,
        repeats=True,
        data="eval",
    ),
    "continuous_decode_from_file": RunSchedule(
        "Decode a file with each new checkpoint.", decodes=True, repeats=True
    ),
    "test": RunSchedule(
        "Train one step, if the run is not done, and evaluate.", trains=True, evaluates=True
    ),
}
"""The values of `--schedule`."""

TRAINING = frozenset(name for name, one in SCHEDULES.items() if one.trains)
"""The schedules that train."""

IN_TURNS = frozenset(name for name in TRAINING if SCHEDULES[name].repeats)
"""The schedules that alternate training and evaluation; only they can stop early."""

DECODING = frozenset(name for name, one in SCHEDULES.items() if one.decodes)
"""The schedules that decode."""


def check_patience(patience: int, schedule: str, local_eval_frequency: int) -> None:
    """Checks that weight averaging does not wait for evaluations that never happen.

    Args:
      patience: the hparam `swa_patience`.
      schedule: name in `SCHEDULES`; `test` trains one step and is not checked.
      local_eval_frequency: steps between evaluations.

    Raises:
      HParamsError: averaging would never start.
    """
    if not patience or schedule not in {"train", *IN_TURNS}:
        return
    waits = f"swa_patience={patience} begins the mean of the weights after evaluations"
    if schedule not in IN_TURNS:
        raise HParamsError(
            f"{waits}, which --schedule={schedule} does not make. Give --schedule="
            f"{' or '.join(sorted(IN_TURNS))}, or say when it begins: "
            "--hparams=swa_patience=0,swa_start_step=N."
        )
    if not local_eval_frequency:
        raise HParamsError(
            f"{waits}, and --local_eval_frequency=0 makes none on the way. Give the steps from one "
            "to the next, or say when it begins: --hparams=swa_patience=0,swa_start_step=N."
        )


class RunConfig(Settings):
    """Settings of a run, each a flag of `t2t-trainer` of the same name.

    With `train_epochs`, `train_steps` is not read.
    """

    train_steps: int = hp(
        250000, "Optimizer steps at which the run ends, counted from its start.", low=1
    )
    train_epochs: int = hp(
        0,
        "Number of epochs after which the run ends, instead of --train_steps; 0: use "
        "--train_steps.",
        low=0,
    )
    train_seconds: int = hp(
        0,
        "Seconds of training after which the run ends, without evaluations, over all resumes;"
        " 0: no limit.",
        low=0,
    )
    pause_at_step: int = hp(
        0,
        "Step at which this command saves, evaluates and exits; the next command resumes "
        "there.  0: none.",
        low=0,
    )
    eval_steps: int = hp(
        100, "Number of batches per evaluation, over all processes; 0: the whole split.", low=0
    )
    local_eval_frequency: int = hp(
        1000, "Steps between evaluations, each with a checkpoint; 0: only at the end.", low=0
    )
    save_checkpoints_steps: int = hp(
        0, "Steps between additional checkpoints; 0: only at evaluations.", low=0
    )
    save_checkpoints_secs: int = hp(0, "Seconds between additional checkpoints; 0: none.", low=0)
    keep_checkpoint_max: int = hp(20, "Number of newest checkpoints to keep; 0: all.", low=0)
    keep_checkpoint_best: int = hp(
        0, "Number of checkpoints to keep additionally, by the watched metric; 0: none.", low=0
    )
    keep_checkpoint_every: int = hp(
        0, "Steps between checkpoints that are always kept; 0: none.", low=0
    )
    keep_checkpoint_every_n_hours: float = hp(
        0.0, "Hours between checkpoints that are always kept; 0: none.", low=0.0
    )
    async_save: bool = hp(True, "Writes checkpoints in a thread while training continues.")
    on_save_error: Literal["continue", "fail"] = hp(
        "continue",
        "Policy if a checkpoint cannot be written: continue with a warning, or fail.",
    )
    log_step_count_steps: int = hp(100, "Steps between progress lines.", low=1)
    random_seed: int | None = hp(
        None,
        "Random seed of initialization, dropout and order; by default the run's, of a new run "
        f"{DEFAULT_SEED}.",
    )
    eval_split: Split = hp(Split.EVAL, "Split to evaluate.")
    eval_timeout_mins: int = hp(
        240, "Minutes that the continuous_ schedules wait for a checkpoint.", low=0
    )
    eval_early_stopping_metric: str = hp(
        "loss",
        "Watched metric, as named by evaluations or summaries; decides the best checkpoint, "
        "early stopping and reductions of the learning rate.",
    )
    eval_early_stopping_metric_minimize: bool | None = hp(
        None, "Lower values of the watched metric are better; default: as declared by the metric."
    )
    eval_early_stopping_metric_delta: float | None = hp(
        None,
        "Least improvement of the watched metric that counts; default: 0.1 for the loss, as "
        "in tensor2tensor, and 0 for other metrics.",
        low=0.0,
    )
    eval_early_stopping_steps: int = hp(
        0,
        "Steps without improvement of the watched metric after which the run ends; 0: never.",
        low=0,
    )
    eval_patience: int = hp(
        0,
        "Evaluations without improvement of the watched metric after which the run ends; 0: never.",
        low=0,
    )
    reduce_lr_on_plateau_factor: float = hp(
        1.0,
        "Factor of the learning rate at a plateau of the watched metric; 1: no reduction.",
        low=0.0,
        high=1.0,
    )
    reduce_lr_on_plateau_patience: int = hp(
        5,
        "Consecutive evaluations without improvement that make a plateau.",
        low=1,
    )
    reduce_lr_on_plateau_threshold: float = hp(
        0.0001, "Least improvement of the watched metric that counts, for plateaus.", low=0.0
    )
    max_consecutive_nonfinite: int = hp(
        10,
        "Consecutive steps with a non-finite loss or gradient that are skipped before the run"
        " ends.",
        low=1,
    )
    resume_data: Literal["exact", "restart", "approx"] = hp(
        "exact",
        "Policy for changed data on resuming; exact: an error; restart: from the start of an "
        "epoch; approx: from the same fraction of the epoch.",
    )
    warm_start_from: str = hp(
        "",
        "Run, checkpoint or safetensors file of the initial weights of a new run.",
        path=True,
    )
    warm_start_patterns: tuple[str, ...] = hp(
        (),
        "Parameters to load from it: regular expressions of names; old->new renames, ! excludes.",
    )
    hooks: tuple[str, ...] = hp((), "Registered hooks of the run.  Names: --registry_help.")
    profile: bool = hp(False, "Profiles steps of the run; see docs/how_to/watch_a_run.md.")

    def reports_at(self, step: int) -> bool:
        """Returns True if training statistics are reported at a step.

        Besides every `log_step_count_steps`, these are steps 1, 10 and 50 if the first regular
        report is at step 100 or later: a slow run then shows early progress and speed.
        """
        early = self.log_step_count_steps >= 100 and step in (1, 10, 50)
        return early or step % self.log_step_count_steps == 0


# Checks that a run can be resumed with the requested settings.


_FIXED = frozenset(
    {
        "freeze",
        "optimizer",
        "optimizer_adafactor_beta1",
        "optimizer_adafactor_factored",
        "optimizer_muon_excludes",
        "scheduled_sampling_method",
        "swa_every",
        "swa_patience",
        "swa_start_step",
    }
)
"""Fields of losses, regularization, optimization and precision that a resumed run must not change:
they determine what the optimizer or the average of the weights stores."""

_CHANGEABLE = frozenset(
    {
        "attention_dropout",
        "eval_drop_long_sequences",
        "eval_stream_rows",
        "multiproblem_weights",
        "pad_batch",
        "pretrained_embeddings",
        "relu_dropout",
        "singleton_dropout",
        "word_dropout",
    }
)
"""Fields of data and models that a resumed run may change: neither the shapes of the weights nor
the order of the data depend on them.  (`batches_per_step` is checked separately.)"""


@functools.cache
def fields_that_may_change() -> frozenset[str]:
    """Returns the names of the hyperparameters that a resumed run may change."""
    from t2t_torch import hparam  # large module, not needed by --help

    groups = (
        hparam.LossHParams,
        hparam.RegularizationHParams,
        hparam.ScheduledSamplingHParams,
        hparam.OptimizationHParams,
        hparam.PrecisionHParams,
        hparam.ReportHParams,
    )
    names = {name for group in groups for name in group.model_fields}
    return frozenset(names - _FIXED | _CHANGEABLE)


def changed_fields(
    before: HParams, now: HParams, *, resume_data: str = "exact", trains: bool = True
) -> list[str]:
    """Returns "name: old -> new" for each hyperparameter that a resumed run changes.

    Args:
      before: hyperparameters of the run.
      now: requested hyperparameters.
      resume_data: unless "exact", fields of the data may change, too.
      trains: True if training continues; False if the run is only read.

    Raises:
      CheckpointError: a field changed that must not change; all are listed.
    """
    from t2t_torch.hparam import DataHParams

    fields = type(now).model_fields
    changes = {
        name: (getattr(before, name), getattr(now, name))
        for name in fields
        if getattr(before, name) != getattr(now, name)
    }
    allowed = set(fields_that_may_change())
    if resume_data != "exact":
        allowed.update(DataHParams.model_fields)
    refused = sorted(set(changes) - allowed)
    if refused:
        listed = ", ".join(
            f"{name} was {changes[name][0]}, is {changes[name][1]}" for name in refused
        )
        restored = ",".join(f"{name}={changes[name][0]}" for name in refused)
        go_on = f"Resume with --hparams={restored}, or train in another --output_dir."
        leave = f"Leave {', '.join(refused)} as trained (--hparams={restored}, or nothing)."
        raise CheckpointError(
            f"this output_dir was started with other hparams: {listed}. "
            + (go_on if trains else leave)
        )
    return [f"{name}: {old} -> {new}" for name, (old, new) in sorted(changes.items())]


def check_seed(state: TrainerState, checkpoint: Path, seed: int | None) -> None:
    """Checks a requested seed.

    Raises:
      CheckpointError: the run was started with another seed.
    """
    if seed is not None and seed != state.seed:
        raise CheckpointError(
            f"{checkpoint} was trained with --random_seed={state.seed}, not {seed}. Leave the "
            "flag out to resume, or train in another --output_dir."
        )


def same_position(
    state: TrainerState,
    checkpoint: Path,
    *,
    fingerprint: str,
    batches_per_step: int,
    processes: int,
    accumulate: str = "--hparams=optimizer_multistep_accumulate_steps={}",
) -> str:
    """Returns why the next batches differ from those of an uninterrupted run; "" if they do not.

    Args:
      state: state of the checkpoint.
      checkpoint: folder of the checkpoint, for the message.
      fingerprint: fingerprint of the present plan.
      batches_per_step: present micro-batches of all processes per step.
      processes: present number of training processes.
      accumulate: the flag that sets the batches of a process per step.
    """
    from t2t_torch.pipeline.streams import STREAMS_MARK  # imports torch

    if state.batches_per_step != batches_per_step:
        fitting, rest = divmod(state.batches_per_step, processes)
        remedy = (
            accumulate.format(fitting)
            if not rest
            else f"a number of processes that divides {state.batches_per_step}"
        )
        return (
            f"a step of {checkpoint} is {state.batches_per_step} batches; here it is "
            f"{batches_per_step} ({processes} processes, {batches_per_step // processes} each). "
            f"Resume with {remedy}."
        )
    version, made_by = (known.rpartition("-")[0] for known in (fingerprint, state.plan_fingerprint))
    streams, before = (STREAMS_MARK in known for known in (version, made_by))
    if streams != before:
        text, examples = "as one text in streams (stream_length above 0)", "example by example"
        return (
            f"the training data of {checkpoint} was read {text if before else examples}, here it "
            f"is read {text if streams else examples}. Set stream_length as it was, or train in "
            "another --output_dir."
        )
    if version != made_by:
        return (
            f"{checkpoint} is of another version of t2t_torch, which gave the training data "
            f"another order (order {made_by or 1}; here it is {version or 1}). Resume with that "
            "version, or train in another --output_dir."
        )
    if state.plan_fingerprint != fingerprint:
        return (
            f"the training data of {checkpoint} came in another order: its plan is "
            f"{state.plan_fingerprint}, here it is {fingerprint}. {_why_another(version, streams)} "
            "Restore them, or train in another --output_dir."
        )
    return ""


def _why_another(version: str, streams: bool) -> str:
    """Returns the settings that determine the order of a plan, as possible changes."""
    if version.startswith("trial"):
        return "The trial's data, its training loader or its sampler, or --random_seed changed."
    settings = (
        "stream_length, stream_rows or --random_seed changed"
        if streams
        else "batch_size, max_length, the buckets' hparams, --random_seed, or the problems or "
        "the mixing_schedule of a mixture changed"
    )
    return f"The shards in --data_dir were generated again with another result, or {settings}."


def new_position(
    state: TrainerState, checkpoint: Path, fault: str, *, resume_data: str, epoch_batches: int
) -> int:
    """Returns the global batch at which a run with changed data resumes.

    Args:
      state: state of the checkpoint.
      checkpoint: folder of the checkpoint, for the message.
      fault: reason why the data cannot continue unchanged.
      resume_data: exact, restart or approx.
      epoch_batches: present number of global batches per epoch; 0 if unknown.

    Raises:
      CheckpointError: `resume_data` is exact; or approx, and epochs cannot be compared.
    """
    if resume_data == "restart":
        return 0
    if resume_data == "approx":
        if state.epoch_batches and epoch_batches:
            return round(state.batches_consumed / state.epoch_batches * epoch_batches)
        raise CheckpointError(
            f"--resume_data=approx: the epochs of {checkpoint} and of the data here cannot be "
            "compared, as problems are mixed. Say --resume_data=restart."
        )
    raise CheckpointError(
        f"{fault}\nOr choose where the data resumes: --resume_data=approx from the same fraction "
        "of the epoch, --resume_data=restart from its beginning."
    )


def open_data(
    task: Task, config: RunConfig, world: World, state: TrainerState, newest: Checkpoint | None
) -> TrainSource:
    """Opens the training data at the run's position, or as `config.resume_data` requires.

    Args:
      task: the task to train.
      config: settings of the run.
      world: the training processes.
      state: position of the run; its position in the data is set to the opened position.
      newest: the checkpoint to resume from; None for a new run.

    Raises:
      CheckpointError: the checkpoint was trained on other data.
    """

    def batches() -> TrainSource:
        at = state.batches_consumed
        return task.train_batches(seed=state.seed, start=at, rank=world.rank, world_size=world.size)

    source = batches()
    here = (task.hparams.optimizer_multistep_accumulate_steps or 1) * world.size
    epoch = 0 if source.report.mixed_tokens else source.report.batches
    fault = ""
    is_imported = not (state.plan_fingerprint or state.batches_consumed)  # it has read no data
    if newest is not None and not is_imported:
        fault = same_position(
            state,
            newest.path,
            fingerprint=source.plan_fingerprint,
            batches_per_step=here,
            processes=world.size,
            accumulate=task.accumulate_flag,
        )
    if newest is not None and fault:
        policy = config.resume_data
        state.batches_consumed = new_position(
            state, newest.path, fault, resume_data=policy, epoch_batches=epoch
        )
        source = batches()
        if world.leads:
            where = f"on from batch {state.batches_consumed:,} of the data as it is now"
            reporter.message(f"--resume_data={policy}: {where}")
    state.batches_per_step = here
    state.plan_fingerprint = source.plan_fingerprint
    state.epoch_batches = epoch
    return source


def steps_of_run(config: RunConfig, state: TrainerState) -> int:
    """Returns the step at which a run ends, from `train_epochs` or `train_steps`.

    Raises:
      UsageError: `train_epochs` is set for a mixture.
    """
    if not config.train_epochs:
        return config.train_steps
    if not state.epoch_batches:
        raise UsageError("--train_epochs: problems that are mixed have no epoch in common.")
    return -(-config.train_epochs * state.epoch_batches // state.batches_per_step)
