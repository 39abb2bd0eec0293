"""How a run goes: everything about training that is neither problem, model nor hparams."""

from __future__ import annotations

import dataclasses

from t2t_torch.mode import Split

DEFAULT_SEED = 1

SCHEDULES = (
    "continuous_train_and_eval",
    "train",
    "evaluate",
    "train_eval_and_decode",
    "continuous_eval",
    "test",
)
"""What `--schedule` may be: the methods of `Experiment` of these names."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What `t2t-trainer`'s flags say about the run; named as they are.

    Attributes:
      train_steps: optimizer steps at which the run ends, counted from its very beginning.
      eval_steps: batches of an evaluation, of all processes; 0 evaluates the whole split.
      local_eval_frequency: steps from one checkpoint (and evaluation) to the next.
      save_checkpoints_secs: seconds from one checkpoint to the next, besides; 0 saves by steps
        alone.
      keep_checkpoint_max: newest checkpoints kept; 0 keeps all.
      log_step_count_steps: steps from one report to the next.
      random_seed: of initialization, dropout and order; None takes that of the run that is resumed,
        `DEFAULT_SEED` for a new one.
      eval_split: what is evaluated.
      eval_timeout_mins: how long `continuous_eval` waits for another checkpoint.
    """

    train_steps: int = 250000
    eval_steps: int = 100
    local_eval_frequency: int = 1000
    save_checkpoints_secs: int = 0
    keep_checkpoint_max: int = 20
    log_step_count_steps: int = 100
    random_seed: int | None = None
    eval_split: Split = Split.EVAL
    eval_timeout_mins: int = 240
