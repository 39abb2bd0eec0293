"""Contract: ranges of hyperparameters, which a search tries values of.

A registered function fills them; it writes only what is to be searched, all else stays as the
hparams set says:

    @register_ranged_hparams
    def transformer_small_range(rhp: RangedHParams) -> None:
        rhp.set_float("learning_rate_constant", 0.1, 4.0, scale=rhp.LOG_SCALE)
        rhp.set_int("num_hidden_layers", 2, 6)

Names and scales are tensor2tensor's, layers/common_hparams.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams

LINEAR_SCALE = 1
"""All values are as likely."""
LOG_SCALE = 2
"""All logarithms are as likely: as many values between 0.001 and 0.01 as between 0.1 and 1."""
REVERSE_LOG_SCALE = 3
"""The logarithmic scale mirrored: values crowd at the upper end."""

Value: TypeAlias = bool | int | float | str | None

_SCALES = (LINEAR_SCALE, LOG_SCALE, REVERSE_LOG_SCALE)


@dataclass(frozen=True)
class CategoricalRange:
    """Values without an order."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class DiscreteRange:
    """Numbers in their order; `scale` is that of an axis which shows them."""

    values: tuple[int | float, ...]
    scale: int


@dataclass(frozen=True)
class FloatRange:
    """Any number from `low` to `high`."""

    low: float
    high: float
    scale: int


@dataclass(frozen=True)
class IntRange:
    """Any whole number from `low` to `high`, both included."""

    low: int
    high: int
    scale: int


Range: TypeAlias = CategoricalRange | DiscreteRange | FloatRange | IntRange

_SETTERS: Mapping[type[Range], str] = {
    CategoricalRange: "set_categorical",
    DiscreteRange: "set_discrete",
    FloatRange: "set_float",
    IntRange: "set_int",
}


class RangedHParams:
    """Ranges by the names of hyperparameters, in the order in which they were first set.

    A range that is set again replaces the one before, so that ranges can be made from each other;
    its kind must stay.
    """

    LINEAR_SCALE = LINEAR_SCALE
    LOG_SCALE = LOG_SCALE
    REVERSE_LOG_SCALE = REVERSE_LOG_SCALE

    def __init__(self) -> None:
        self._ranges: dict[str, Range] = {}

    @property
    def ranges(self) -> Mapping[str, Range]:
        """The ranges by name."""
        return MappingProxyType(self._ranges)

    def set_categorical(self, name: str, categories: Sequence[Value]) -> None:
        """Lets a hyperparameter be any of some values.

        Raises:
          HParamsError: there are none, one is there twice, or the name has a range of another kind.
        """
        self._set(name, CategoricalRange(_listed(name, categories)))

    def set_discrete(
        self, name: str, feasible_points: Sequence[int | float], scale: int | None = None
    ) -> None:
        """Lets a hyperparameter be any of some numbers.

        Args:
          name: of the hyperparameter.
          feasible_points: the numbers.
          scale: of an axis that shows them; LINEAR_SCALE if None.

        Raises:
          HParamsError: as `set_categorical`; or one is not a finite number, or no logarithm exists.
        """
        values = _listed(name, feasible_points)
        points = tuple(_number(name, value) for value in values)
        self._set(name, DiscreteRange(tuple(sorted(points)), _scale(name, scale, min(points))))

    def set_float(
        self, name: str, min_val: float, max_val: float, scale: int | None = None
    ) -> None:
        """Lets a hyperparameter be any number of a range.

        Args:
          name: of the hyperparameter.
          min_val: the least.
          max_val: the greatest; also with LOG_SCALE, these are values and not exponents.
          scale: how values are spread; LINEAR_SCALE if None.

        Raises:
          HParamsError: a bound is not a finite number, the least is above the greatest, there is
            no such scale, or it needs positive bounds; or the name has a range of another kind.
        """
        low, high = float(_number(name, min_val)), float(_number(name, max_val))
        self._set(name, FloatRange(low, high, _scale(name, scale, low)))

    def set_int(self, name: str, min_val: int, max_val: int, scale: int | None = None) -> None:
        """Lets a hyperparameter be any whole number of a range, whose ends are included.

        Args:
          name: of the hyperparameter.
          min_val: the least.
          max_val: the greatest.
          scale: how values are spread; LINEAR_SCALE if None.

        Raises:
          HParamsError: as `set_float`; or a bound is not whole.
        """
        low, high = _whole(name, min_val), _whole(name, max_val)
        self._set(name, IntRange(low, high, _scale(name, scale, low)))

    def check(self, hparams: HParams, source: str) -> None:
        """Checks that these ranges fit a set: its class has every name and allows every value.

        Args:
          hparams: the set that is searched around.
          source: where the ranges are from, as in "--hparams_range=basic_range1".

        Raises:
          HParamsError: for each name that is unknown the nearest one, for each value that its field
            does not allow what it should be; or there are no ranges.
        """
        if not self._ranges:
            raise HParamsError(
                f"{source} sets no range. Give at least one: rhp.set_float(...), set_int, "
                "set_discrete or set_categorical."
            )
        faults = [told for name in self._ranges for told in self._faults(hparams, name)]
        if faults:
            raise HParamsError("\n".join(f"{source}: {told}" for told in faults))

    def _set(self, name: str, made: Range) -> None:
        if isinstance(made, FloatRange | IntRange) and made.low > made.high:
            raise HParamsError(
                f"the range of {name} is from {made.low} to {made.high}: the least comes first."
            )
        before = self._ranges.get(name)
        if before is not None and type(before) is not type(made):
            raise HParamsError(
                f"the range of {name} is of {_SETTERS[type(before)]}, and {_SETTERS[type(made)]} "
                "sets it again. Keep its kind, or start from ranges without it."
            )
        self._ranges[name] = made

    def _faults(self, hparams: HParams, name: str) -> list[str]:
        """Returns what a set's class says of a name's values, each complaint once."""
        one = self._ranges[name]
        values: tuple[Value, ...]
        values = one.values if not isinstance(one, FloatRange | IntRange) else (one.low, one.high)
        told: dict[str, None] = {}
        for value in values:
            try:
                hparams.replace(**{name: value})
            except HParamsError as error:
                told[str(error)] = None
        return list(told)


def _listed(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise HParamsError(f"the values of {name} should be a list, not {values!r}.")
    # True and 1 are equal, and are not the same value.
    twice = [
        v for at, v in enumerate(values) if (type(v), v) in [(type(w), w) for w in values[:at]]
    ]
    if twice:
        raise HParamsError(f"the values of {name} hold {twice[0]!r} twice. Say it once.")
    if not values:
        raise HParamsError(f"{name} has no value to choose from. Give at least one.")
    return tuple(values)


def _number(name: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise HParamsError(
            f"the range of {name} says {value!r}; a finite number was expected. "
            "(set_categorical takes any values.)"
        )
    return value


def _whole(name: str, value: object) -> int:
    number = _number(name, value)
    if number != int(number):
        raise HParamsError(
            f"the range of {name} says {value!r}; a whole number was expected. Or take set_float."
        )
    return int(number)


def _scale(name: str, scale: int | None, least: float) -> int:
    if scale is None:
        return LINEAR_SCALE
    if scale not in _SCALES:
        raise HParamsError(
            f"the range of {name} has the scale {scale!r}; one of RangedHParams.LINEAR_SCALE, "
            "LOG_SCALE and REVERSE_LOG_SCALE was expected."
        )
    if scale != LINEAR_SCALE and least <= 0:
        raise HParamsError(
            f"the range of {name} begins at {least} and is logarithmic; it needs to begin above 0, "
            "or a linear scale."
        )
    return scale
