"""Where a run stands, beside weights and optimizer."""

from __future__ import annotations

from typing import Any

import pydantic


class SinceReport(pydantic.BaseModel, extra="forbid", frozen=True):
    """What was counted since the last report, so that the next one is exact over a resume.

    Attributes:
      sums: loss, weight, positions with data, positions.
      grad_norm: of the last step that was not skipped; None if there was none.
      steps: in all.
      skipped: of them.
    """

    sums: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    grad_norm: float | None = None
    steps: int = 0
    skipped: int = 0


class TrainerState(pydantic.BaseModel, extra="forbid"):
    """Where a run stands, beside weights and optimizer: all that decides how it goes on.

    Attributes:
      step: optimizer steps done, those that were skipped among them.
      batches_consumed: global batches consumed: the position in the data.
      batches_per_step: micro-batches of all processes that make a step.
      tokens: the loss's weight seen: target tokens, padding not counted, or examples.
      seconds: trained, without evaluations, over all resumes.
      seed: of initialization, dropout and order.
      plan_fingerprint: of the order of the data.
      epoch_batches: global batches of an epoch; 0 if not known, as of a mixture.
      version: of t2t_torch.
      skipped: steps that moved nothing, as the loss or the gradient was not finite.
      skipped_in_a_row: the last of them, if the last step was one.
      loss_scale: what losses are multiplied by before a backward pass in float16; 0: not yet known.
      loss_scale_steps: finite steps since it last changed.
      evaluated: step of the last evaluation that the stopping rules have seen.
      watched: the metric that they watch, and its better direction; see `train/stopping.py`.
      best_value: the best that it was; None before the first.
      best_step: when; or when it was first looked at.
      bad_evaluations: evaluations since then.
      plateau_factor: what the learning rate is multiplied by, as the metric stood still.
      plateau_value: the best that it was, by the plateau's threshold.
      plateau_bad: evaluations since then, or since the factor last changed.
      mean_begun: step of the evaluation at which the mean of the weights began, if it waits for
        one.
      mean_values: the watched metric at evaluations that it has waited for.
      since_report: what the next report will be of.
      hooks: what each hook remembers, by its name.
      task: what a task remembers, as the optimizer's settings of a trial that schedules its own.
    """

    step: int = 0
    batches_consumed: int = 0
    batches_per_step: int = 1
    tokens: float = 0.0
    seconds: float = 0.0
    seed: int = 0
    plan_fingerprint: str = ""
    epoch_batches: int = 0
    version: str = ""
    skipped: int = 0
    skipped_in_a_row: int = 0
    loss_scale: float = 0.0
    loss_scale_steps: int = 0
    evaluated: int = -1
    watched: str = ""
    best_value: float | None = None
    best_step: int = -1
    bad_evaluations: int = 0
    plateau_factor: float = 1.0
    plateau_value: float | None = None
    plateau_bad: int = 0
    mean_begun: int = -1
    mean_values: tuple[float, ...] = ()
    since_report: SinceReport = SinceReport()
    hooks: dict[str, dict[str, Any]] = {}
    task: dict[str, Any] = {}
