"""What a search tries: kinds of hyperparameters, and how values are drawn from them.

Two files of settings become a `Space`: the `hyperparameters` of a PEDL experiment (`of_mapping`)
and the ranges of a problem's hparams (`of_ranges`, `t2t_torch/search_space.py`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import difflib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from t2t_torch.errors import HParamsError

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


# Contract: ranges of hyperparameters, which a search tries values of.
#
# A registered function fills them; it writes only what is to be searched, all else stays as the
# hparams set says:
#
#     @register_ranged_hparams
#     def transformer_small_range(rhp: RangedHParams) -> None:
#         rhp.set_float("learning_rate_constant", 0.1, 4.0, scale=rhp.LOG_SCALE)
#         rhp.set_int("num_hidden_layers", 2, 6)
#
# Names and scales are tensor2tensor's, layers/common_hparams.py.


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


AnyValue: TypeAlias = Any
"""What YAML can say: a number, a string, a boolean, None, or a list of them."""


@dataclass(frozen=True)
class Constant:
    """One value, the same in every trial."""

    value: AnyValue


@dataclass(frozen=True)
class Integer:
    """Any whole number from `low` to `high`, both included.

    Attributes:
      log: whether logarithms are as likely as each other, not values.
      reverse: whether the scale is mirrored: values crowd at the upper end.
      count: of a grid's points.
    """

    low: int
    high: int
    count: int | None = None
    log: bool = False
    reverse: bool = False


@dataclass(frozen=True)
class Double:
    """Any number from `low` to `high`.

    Attributes:
      count: of a grid's points.
      log: whether logarithms are as likely as each other, not values; `low` is above 0.
      reverse: whether the scale is mirrored: values crowd at the upper end.
    """

    low: float
    high: float
    count: int | None = None
    log: bool = False
    reverse: bool = False


@dataclass(frozen=True)
class LogDouble:
    """Any number from `base ** low` to `base ** high`, its exponent drawn evenly: PEDL's log."""

    low: float
    high: float
    base: float = 10.0
    count: int | None = None


@dataclass(frozen=True)
class Categorical:
    """Any of some values.

    Attributes:
      ordered: whether they are numbers in their order.
      log: whether they are best seen on a logarithmic axis.
    """

    values: tuple[AnyValue, ...]
    ordered: bool = False
    log: bool = False


Kind: TypeAlias = Constant | Integer | Double | LogDouble | Categorical

_KEYS = {
    "const": ({"val"}, set[str]()),
    "int": ({"minval", "maxval"}, {"count"}),
    "double": ({"minval", "maxval"}, {"count"}),
    "log": ({"minval", "maxval", "base"}, {"count"}),
    "categorical": ({"vals"}, set[str]()),
}
"""PEDL's types -> (keys that must be there, keys that may be)."""


@dataclass(frozen=True)
class Space:
    """Dotted names and what they may be, in the order in which they were written.

    Attributes:
      kinds: by name.
    """

    kinds: Mapping[str, Kind]

    @classmethod
    def of_mapping(
        cls, hyperparameters: Mapping[str, Any], prefix: str = "hyperparameters."
    ) -> Space:
        """Reads the `hyperparameters` of a PEDL experiment: nested, bare values are constants.

        Args:
          hyperparameters: of the experiment, or ranges that are written likewise.
          prefix: what stands before a dotted name in an error, to say where it was read.

        Raises:
          HParamsError: something cannot be read; all is reported, each with its dotted name.
        """
        kinds: dict[str, Kind] = {}
        faults: list[str] = []
        _read_level("", hyperparameters, prefix, kinds, faults)
        if faults:
            raise HParamsError("\n".join(faults))
        return cls(kinds)

    @classmethod
    def of_ranges(cls, ranges: RangedHParams) -> Space:
        """Returns the space of a problem's ranges."""
        return cls({name: _kind_of(one) for name, one in ranges.ranges.items()})

    @classmethod
    def from_list(cls, entries: Sequence[Mapping[str, Any]]) -> Space:
        """Reads what `to_list` has made.

        Raises:
          HParamsError: it is something else.
        """
        kinds: dict[str, Kind] = {}
        try:
            for entry in entries:
                fields = {key: value for key, value in entry.items() if key not in ("name", "kind")}
                if "values" in fields:
                    fields["values"] = tuple(fields["values"])
                kinds[entry["name"]] = _KINDS[entry["kind"]](**fields)
        except (KeyError, TypeError) as error:
            raise HParamsError(
                f"this space was written by another version of t2t_torch: {error!r}."
            ) from error
        return cls(kinds)

    def to_list(self) -> list[dict[str, Any]]:
        """Returns the space as JSON can say it."""
        return [
            {"name": name, "kind": type(kind).__name__, **dataclasses.asdict(kind)}
            for name, kind in self.kinds.items()
        ]

    @property
    def searched(self) -> dict[str, Kind]:
        """What is not constant, by name."""
        return {name: kind for name, kind in self.kinds.items() if not isinstance(kind, Constant)}

    def sample(self, rng: random.Random) -> dict[str, AnyValue]:
        """Draws a value of each, constants included, in their order."""
        return {name: _drawn(kind, rng) for name, kind in self.kinds.items()}

    def grid(self) -> Iterator[dict[str, AnyValue]]:
        """Yields every combination; the last name changes fastest.

        Raises:
          HParamsError: a range has no count; all such are named.
        """
        lacking = [
            name
            for name, kind in self.kinds.items()
            if isinstance(kind, Integer | Double | LogDouble) and kind.count is None
        ]
        if lacking:
            raise HParamsError(
                f"a grid needs a count for each range; {', '.join(lacking)} has none. Write "
                "count: 5, or take --searcher=random."
            )
        yield from _product([(name, points(kind)) for name, kind in self.kinds.items()])

    def grid_size(self) -> int:
        """Returns how many combinations `grid` has.

        Raises:
          HParamsError: as `grid`.
        """
        next(self.grid())
        return math.prod(len(points(kind)) for kind in self.kinds.values())

    @staticmethod
    def nested(values: Mapping[str, AnyValue]) -> dict[str, Any]:
        """Returns values as the experiment's file nests them."""
        made: dict[str, Any] = {}
        for name, value in values.items():
            *outer, last = name.split(".")
            level = made
            for part in outer:
                level = level.setdefault(part, {})
            level[last] = copy.deepcopy(value)
        return made


_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Constant, Integer, Double, LogDouble, Categorical)
}


def points(kind: Kind) -> list[AnyValue]:
    """Returns the points of a grid: of a range, `count` of them, its ends included."""
    if isinstance(kind, Constant):
        return [kind.value]
    if isinstance(kind, Categorical):
        return list(kind.values)
    count = kind.count
    if count is None:
        raise HParamsError("a grid needs a count for each range.")
    if isinstance(kind, Integer):
        count = min(count, kind.high - kind.low + 1)
    places = [0.5] if count == 1 else [place / (count - 1) for place in range(count)]
    return [at(kind, place) for place in places]


def at(kind: Integer | Double | LogDouble, place: float) -> int | float:
    """Returns the value at a place of a range: 0 is its low end, 1 its high one."""
    if isinstance(kind, LogDouble):
        return float(kind.base ** (kind.low + place * (kind.high - kind.low)))
    if place <= 0:
        return kind.low
    if place >= 1:
        return kind.high
    if kind.reverse:
        mirrored = _spread(kind.low, kind.high, 1 - place, log=True)
        value = kind.high + kind.low - mirrored
    else:
        value = _spread(kind.low, kind.high, place, log=kind.log)
    value = min(max(value, kind.low), kind.high)
    return round(value) if isinstance(kind, Integer) else value


def _spread(low: float, high: float, place: float, *, log: bool) -> float:
    if not log:
        return low + place * (high - low)
    return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))


def _drawn(kind: Kind, rng: random.Random) -> AnyValue:
    if isinstance(kind, Constant):
        return copy.deepcopy(kind.value)
    if isinstance(kind, Categorical):
        return copy.deepcopy(kind.values[rng.randrange(len(kind.values))])
    if isinstance(kind, Integer):
        if not kind.log and not kind.reverse:
            return rng.randint(kind.low, kind.high)
        # Each whole number stands for half a unit to both sides, the ends as well.
        wide = Double(kind.low - 0.5, kind.high + 0.5, log=kind.log, reverse=kind.reverse)
        return min(max(round(at(wide, rng.random())), kind.low), kind.high)
    return at(kind, rng.random())


def _product(axes: Sequence[tuple[str, list[AnyValue]]]) -> Iterator[dict[str, AnyValue]]:
    if not axes:
        yield {}
        return
    (name, values), *others = axes
    for value in values:
        for rest in _product(others):
            yield {name: copy.deepcopy(value), **rest}


def _kind_of(one: Range) -> Kind:
    if isinstance(one, CategoricalRange):
        return Categorical(one.values)
    if isinstance(one, DiscreteRange):
        return Categorical(one.values, ordered=True, log=one.scale == LOG_SCALE)
    log, reverse = one.scale == LOG_SCALE, one.scale not in (LOG_SCALE, LINEAR_SCALE)
    if isinstance(one, IntRange):
        return Integer(one.low, one.high, log=log, reverse=reverse)
    assert isinstance(one, FloatRange)
    return Double(one.low, one.high, log=log, reverse=reverse)


def _read_level(
    outer: str, level: Mapping[str, Any], prefix: str, kinds: dict[str, Kind], faults: list[str]
) -> None:
    for name, value in level.items():
        path = f"{outer}{name}"
        if not isinstance(name, str) or not name or "." in name:
            faults.append(
                f"{prefix}{path}: a name should be a word without dots; {name!r} is none."
            )
        elif isinstance(value, Mapping) and isinstance(value.get("type"), str):
            try:
                kinds[path] = _read_kind(f"{prefix}{path}", value)
            except HParamsError as error:
                faults.append(str(error))
        elif isinstance(value, Mapping):
            _read_level(f"{path}.", value, prefix, kinds, faults)
        else:
            kinds[path] = Constant(value)


def _read_kind(where: str, fields: Mapping[str, Any]) -> Kind:
    kind = fields["type"]
    if kind not in _KEYS:
        near = difflib.get_close_matches(str(kind), _KEYS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise HParamsError(f"{where}: type is {kind!r}; one of {', '.join(_KEYS)} is known.{hint}")
    needed, more = _KEYS[kind]
    given = set(fields) - {"type"}
    if unknown := sorted(map(str, given - needed - more)):
        known = ", ".join(sorted(needed | more))
        raise HParamsError(f"{where}: {', '.join(unknown)} is no key of {kind}; it has {known}.")
    if missing := sorted(needed - given - ({"base"} if kind == "log" else set())):
        raise HParamsError(f"{where}: {kind} needs {', '.join(missing)}.")
    if kind == "const":
        return Constant(fields["val"])
    if kind == "categorical":
        values = fields["vals"]
        if not isinstance(values, list) or not values:
            raise HParamsError(f"{where}: vals is {values!r}; a list of one or more was expected.")
        return Categorical(tuple(values))
    return _read_range(where, kind, fields)


def _read_range(where: str, kind: str, fields: Mapping[str, Any]) -> Kind:
    whole = kind == "int"
    low, high = (
        _checked_number(where, key, fields[key], whole=whole) for key in ("minval", "maxval")
    )
    if low > high:
        raise HParamsError(
            f"{where}: minval is {low} and maxval {high}; the least comes first. Exchange them."
        )
    count = fields.get("count")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise HParamsError(f"{where}: count is {count!r}; a whole number from 1 was expected.")
    if kind == "int":
        return Integer(int(low), int(high), count)
    if kind == "double":
        return Double(float(low), float(high), count)
    base = _checked_number(where, "base", fields.get("base", 10.0), whole=False)
    if base <= 0 or base == 1:
        raise HParamsError(f"{where}: base is {base}; a positive number but 1 was expected.")
    try:
        ends = base**low, base**high
    except OverflowError:
        ends = (math.inf, math.inf)
    if not all(map(math.isfinite, ends)):
        raise HParamsError(
            f"{where}: of a log, minval and maxval are exponents: {base} to the power of {low} and "
            f"of {high} are not both finite. Write minval: -5 for 0.00001."
        )
    return LogDouble(float(low), float(high), float(base), count)


def _checked_number(where: str, key: str, value: Any, *, whole: bool) -> float:
    if isinstance(value, str):  # YAML 1.1 reads 1e-4 as a string.
        with contextlib.suppress(ValueError):
            value = float(value)
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or (whole and value != int(value)):
        expected = "a whole number" if whole else "a finite number"
        raise HParamsError(f"{where}: {key} is {value!r}; {expected} was expected.")
    return int(value) if whole else float(value)
