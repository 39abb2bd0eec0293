"""A learning-rate schedule of your own: full for most of a run, then falling to 0.

    t2t-trainer --t2t_usr_dir=examples/my_usr_dir \
      --hparams=learning_rate_schedule=constant*linear_warmup*hold_then_drop ...
"""

from __future__ import annotations

from collections.abc import Callable

from t2t_torch.hparam import HParams
from t2t_torch.optim.settings import reads
from t2t_torch.registry import register_schedule


@register_schedule
@reads("learning_rate_cut_fraction", "train_steps")
def hold_then_drop(hparams: HParams, train_steps: int) -> Callable[[float], float]:
    """1 in the cut fraction of the run, then linearly to 0 at its end."""
    drop = train_steps * hparams.learning_rate_cut_fraction
    return lambda step: min(1.0, max(train_steps - step, 0.0) / max(train_steps - drop, 1.0))
