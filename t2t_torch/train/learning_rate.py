"""Learning-rate schedules, as tensor2tensor computes them: a product of named factors.

`learning_rate_schedule="constant*linear_warmup*rsqrt_decay"` multiplies three of `FACTORS`.  Every
factor is a function of the steps already done: update number s (from 0) uses rate(s).  Formulas:
tensor2tensor 1.15.7, utils/learning_rate.py.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

Factor = Callable[["HParams", int, float], float]


def learning_rate(hparams: HParams, train_steps: int) -> Callable[[float], float]:
    """Returns the rate as a function of the optimizer steps already done.

    Args:
      hparams: the optimization group, and `hidden_size`.
      train_steps: at which the run ends; some factors reach zero there.

    Raises:
      HParamsError: a factor or decay scheme is unknown, or does not fit the others.
    """
    names = [name.strip() for name in hparams.learning_rate_schedule.split("*") if name.strip()]
    for name in names:
        _check(name, hparams, train_steps)
    factors = [FACTORS[name] for name in names]
    floor = hparams.learning_rate_minimum

    def rate(step: float) -> float:
        value = math.prod(factor(hparams, train_steps, step) for factor in factors)
        # tensor2tensor declares the minimum and reads it nowhere. A floor under the warm-up, which
        # begins at zero, is not what anyone means by it.
        if floor is not None and step >= hparams.learning_rate_warmup_steps:
            value = max(value, floor)
        return value

    return rate


def _check(name: str, hparams: HParams, train_steps: int) -> None:
    if name not in FACTORS:
        raise HParamsError(
            f"learning_rate_schedule='{hparams.learning_rate_schedule}': there is no factor "
            f"'{name}'. Factors, to be joined by '*': {', '.join(FACTORS)}."
        )
    if name == "single_cycle_cos_decay" and train_steps <= hparams.learning_rate_warmup_steps:
        raise HParamsError(
            f"single_cycle_cos_decay decays from learning_rate_warmup_steps="
            f"{hparams.learning_rate_warmup_steps} to --train_steps={train_steps}, which must be "
            "more."
        )
    scheme = hparams.learning_rate_decay_scheme
    if name == "legacy" and scheme != "noam" and scheme not in _LEGACY_DECAYS:
        raise HParamsError(
            f"there is no learning_rate_decay_scheme '{scheme}'. "
            f"Schemes of the schedule 'legacy': noam, {', '.join(_LEGACY_DECAYS)}."
        )
    if name == "legacy" and scheme == "piecewise":
        boundaries = len(hparams.learning_rate_boundaries)
        multiples = len(hparams.learning_rate_multiples)
        if not boundaries or boundaries != multiples:
            raise HParamsError(
                "learning_rate_decay_scheme='piecewise' needs as many learning_rate_multiples as "
                f"learning_rate_boundaries, one at least; there are {multiples} and {boundaries}."
            )


def _constant(hparams: HParams, train_steps: int, step: float) -> float:
    return hparams.learning_rate_constant


def _linear_warmup(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    return min(1.0, step / warmup) if warmup else 1.0


def _linear_decay(hparams: HParams, train_steps: int, step: float) -> float:
    return min(1.0, max(0.0, (train_steps - step) / hparams.learning_rate_decay_steps))


def _cosdecay(hparams: HParams, train_steps: int, step: float) -> float:
    if step <= hparams.learning_rate_warmup_steps:
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * step / hparams.learning_rate_decay_steps))


def _single_cycle_cos_decay(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    position = (max(step, warmup) - warmup) / (train_steps - warmup)
    return 0.5 + 0.5 * math.cos(math.pi * position)


def _multi_cycle_cos_decay(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    position = (max(step, warmup) - warmup) / hparams.learning_rate_decay_steps
    return 0.5 + 0.5 * math.cos(math.pi * position)


def _rsqrt_decay(hparams: HParams, train_steps: int, step: float) -> float:
    return float(max(step, hparams.learning_rate_warmup_steps, 1.0) ** -0.5)


def _rsqrt_normalized_decay(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = max(hparams.learning_rate_warmup_steps, 1)
    return float((warmup / max(step, warmup)) ** 0.5)


def _exp_decay(hparams: HParams, train_steps: int, step: float) -> float:
    past = max(0.0, step - hparams.learning_rate_warmup_steps) / hparams.learning_rate_decay_steps
    if hparams.learning_rate_decay_staircase:
        past = math.floor(past)
    return float(hparams.learning_rate_decay_rate**past)


def _rsqrt_hidden_size(hparams: HParams, train_steps: int, step: float) -> float:
    return float(hparams.hidden_size**-0.5)


def _legacy(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    if hparams.learning_rate_decay_scheme == "noam":
        rise = (step + 1) * warmup**-1.5 if warmup else math.inf
        value = 5000.0 * hparams.hidden_size**-0.5 * min(rise, (step + 1) ** -0.5)
    elif step < warmup:
        value = 0.01 ** ((warmup - step) / warmup)
    else:
        value = _LEGACY_DECAYS[hparams.learning_rate_decay_scheme](hparams, train_steps, step)
    # T2T's Adam correction, utils/learning_rate.py: it keeps the published schedules valid.
    correction = 0.002 if "adam" in hparams.optimizer else 1.0
    return float(value * correction * hparams.learning_rate)


def _legacy_exp(hparams: HParams, train_steps: int, step: float) -> float:
    past = (step - hparams.learning_rate_warmup_steps) / hparams.learning_rate_decay_steps
    if hparams.learning_rate_decay_staircase:
        past = math.floor(past)
    return float(hparams.learning_rate_decay_rate**past)


def _legacy_piecewise(hparams: HParams, train_steps: int, step: float) -> float:
    values = [1.0, *hparams.learning_rate_multiples]
    return values[bisect_left(hparams.learning_rate_boundaries, step)]


def _legacy_cosine(hparams: HParams, train_steps: int, step: float) -> float:
    cycle = hparams.learning_rate_cosine_cycle_steps
    position = cycle - abs(cycle - step % (2 * cycle))
    return 0.5 * (1 + math.cos(math.pi * position / cycle))


def _legacy_sqrt(hparams: HParams, train_steps: int, step: float) -> float:
    return 500.0 * float(max(step - hparams.learning_rate_warmup_steps, 1.0) ** -0.5)


def _legacy_none(hparams: HParams, train_steps: int, step: float) -> float:
    return 1.0


# tensor2tensor's `cyclelinear10x` raises a TypeError there; it is left out.
_LEGACY_DECAYS: dict[str, Factor] = {
    "none": _legacy_none,
    "exp": _legacy_exp,
    "piecewise": _legacy_piecewise,
    "cosine": _legacy_cosine,
    "sqrt": _legacy_sqrt,
}

FACTORS: dict[str, Factor] = {
    "constant": _constant,
    "linear_warmup": _linear_warmup,
    "linear_decay": _linear_decay,
    "cosdecay": _cosdecay,
    "single_cycle_cos_decay": _single_cycle_cos_decay,
    "multi_cycle_cos_decay": _multi_cycle_cos_decay,
    "rsqrt_decay": _rsqrt_decay,
    "rsqrt_normalized_decay": _rsqrt_normalized_decay,
    "exp_decay": _exp_decay,
    "rsqrt_hidden_size": _rsqrt_hidden_size,
    "legacy": _legacy,
}
