"""Where values stand on the axis of a plot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from t2t_torch.report.axis import axis_range, powers, short, ticks
from t2t_torch.tune.search_record import SpaceAxis
from t2t_torch.tune.space import Value

_WIDE = 20.0  # a metric whose values are this much apart is seen best by powers of ten
_FAR = 12.0  # as for steps
_MOST_LABELS = 14  # of the values of a category
_NEAR = 1e-9


@dataclass(frozen=True)
class Scale:
    """An axis from 0 to 1.

    Attributes:
      low: of a number, or its logarithm.
      high: of a number, or its logarithm.
      log: whether by powers of ten.
      whole: whether all values are whole numbers.
      names: of a category's values in their order; empty for numbers.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    names: tuple[str, ...] = ()

    def place(self, value: Value) -> float | None:
        """Returns where a value stands; None if nowhere."""
        if self.names:
            told = written(value)
            if told not in self.names:
                return None
            return self.names.index(told) / (len(self.names) - 1) if len(self.names) > 1 else 0.5
        if value is None or isinstance(value, str) or not math.isfinite(value):
            return None
        if self.log and value <= 0:
            return None
        number = math.log10(value) if self.log else float(value)
        return min(max((number - self.low) / (self.high - self.low), 0.0), 1.0)

    def marks(self) -> list[tuple[float, str]]:
        """Returns the places of the axis that have a label, and the labels."""
        if self.names:
            every = math.ceil(len(self.names) / _MOST_LABELS)
            return [(self.place(name) or 0.0, name) for name in self.names[::every]]
        if self.log:
            room = _NEAR * (self.high - self.low)
            numbers = powers(self.low - room, self.high + room)
        else:
            numbers = ticks(self.low, self.high, whole=self.whole)
        return [
            (place, short(number))
            for number in numbers
            if (place := self.place(number)) is not None
        ]


def scale_of(axis: SpaceAxis, values: Iterable[Value]) -> Scale:
    """Returns the scale of a hyperparameter: its range, and values beside it if there are any.

    Args:
      axis: of the space.
      values: that were tried; the unchanged set's may lie outside the range.
    """
    tried = list(values)
    if axis.low is None or axis.high is None:
        names = tuple(dict.fromkeys(map(written, (*axis.values, *tried))))
        if all(type(value) in (int, float) for value in (*axis.values, *tried)):
            names = tuple(sorted(names, key=float))
        return Scale(0.0, 1.0, names=names)
    numbers = [float(v) for v in tried if isinstance(v, int | float) and math.isfinite(v)]
    low, high = min([axis.low, *numbers]), max([axis.high, *numbers])
    return _scale(low, high, log=axis.log and low > 0, whole=axis.kind == "int")


def scale_of_metric(values: Sequence[float]) -> Scale:
    """Returns the scale of a metric: all its finite values and a little room."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _WIDE:
        low, high = axis_range([math.log10(value) for value in values])
        # The room of a logarithm does not end at 0.
        return Scale(min(low, math.log10(min(values))), high, log=True)
    return _scale(*axis_range(values), log=False, whole=False)


def scale_of_steps(steps: Sequence[int]) -> Scale:
    """Returns the scale of optimizer steps, by powers of ten if rungs make them that far apart."""
    low, high = min(steps), max(steps)
    log = low > 0 and high / low > _FAR
    return _scale(low if log else 0, high, log=log, whole=True)


def written(value: Value) -> str:
    """Writes a value as `--hparams` reads it, a float in few digits."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _scale(low: float, high: float, *, log: bool, whole: bool) -> Scale:
    if log:
        low, high = math.log10(low), math.log10(high)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return Scale(low, high, log=log, whole=whole)
