"""The learning rate: a product of named factors, as tensor2tensor computes it.

`learning_rate_schedule="constant*linear_warmup*rsqrt_decay"` multiplies three of `FACTORS`.  Every
factor is a function of the steps already done: update number s (from 0) uses rate(s).
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


# The factors of a learning rate: functions of the steps already done.
#
# Those of tensor2tensor 1.15.7 (utils/learning_rate.py) by its names, and those of PyText
# (optimizer/scheduler.py) that it lacks.  Its inverse square root after a warm-up is
# `linear_warmup*rsqrt_normalized_decay`, its exponential one `exp_decay`.


_Formula = Callable[["HParams", int, float], float]


@dataclasses.dataclass(frozen=True)
class Factor:
    """A factor of the learning rate.

    Attributes:
      formula: (hparams, train_steps, steps already done) -> value.
      reads: the hparams that it reads.
      until_end: whether it decays from the warm-up's end to `train_steps`, which must be more.
      reads_end: whether it depends on `train_steps`.
    """

    formula: _Formula
    reads: frozenset[str]
    until_end: bool = False
    reads_end: bool = False


FACTORS: dict[str, Factor] = {}
"""By the name that stands in `learning_rate_schedule`."""

LEGACY_DECAYS: dict[str, Factor] = {}
"""By learning_rate_decay_scheme.  tensor2tensor's `cyclelinear10x` raises a TypeError there; it is
left out."""


def factor(
    *reads: str,
    home: dict[str, Factor] = FACTORS,
    until_end: bool = False,
    reads_end: bool = False,
) -> Callable[[_Formula], _Formula]:
    """Declares a factor under its function's name, without a leading `_` or `_legacy_`.

    Args:
      reads: what follows `learning_rate_` in the names that it reads; "" is `learning_rate`.
      home: `FACTORS` or `LEGACY_DECAYS`.
      until_end: see `Factor`.
      reads_end: see `Factor`; what decays until the end does.
    """

    def declare(formula: _Formula) -> _Formula:
        name = formula.__name__.lstrip("_")
        if home is LEGACY_DECAYS:
            name = name.removeprefix("legacy_")
        names = frozenset(f"learning_rate_{read}".rstrip("_") for read in reads)
        home[name] = Factor(formula, names, until_end, until_end or reads_end)
        return formula

    return declare


def _past_warmup(hparams: HParams, step: float) -> float:
    return max(0.0, step - hparams.learning_rate_warmup_steps)


def _from_to(hparams: HParams, part: float) -> float:
    """Returns learning_rate_end_factor at 0, 1 at 1."""
    end = hparams.learning_rate_end_factor
    return end + (1.0 - end) * part


@factor("constant")
def _constant(hparams: HParams, train_steps: int, step: float) -> float:
    return hparams.learning_rate_constant


@factor("warmup_steps")
def _linear_warmup(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    return min(1.0, step / warmup) if warmup else 1.0


@factor("decay_steps", reads_end=True)
def _linear_decay(hparams: HParams, train_steps: int, step: float) -> float:
    return min(1.0, max(0.0, (train_steps - step) / hparams.learning_rate_decay_steps))


@factor("warmup_steps", "decay_steps")
def _cosdecay(hparams: HParams, train_steps: int, step: float) -> float:
    if step <= hparams.learning_rate_warmup_steps:
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * step / hparams.learning_rate_decay_steps))


@factor("warmup_steps", until_end=True)
def _single_cycle_cos_decay(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    position = _past_warmup(hparams, step) / (train_steps - warmup)
    return 0.5 + 0.5 * math.cos(math.pi * position)


@factor("warmup_steps", "decay_steps")
def _multi_cycle_cos_decay(hparams: HParams, train_steps: int, step: float) -> float:
    position = _past_warmup(hparams, step) / hparams.learning_rate_decay_steps
    return 0.5 + 0.5 * math.cos(math.pi * position)


@factor("warmup_steps")
def _rsqrt_decay(hparams: HParams, train_steps: int, step: float) -> float:
    return float(max(step, hparams.learning_rate_warmup_steps, 1.0) ** -0.5)


@factor("warmup_steps")
def _rsqrt_normalized_decay(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = max(hparams.learning_rate_warmup_steps, 1)
    return float((warmup / max(step, warmup)) ** 0.5)


@factor("warmup_steps", "decay_steps", "decay_rate", "decay_staircase")
def _exp_decay(hparams: HParams, train_steps: int, step: float) -> float:
    past = _past_warmup(hparams, step) / hparams.learning_rate_decay_steps
    if hparams.learning_rate_decay_staircase:
        past = math.floor(past)
    return float(hparams.learning_rate_decay_rate**past)


@factor()
def _rsqrt_hidden_size(hparams: HParams, train_steps: int, step: float) -> float:
    return float(hparams.hidden_size**-0.5)


@factor("warmup_steps", "decay_steps", "decay_rate")
def _step_decay(hparams: HParams, train_steps: int, step: float) -> float:
    """After the warm-up, times decay_rate every decay_steps."""
    drops = _past_warmup(hparams, step) // hparams.learning_rate_decay_steps
    return float(hparams.learning_rate_decay_rate**drops)


@factor("warmup_steps", "decay_steps", "end_factor")
def _cosine_annealing(hparams: HParams, train_steps: int, step: float) -> float:
    """Half a cosine from 1 to the end factor in decay_steps after the warm-up; then it stays.

    Loshchilov and Hutter 2017, arXiv:1608.03983.
    """
    position = min(1.0, _past_warmup(hparams, step) / hparams.learning_rate_decay_steps)
    return _from_to(hparams, 0.5 + 0.5 * math.cos(math.pi * position))


@factor("warmup_steps", "end_factor", "decay_power", until_end=True)
def _polynomial_decay(hparams: HParams, train_steps: int, step: float) -> float:
    """From 1 at the warm-up's end to the end factor at train_steps."""
    left = train_steps - hparams.learning_rate_warmup_steps
    part = max(0.0, 1.0 - _past_warmup(hparams, step) / left)
    return _from_to(hparams, part**hparams.learning_rate_decay_power)


@factor("cut_fraction", "ratio", reads_end=True)
def _slanted_triangular(hparams: HParams, train_steps: int, step: float) -> float:
    """Up from 1/ratio to 1 in the cut fraction of the run, down again in the rest.

    Howard and Ruder 2018, arXiv:1801.06146, section 3.2.
    """
    cut = max(1, math.floor(train_steps * hparams.learning_rate_cut_fraction))
    rise = step / cut if step < cut else (train_steps - step) / max(train_steps - cut, 1)
    ratio = hparams.learning_rate_ratio
    return (1.0 + max(rise, 0.0) * (ratio - 1.0)) / ratio


@factor("decay_steps", "end_factor")
def _cyclic(hparams: HParams, train_steps: int, step: float) -> float:
    """Up from the end factor to 1 in decay_steps, down in as many, and again.

    Smith 2017, arXiv:1506.01186, "triangular".
    """
    half = hparams.learning_rate_decay_steps
    return _from_to(hparams, 1.0 - abs(step % (2 * half) / half - 1.0))


@factor("", "decay_scheme")
def _legacy(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    scheme = hparams.learning_rate_decay_scheme
    if scheme != "noam" and step < warmup:
        value = 0.01 ** ((warmup - step) / warmup)
    else:
        value = LEGACY_DECAYS[scheme].formula(hparams, train_steps, step)
    # T2T's Adam correction, utils/learning_rate.py: it keeps the published schedules valid.
    correction = 0.002 if "adam" in hparams.optimizer else 1.0
    return float(value * correction * hparams.learning_rate)


@factor("warmup_steps", home=LEGACY_DECAYS)
def _legacy_noam(hparams: HParams, train_steps: int, step: float) -> float:
    warmup = hparams.learning_rate_warmup_steps
    rise = (step + 1) * warmup**-1.5 if warmup else math.inf
    return float(5000.0 * hparams.hidden_size**-0.5 * min(rise, (step + 1) ** -0.5))


@factor("warmup_steps", home=LEGACY_DECAYS)
def _legacy_none(hparams: HParams, train_steps: int, step: float) -> float:
    return 1.0


@factor("warmup_steps", "decay_steps", "decay_rate", "decay_staircase", home=LEGACY_DECAYS)
def _legacy_exp(hparams: HParams, train_steps: int, step: float) -> float:
    return _exp_decay(hparams, train_steps, step)


@factor("warmup_steps", "boundaries", "multiples", home=LEGACY_DECAYS)
def _legacy_piecewise(hparams: HParams, train_steps: int, step: float) -> float:
    values = [1.0, *hparams.learning_rate_multiples]
    return values[bisect_left(hparams.learning_rate_boundaries, step)]


@factor("warmup_steps", "cosine_cycle_steps", home=LEGACY_DECAYS)
def _legacy_cosine(hparams: HParams, train_steps: int, step: float) -> float:
    cycle = hparams.learning_rate_cosine_cycle_steps
    position = cycle - abs(cycle - step % (2 * cycle))
    return 0.5 * (1 + math.cos(math.pi * position / cycle))


@factor("warmup_steps", home=LEGACY_DECAYS)
def _legacy_sqrt(hparams: HParams, train_steps: int, step: float) -> float:
    return 500.0 * float(max(_past_warmup(hparams, step), 1.0) ** -0.5)


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
