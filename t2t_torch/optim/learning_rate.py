"""The learning rate: a product of registered schedules, as tensor2tensor computes it.

`learning_rate_schedule="constant*linear_warmup*rsqrt_decay"` multiplies three factors, each a
schedule registered by `@register_schedule`: a function of (hparams, train_steps) that returns a
`Schedule`.  Update number s (from 0) uses rate(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

Schedule = Callable[[float], float]
"""The learning rate, or a factor of it, as a function of the optimizer steps already done."""


def learning_rate(hparams: HParams, train_steps: int) -> Schedule:
    """Returns the rate as a function of the optimizer steps already done.

    Args:
      hparams: the optimization group, and `hidden_size`.
      train_steps: at which the run ends; some factors reach their end there.

    Raises:
      HParamsError: a factor or decay scheme is unknown, or does not fit the others.
    """
    factors = [_factor(name, hparams, train_steps) for name in factor_names(hparams)]
    floor = hparams.learning_rate_minimum

    def rate(step: float) -> float:
        value = math.prod(factor(step) for factor in factors)
        # tensor2tensor declares the minimum and reads it nowhere. A floor under the warm-up, which
        # begins at zero, is not what anyone means by it.
        if floor is not None and step >= hparams.learning_rate_warmup_steps:
            value = max(value, floor)
        return value

    return rate


def factor_names(hparams: HParams) -> list[str]:
    """Returns the names of the factors that `learning_rate_schedule` joins; possibly none.

    Raises:
      HParamsError: one is not registered.
    """
    names = [name.strip() for name in hparams.learning_rate_schedule.split("*") if name.strip()]
    known = registry.list_names("schedule")
    for name in names:
        if name not in known:
            raise HParamsError(
                f"learning_rate_schedule='{hparams.learning_rate_schedule}': there is no factor "
                f"'{name}'. Factors, to be joined by '*': {', '.join(known)}. Your own is found "
                "with --t2t_usr_dir, under @register_schedule."
            )
    return names


def _factor(name: str, hparams: HParams, train_steps: int) -> Schedule:
    make = registry.schedule(name)
    factor = make(hparams, train_steps)
    if not callable(factor):
        raise HParamsError(
            f"learning_rate_schedule='{hparams.learning_rate_schedule}': {make.__module__}."
            f"{make.__qualname__}(hparams, train_steps) returned {factor!r}; a function of the "
            "steps done was expected."
        )
    schedule: Schedule = factor
    return schedule


def steps_after_warmup(hparams: HParams) -> Schedule:
    """Returns the function that counts the steps after `learning_rate_warmup_steps`."""
    warmup = hparams.learning_rate_warmup_steps
    return lambda step: max(0.0, step - warmup)


def check_end(name: str, hparams: HParams, train_steps: int) -> None:
    """Checks that a schedule from the end of the warm-up to the end of the run has steps.

    Raises:
      HParamsError: the run ends before the warm-up does.
    """
    if train_steps <= hparams.learning_rate_warmup_steps:
        raise HParamsError(
            f"{name} decays from learning_rate_warmup_steps="
            f"{hparams.learning_rate_warmup_steps} to --train_steps={train_steps}, which must be "
            f"more. Set --hparams=learning_rate_warmup_steps={train_steps // 10}, or give more "
            "--train_steps."
        )
