"""Where a run stands, beside weights and optimizer."""

from __future__ import annotations

import pydantic


class TrainerState(pydantic.BaseModel, extra="forbid"):
    """Where a run stands, beside weights and optimizer.

    Attributes:
      step: optimizer steps done.
      batches_consumed: global batches consumed: the position in the data.
      batches_per_step: micro-batches of all processes that make a step.
      tokens: non-padding target tokens (the loss's weight) seen.
      seed: of initialization, dropout and order.
      plan_fingerprint: of the order of the data.
      version: of t2t_torch.
    """

    step: int = 0
    batches_consumed: int = 0
    batches_per_step: int = 1
    tokens: int = 0
    seed: int = 0
    plan_fingerprint: str = ""
    version: str = ""
