"""The learning rate: a product of named factors, as tensor2tensor computes it.

`learning_rate_schedule="constant*linear_warmup*rsqrt_decay"` multiplies three of `FACTORS`.  Every
factor is a function of the steps already done: update number s (from 0) uses rate(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_torch.errors import HParamsError
from t2t_torch.optimization.learning_rate_factor import FACTORS, LEGACY_DECAYS

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


def learning_rate(hparams: HParams, train_steps: int) -> Callable[[float], float]:
    """Returns the rate as a function of the optimizer steps already done.

    Args:
      hparams: the optimization group, and `hidden_size`.
      train_steps: at which the run ends; some factors reach their end there.

    Raises:
      HParamsError: a factor or decay scheme is unknown, or does not fit the others.
    """
    names = factor_names(hparams)
    for name in names:
        _check(name, hparams, train_steps)
    formulas = [FACTORS[name].formula for name in names]
    floor = hparams.learning_rate_minimum

    def rate(step: float) -> float:
        value = math.prod(formula(hparams, train_steps, step) for formula in formulas)
        # tensor2tensor declares the minimum and reads it nowhere. A floor under the warm-up, which
        # begins at zero, is not what anyone means by it.
        if floor is not None and step >= hparams.learning_rate_warmup_steps:
            value = max(value, floor)
        return value

    return rate


def factor_names(hparams: HParams) -> list[str]:
    """Returns the names of the factors that `learning_rate_schedule` joins; they may be none.

    Raises:
      HParamsError: one is unknown.
    """
    names = [name.strip() for name in hparams.learning_rate_schedule.split("*") if name.strip()]
    for name in names:
        if name not in FACTORS:
            raise HParamsError(
                f"learning_rate_schedule='{hparams.learning_rate_schedule}': there is no factor "
                f"'{name}'. Factors, to be joined by '*': {', '.join(FACTORS)}."
            )
    return names


def _check(name: str, hparams: HParams, train_steps: int) -> None:
    if FACTORS[name].until_end and train_steps <= hparams.learning_rate_warmup_steps:
        raise HParamsError(
            f"{name} decays from learning_rate_warmup_steps="
            f"{hparams.learning_rate_warmup_steps} to --train_steps={train_steps}, which must be "
            f"more. Set --hparams=learning_rate_warmup_steps={train_steps // 10}, or give more "
            "--train_steps."
        )
    if name == "step_decay" and hparams.learning_rate_decay_rate == 1.0:
        raise HParamsError(
            "step_decay multiplies the rate by learning_rate_decay_rate, which is 1: it never "
            "decays. Set it, for example to 0.5."
        )
    scheme = hparams.learning_rate_decay_scheme
    if name == "legacy" and scheme not in LEGACY_DECAYS:
        raise HParamsError(
            f"there is no learning_rate_decay_scheme '{scheme}'. "
            f"Schemes of the schedule 'legacy': {', '.join(LEGACY_DECAYS)}."
        )
    if name == "legacy" and scheme == "piecewise":
        boundaries = len(hparams.learning_rate_boundaries)
        multiples = len(hparams.learning_rate_multiples)
        if not boundaries or boundaries != multiples:
            raise HParamsError(
                "learning_rate_decay_scheme='piecewise' needs as many learning_rate_multiples as "
                f"learning_rate_boundaries, one at least; there are {multiples} and {boundaries}."
            )
