"""Learning-rate schedules: factors that `learning_rate_schedule` joins by `*`.

Those of tensor2tensor 1.15.7 (utils/learning_rate.py) by its names, and those of PyText
(optimizer/scheduler.py) that it lacks.  PyText's inverse square root after a warm-up is
`linear_warmup*rsqrt_normalized_decay`, its exponential decay is `exp_decay`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from t2t_torch.errors import HParamsError
from t2t_torch.optim.settings import check_end, reads, steps_after_warmup
from t2t_torch.registry import register_schedule

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams
    from t2t_torch.optim.settings import Schedule


@register_schedule
@reads("learning_rate_constant")
def constant(hparams: HParams, train_steps: int) -> Schedule:
    """`learning_rate_constant` at every step."""
    return lambda step: hparams.learning_rate_constant


@register_schedule
@reads("learning_rate_warmup_steps")
def linear_warmup(hparams: HParams, train_steps: int) -> Schedule:
    """From 0 to 1 in the warm-up steps."""
    warmup = hparams.learning_rate_warmup_steps
    return lambda step: min(1.0, step / warmup) if warmup else 1.0


@register_schedule
@reads("learning_rate_decay_steps", "train_steps")
def linear_decay(hparams: HParams, train_steps: int) -> Schedule:
    """From 1 to 0 in the last `learning_rate_decay_steps` of the run."""
    decay_steps = hparams.learning_rate_decay_steps
    return lambda step: min(1.0, max(0.0, (train_steps - step) / decay_steps))


@register_schedule
@reads("learning_rate_warmup_steps", "learning_rate_decay_steps")
def cosdecay(hparams: HParams, train_steps: int) -> Schedule:
    """A cosine of period 2 `learning_rate_decay_steps` after the warm-up; it rises again."""
    warmup, decay_steps = hparams.learning_rate_warmup_steps, hparams.learning_rate_decay_steps

    def factor(step: float) -> float:
        return 1.0 if step <= warmup else 0.5 * (1 + math.cos(math.pi * step / decay_steps))

    return factor


@register_schedule
@reads("learning_rate_warmup_steps", "train_steps")
def single_cycle_cos_decay(hparams: HParams, train_steps: int) -> Schedule:
    """Half a cosine from 1 at the end of the warm-up to 0 at the end of the run.

    Raises:
      HParamsError: the run ends before the warm-up does.
    """
    check_end("single_cycle_cos_decay", hparams, train_steps)
    steps = train_steps - hparams.learning_rate_warmup_steps
    past = steps_after_warmup(hparams)
    return lambda step: 0.5 + 0.5 * math.cos(math.pi * (past(step) / steps))


@register_schedule
@reads("learning_rate_warmup_steps", "learning_rate_decay_steps")
def multi_cycle_cos_decay(hparams: HParams, train_steps: int) -> Schedule:
    """A cosine of period 2 `learning_rate_decay_steps`, from the end of the warm-up."""
    past, decay_steps = steps_after_warmup(hparams), hparams.learning_rate_decay_steps
    return lambda step: 0.5 + 0.5 * math.cos(math.pi * (past(step) / decay_steps))


@register_schedule
@reads("learning_rate_warmup_steps")
def rsqrt_decay(hparams: HParams, train_steps: int) -> Schedule:
    """The inverse square root of the step, constant during the warm-up."""
    warmup = hparams.learning_rate_warmup_steps
    return lambda step: float(max(step, warmup, 1.0) ** -0.5)


@register_schedule
@reads("learning_rate_warmup_steps")
def rsqrt_normalized_decay(hparams: HParams, train_steps: int) -> Schedule:
    """`rsqrt_decay` divided by its largest value: 1 until the end of the warm-up."""
    warmup = max(hparams.learning_rate_warmup_steps, 1)
    return lambda step: float((warmup / max(step, warmup)) ** 0.5)


@register_schedule
@reads(
    "learning_rate_warmup_steps",
    "learning_rate_decay_steps",
    "learning_rate_decay_rate",
    "learning_rate_decay_staircase",
)
def exp_decay(hparams: HParams, train_steps: int) -> Schedule:
    """Times `learning_rate_decay_rate` every `learning_rate_decay_steps` after the warm-up."""
    after_warmup, decay_steps = steps_after_warmup(hparams), hparams.learning_rate_decay_steps
    decay_rate, staircase = hparams.learning_rate_decay_rate, hparams.learning_rate_decay_staircase

    def factor(step: float) -> float:
        past = after_warmup(step) / decay_steps
        return float(decay_rate ** (math.floor(past) if staircase else past))

    return factor


@register_schedule
@reads()
def rsqrt_hidden_size(hparams: HParams, train_steps: int) -> Schedule:
    """The inverse square root of `hidden_size`."""
    return lambda step: float(hparams.hidden_size**-0.5)


_SCHEME = "learning_rate_decay_scheme"


@register_schedule
@reads(
    "learning_rate",
    "learning_rate_decay_scheme",
    "learning_rate_warmup_steps",
    learning_rate_decay_steps=(_SCHEME, "exp"),
    learning_rate_decay_rate=(_SCHEME, "exp"),
    learning_rate_decay_staircase=(_SCHEME, "exp"),
    learning_rate_boundaries=(_SCHEME, "piecewise"),
    learning_rate_multiples=(_SCHEME, "piecewise"),
    learning_rate_cosine_cycle_steps=(_SCHEME, "cosine"),
)
def legacy(hparams: HParams, train_steps: int) -> Schedule:
    """`learning_rate` times the decay that `learning_rate_decay_scheme` names.

    tensor2tensor's scheme `cyclelinear10x` raises a TypeError there; it is left out.

    Raises:
      HParamsError: there is no such scheme, or it lacks a setting.
    """
    scheme = hparams.learning_rate_decay_scheme
    if scheme not in _SCHEMES:
        raise HParamsError(
            f"there is no learning_rate_decay_scheme '{scheme}'. "
            f"Schemes of the schedule 'legacy': {', '.join(_SCHEMES)}."
        )
    decay, warmup = _SCHEMES[scheme](hparams, train_steps), hparams.learning_rate_warmup_steps
    # T2T's Adam correction, utils/learning_rate.py: it keeps the published schedules valid.
    correction = 0.002 if "adam" in hparams.optimizer else 1.0

    def factor(step: float) -> float:
        rises = scheme != "noam" and step < warmup
        value = 0.01 ** ((warmup - step) / warmup) if rises else decay(step)
        return float(value * correction * hparams.learning_rate)

    return factor


def _noam(hparams: HParams, train_steps: int) -> Schedule:
    warmup, width = hparams.learning_rate_warmup_steps, hparams.hidden_size

    def factor(step: float) -> float:
        rise = (step + 1) * warmup**-1.5 if warmup else math.inf
        return float(5000.0 * width**-0.5 * min(rise, (step + 1) ** -0.5))

    return factor


def _none(hparams: HParams, train_steps: int) -> Schedule:
    return lambda step: 1.0


def _piecewise(hparams: HParams, train_steps: int) -> Schedule:
    boundaries = hparams.learning_rate_boundaries
    values = [1.0, *hparams.learning_rate_multiples]
    if not boundaries or len(boundaries) + 1 != len(values):
        raise HParamsError(
            "learning_rate_decay_scheme='piecewise' needs as many learning_rate_multiples as "
            f"learning_rate_boundaries, one at least; there are {len(values) - 1} and "
            f"{len(boundaries)}."
        )
    return lambda step: values[bisect_left(boundaries, step)]


def _cosine(hparams: HParams, train_steps: int) -> Schedule:
    cycle = hparams.learning_rate_cosine_cycle_steps

    def factor(step: float) -> float:
        position = cycle - abs(cycle - step % (2 * cycle))
        return 0.5 * (1 + math.cos(math.pi * position / cycle))

    return factor


def _sqrt(hparams: HParams, train_steps: int) -> Schedule:
    past = steps_after_warmup(hparams)
    return lambda step: 500.0 * float(max(past(step), 1.0) ** -0.5)


_SCHEMES = {
    "noam": _noam,
    "none": _none,
    "exp": exp_decay,
    "piecewise": _piecewise,
    "cosine": _cosine,
    "sqrt": _sqrt,
}


def _from_to(hparams: HParams, part: float) -> float:
    """Returns learning_rate_end_factor at 0, 1 at 1."""
    end = hparams.learning_rate_end_factor
    return end + (1.0 - end) * part


@register_schedule
@reads("learning_rate_warmup_steps", "learning_rate_decay_steps", "learning_rate_decay_rate")
def step_decay(hparams: HParams, train_steps: int) -> Schedule:
    """After the warm-up, times `learning_rate_decay_rate` every `learning_rate_decay_steps`.

    Raises:
      HParamsError: the decay rate is 1.
    """
    decay_rate, decay_steps = hparams.learning_rate_decay_rate, hparams.learning_rate_decay_steps
    if decay_rate == 1.0:
        raise HParamsError(
            "step_decay multiplies the rate by learning_rate_decay_rate, which is 1: it never "
            "decays. Set it, for example to 0.5."
        )
    past = steps_after_warmup(hparams)
    return lambda step: float(decay_rate ** (past(step) // decay_steps))


@register_schedule
@reads("learning_rate_warmup_steps", "learning_rate_decay_steps", "learning_rate_end_factor")
def cosine_annealing(hparams: HParams, train_steps: int) -> Schedule:
    """Half a cosine from 1 to the end factor in decay_steps after the warm-up; then constant.

    Loshchilov and Hutter 2017, arXiv:1608.03983.
    """
    past, decay_steps = steps_after_warmup(hparams), hparams.learning_rate_decay_steps

    def factor(step: float) -> float:
        position = min(1.0, past(step) / decay_steps)
        return _from_to(hparams, 0.5 + 0.5 * math.cos(math.pi * position))

    return factor


@register_schedule
@reads(
    "learning_rate_warmup_steps",
    "learning_rate_end_factor",
    "learning_rate_decay_power",
    "train_steps",
)
def polynomial_decay(hparams: HParams, train_steps: int) -> Schedule:
    """From 1 at the end of the warm-up to the end factor at the end of the run.

    Raises:
      HParamsError: the run ends before the warm-up does.
    """
    check_end("polynomial_decay", hparams, train_steps)
    past, left = steps_after_warmup(hparams), train_steps - hparams.learning_rate_warmup_steps

    def factor(step: float) -> float:
        part = max(0.0, 1.0 - past(step) / left)
        return _from_to(hparams, part**hparams.learning_rate_decay_power)

    return factor


@register_schedule
@reads("learning_rate_cut_fraction", "learning_rate_ratio", "train_steps")
def slanted_triangular(hparams: HParams, train_steps: int) -> Schedule:
    """Up from 1/ratio to 1 in the cut fraction of the run, down again in the rest.

    Howard and Ruder 2018, arXiv:1801.06146, section 3.2.
    """
    cut = max(1, math.floor(train_steps * hparams.learning_rate_cut_fraction))
    ratio = hparams.learning_rate_ratio

    def factor(step: float) -> float:
        rise = step / cut if step < cut else (train_steps - step) / max(train_steps - cut, 1)
        return (1.0 + max(rise, 0.0) * (ratio - 1.0)) / ratio

    return factor


@register_schedule
@reads("learning_rate_decay_steps", "learning_rate_end_factor")
def cyclic(hparams: HParams, train_steps: int) -> Schedule:
    """Up from the end factor to 1 in decay_steps, down in as many, and again.

    Smith 2017, arXiv:1506.01186, "triangular".
    """
    half = hparams.learning_rate_decay_steps
    return lambda step: _from_to(hparams, 1.0 - abs(step % (2 * half) / half - 1.0))
