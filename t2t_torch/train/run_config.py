"""Settings of a run: everything about training except problem, model and hparams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from t2t_torch import reporter
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.mode import Split
from t2t_torch.run.resuming import new_position, same_position
from t2t_torch.settings import Settings, hp, hp_path

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World
    from t2t_torch.run.checkpoint import Checkpoint, TrainerState
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
_EVALUATE_EACH = RunSchedule(
    "Evaluate each new checkpoint, up to the run's last.", evaluates=True, repeats=True
)
_DECODE_EACH = RunSchedule(
    "Decode with each new checkpoint, up to the run's last.", decodes=True, repeats=True
)
SCHEDULES: dict[str, RunSchedule] = {
    "continuous_train_and_eval": _IN_TURNS,
    "train_and_evaluate": _IN_TURNS._replace(meaning="The same, by another name."),
    "train": RunSchedule("Train, and evaluate nothing.", trains=True),
    "evaluate": RunSchedule("Evaluate the newest checkpoint once.", evaluates=True),
    "evaluate_on_train_data": RunSchedule(
        "Evaluate the newest checkpoint once, on the training split.", evaluates=True, data="train"
    ),
    "train_eval_and_decode": _IN_TURNS._replace(
        meaning="Train; evaluate and decode every local_eval_frequency steps, and at the end.",
        decodes=True,
    ),
    "continuous_eval": _EVALUATE_EACH,
    "continuous_eval_on_train_data": _EVALUATE_EACH._replace(
        meaning="Evaluate each new checkpoint on the training split, up to the run's last.",
        data="train",
    ),
    "decode": RunSchedule("Decode with the newest checkpoint once.", decodes=True),
    "continuous_decode": _DECODE_EACH,
    "continuous_decode_on_train_data": _DECODE_EACH._replace(
        meaning="Decode the training split with each new checkpoint.", data="train"
    ),
    "continuous_decode_on_eval_data": _DECODE_EACH._replace(
        meaning="Decode the evaluated split with each new checkpoint.", data="eval"
    ),
    "continuous_decode_from_file": _DECODE_EACH._replace(
        meaning="Decode a file with each new checkpoint."
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
        "continue", "Policy if a checkpoint cannot be written: continue with a warning, or fail."
    )
    digest_every: int = hp(
        0,
        "Steps between digests of batch, gradients and weights, by which the run finds flipped bits"
        " and t2t-replay compares, also of saved steps; 0: none.",
        low=0,
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
        5, "Consecutive evaluations without improvement that make a plateau.", low=1
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
    deterministic_world: int = hp(
        0,
        "Micro-batches of a step, of all processes, whose gradients are summed in a fixed order: "
        "any number of processes up to it gives the same weights, bit by bit; 0: off.  See "
        "docs/how_to/many_machines.md.",
        low=0,
    )
    keep_global_batch: bool | None = hp(
        None,
        "Resumes with another number of processes; True: a step keeps its number of micro-batches,"
        " which the processes share; False: it follows the number of processes; default: an error.",
    )
    warm_start_from: str = hp_path(
        "Run, checkpoint or safetensors file of the initial weights of a new run.", ""
    )
    warm_start_patterns: tuple[str, ...] = hp(
        (),
        "Parameters to load from it: regular expressions of names; old->new renames, ! excludes.",
    )
    export_best: bool = hp(
        False,
        "Exports each new best checkpoint in the background, verified, to export/<step> in the"
        " run, with a link `latest`, which t2t-server --watch follows.",
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

    is_imported = not (state.plan_fingerprint or state.batches_consumed)  # it has read no data
    resumes = newest is not None and not is_imported
    here = _batches_of_step(task, config, world, state.batches_per_step if resumes else 0)
    follows = resumes and config.keep_global_batch is False
    if follows and here != state.batches_per_step:
        if world.leads:
            reporter.message(
                f"--keep_global_batch=False: a step was {state.batches_per_step} batches, and is "
                f"{here} from here on"
            )
        state.batches_per_step = here

    def batches() -> TrainSource:
        place = {"start": state.batches_consumed, "rank": world.rank, "world_size": world.size}
        if here != _batches_of_hparams(task, world):
            place["batches_per_step"] = here
        return task.train_batches(seed=state.seed, **place)

    source = batches()
    epoch = 0 if source.report.mixed_tokens else source.report.batches
    fault = ""
    if newest is not None and resumes:
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


def _batches_of_hparams(task: Task, world: World) -> int:
    return (task.hparams.optimizer_multistep_accumulate_steps or 1) * world.size


def _batches_of_step(task: Task, config: RunConfig, world: World, before: int) -> int:
    """Returns the number of micro-batches of all processes in a step; 0 `before`: a new run."""
    size = config.deterministic_world
    if size and config.keep_global_batch is not None:
        raise UsageError(
            f"--deterministic_world={size} sets a step's batches. Leave --keep_global_batch out."
        )
    if config.keep_global_batch:
        size = before
    if not size:
        return _batches_of_hparams(task, world)
    if size < world.size:
        raise UsageError(
            f"a step is {size} micro-batches, too few for {world.size} processes. Start at most "
            f"{size} processes (torchrun --nnodes=1:{size}), or begin a run with more of them."
        )
    if size % world.size and task.hparams.shard_weights:
        raise HParamsError(
            f"shard_weights=True needs as many micro-batches of each process: {world.size} "
            f"processes cannot share the {size} of a step evenly. Start a divisor of {size}."
        )
    if config.deterministic_world and config.eval_steps and not task.evaluates_in_order:
        raise UsageError(
            "--deterministic_world: with several problems the first batches of an evaluation "
            "depend on the number of processes. Give --eval_steps=0: all batches."
        )
    return size


def steps_of_run(config: RunConfig, state: TrainerState) -> int:
    """Returns the step at which a run ends, from `train_epochs` or `train_steps`.

    Raises:
      UsageError: `train_epochs` is set for a mixture.
    """
    if not config.train_epochs:
        return config.train_steps
    if not state.epoch_batches:
        raise UsageError("--train_epochs: problems that are mixed have no epoch in common.")
    batches = config.train_epochs * state.epoch_batches
    if config.keep_global_batch is False:  # earlier steps may have had another size
        left = max(batches - state.batches_consumed, 0)
        return state.step + -(-left // state.batches_per_step)
    return -(-batches // state.batches_per_step)
