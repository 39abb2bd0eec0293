"""How a run goes: everything about training that is neither problem, model nor hparams."""

from __future__ import annotations

import dataclasses
import math

from t2t_torch.errors import HParamsError
from t2t_torch.mode import Split

DEFAULT_SEED = 1

SCHEDULES = (
    "continuous_train_and_eval",
    "train",
    "evaluate",
    "evaluate_on_train_data",
    "train_eval_and_decode",
    "continuous_eval",
    "continuous_eval_on_train_data",
    "decode",
    "continuous_decode",
    "continuous_decode_on_train_data",
    "continuous_decode_on_eval_data",
    "continuous_decode_from_file",
    "test",
)
"""What `--schedule` may be: the methods of `Experiment` of these names."""

TRAINING = frozenset({"continuous_train_and_eval", "train", "train_eval_and_decode", "test"})
"""The schedules that train; the others read what another process trains or has trained."""

IN_TURNS = frozenset({"continuous_train_and_eval", "train_eval_and_decode"})
"""The schedules that train and evaluate in turns; they alone can stop early."""

DECODING = frozenset(name for name in SCHEDULES if "decode" in name)
"""The schedules that decode."""

SAVE_ERRORS = ("continue", "fail")
"""What `--on_save_error` may be."""

RESUME_DATA = ("exact", "restart", "approx")
"""What `--resume_data` may be."""


AT_LEAST_ONE = frozenset(
    {
        "train_steps",
        "log_step_count_steps",
        "reduce_lr_on_plateau_patience",
        "max_consecutive_nonfinite",
    }
)
"""The numbers of a `RunConfig` that are at least 1; the others, but the seed, are at least 0.

With `train_epochs`, `train_steps` may be 0."""

AT_MOST = {"reduce_lr_on_plateau_factor": 1.0}
"""The largest values of numbers of a `RunConfig`."""


def check_patience(patience: int, schedule: str, local_eval_frequency: int) -> None:
    """Refuses a mean of the weights that waits for evaluations which are not made.

    Args:
      patience: the hparam `swa_patience`.
      schedule: of `SCHEDULES`; `test` trains one step and is let be.
      local_eval_frequency: steps from one evaluation to the next.

    Raises:
      HParamsError: it would never begin.
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


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What `t2t-trainer`'s flags say about the run; named as they are.

    Attributes:
      train_steps: optimizer steps at which the run ends, counted from its very beginning.
      train_epochs: passes over the data after which it ends instead; 0: by steps.
      train_seconds: of training, evaluations not counted, after which the run ends; over all
        resumes; 0: by steps alone.
      pause_at_step: a step at which this command saves, evaluates and ends, while the run's end and
        so its learning rates stay where they are; 0: none.
      eval_steps: batches of an evaluation, of all processes; 0 evaluates the whole split.
      local_eval_frequency: steps from one checkpoint (and evaluation) to the next.
      save_checkpoints_steps: steps from one checkpoint to the next, besides; 0 saves at evaluations
        alone.
      save_checkpoints_secs: seconds from one checkpoint to the next, besides; 0 saves by steps
        alone.
      async_save: whether a thread writes checkpoints while training goes on.
      on_save_error: "continue" warns of a checkpoint that cannot be written, "fail" ends the run.
      keep_checkpoint_max: newest checkpoints kept; 0 keeps all.
      keep_checkpoint_best: checkpoints kept besides, of the best evaluations; 0: none.
      keep_checkpoint_every: steps; checkpoints of multiples are kept besides; 0: none.
      keep_checkpoint_every_n_hours: a checkpoint of every so many hours is kept besides; 0: none.
      log_step_count_steps: steps from one report to the next; see `reports_at`.
      random_seed: of initialization, dropout and order; None takes that of the run that is resumed,
        `DEFAULT_SEED` for a new one.
      eval_split: what is evaluated.
      eval_timeout_mins: how long the polling schedules wait for another checkpoint.
      eval_early_stopping_metric: what is watched to stop early, to reduce the learning rate and to
        know the best checkpoint; as it is printed ("loss") or as summaries name it.
      eval_early_stopping_metric_delta: what it must improve by to count.
      eval_early_stopping_metric_minimize: whether less is better; None: as the metric says itself.
      eval_early_stopping_steps: the run ends when so many steps brought no such improvement;
        0: never.
      reduce_lr_on_plateau_factor: what the learning rate is multiplied by at a plateau; 1: never.
      reduce_lr_on_plateau_patience: evaluations in a row without improvement that are a plateau.
      reduce_lr_on_plateau_threshold: what the metric must improve by to count, here.
      max_consecutive_nonfinite: so many steps in a row without a finite loss and gradient end the
        run; fewer are left out.
      resume_data: "exact" refuses data in another order; "restart" takes it from its beginning;
        "approx" goes on after as many batches as were consumed.
      warm_start_from: a run, a checkpoint or a safetensors file whose weights a new run begins
        with; empty: none.
      warm_start_patterns: what is taken from there, as `checkpoint.warm_start` reads it; empty: all
        that fits by name.
      hooks: names of registered hooks.
      profile: whether steps are profiled.

    Raises:
      HParamsError: a number is too small or too large; all are named.
    """

    train_steps: int = 250000
    train_epochs: int = 0
    train_seconds: int = 0
    pause_at_step: int = 0
    eval_steps: int = 100
    local_eval_frequency: int = 1000
    save_checkpoints_steps: int = 0
    save_checkpoints_secs: int = 0
    async_save: bool = True
    on_save_error: str = "continue"
    keep_checkpoint_max: int = 20
    keep_checkpoint_best: int = 0
    keep_checkpoint_every: int = 0
    keep_checkpoint_every_n_hours: float = 0.0
    log_step_count_steps: int = 100
    random_seed: int | None = None
    eval_split: Split = Split.EVAL
    eval_timeout_mins: int = 240
    eval_early_stopping_metric: str = "loss"
    eval_early_stopping_metric_delta: float = 0.1
    eval_early_stopping_metric_minimize: bool | None = None
    eval_early_stopping_steps: int = 0
    reduce_lr_on_plateau_factor: float = 1.0
    reduce_lr_on_plateau_patience: int = 5
    reduce_lr_on_plateau_threshold: float = 0.0001
    max_consecutive_nonfinite: int = 10
    resume_data: str = "exact"
    warm_start_from: str = ""
    warm_start_patterns: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    profile: bool = False

    def __post_init__(self) -> None:
        faults = []
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if name == "random_seed" or not isinstance(value, int | float):
                continue
            by_epochs = name == "train_steps" and self.train_epochs > 0
            least = int(name in AT_LEAST_ONE and not by_epochs)
            most = AT_MOST.get(name, math.inf)
            if not least <= value <= most:
                bound = f"at least {least}" if not value > most else f"at most {most:g}"
                faults.append(f"{name}={value}, which should be {bound}")
        if faults:
            raise HParamsError(f"RunConfig has {'; '.join(faults)}.")

    def reports_at(self, step: int) -> bool:
        """Returns whether training is reported at a step.

        Beside every `log_step_count_steps` also at the steps 1, 10 and 50, if the first of those
        would come at 100 or later: a slow run shows early that it learns, and how long it takes.
        """
        early = self.log_step_count_steps >= 100 and step in (1, 10, 50)
        return early or step % self.log_step_count_steps == 0
