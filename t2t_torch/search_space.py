"""Search spaces: ranges of hyperparameters and how to sample them.

A `Space` is built from the `hyperparameters` of a PEDL experiment (`of_mapping`) or from the
ranges of the hparams of a problem (`of_ranges`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from t2t_torch.errors import HParamsError, did_you_mean

if TYPE_CHECKING:
    from t2t_torch.hparam import HParams


LINEAR_SCALE = 1
"""All values are as likely."""
LOG_SCALE = 2
"""All logarithms are as likely: as many values between 0.001 and 0.01 as between 0.1 and 1."""
REVERSE_LOG_SCALE = 3
"""The logarithmic scale mirrored: values crowd at the upper end."""

Value: TypeAlias = bool | int | float | str | None

AnyValue: TypeAlias = Any
"""What YAML can say: a number, a string, a boolean, None, or a list of them."""


@dataclass(frozen=True)
class Kind:
    """Set of values of a hyperparameter.

    Attributes:
      type: name of the kind in PEDL.
    """

    type: ClassVar[str]

    @property
    def ends(self) -> tuple[AnyValue, ...]:
        """Returns the values to validate: both ends of a range, all choices."""
        raise NotImplementedError

    def at(self, place: float) -> AnyValue:
        """Returns the value at a relative position: 0 is the low end of a range, 1 the high one."""
        raise NotImplementedError

    def points(self) -> list[AnyValue]:
        """Returns the points of a grid; for a range, `count` points including its ends."""
        return list(self.ends)

    def draw(self, rng: random.Random) -> AnyValue:
        """Draws a value."""
        return self.at(rng.random())

    def allows(self, value: AnyValue) -> bool:
        """Returns True if a value, for example of the unchanged set, is in this set of values."""
        raise NotImplementedError

    def to_axis(self, value: AnyValue) -> AnyValue:
        """Returns the coordinate of a value on an axis: index of a choice, mirrored number."""
        return value

    def from_axis(self, value: AnyValue) -> AnyValue:
        """Returns the value of a coordinate; the inverse of `to_axis`."""
        return value


@dataclass(frozen=True)
class Constant(Kind):
    """One value, the same in every trial."""

    type = "const"

    value: AnyValue

    @property
    def ends(self) -> tuple[AnyValue, ...]:
        """The value."""
        return (self.value,)

    def at(self, place: float) -> AnyValue:
        """Returns a copy of the value."""
        del place
        return copy.deepcopy(self.value)

    def draw(self, rng: random.Random) -> AnyValue:
        """Returns a copy of the value; draws nothing."""
        return self.at(0)


@dataclass(frozen=True)
class Categorical(Kind):
    """Any of some values.

    Attributes:
      ordered: True if they are numbers in ascending order.
      log: True to show them on a logarithmic axis.
    """

    type = "categorical"

    values: tuple[AnyValue, ...]
    ordered: bool = False
    log: bool = False

    @property
    def ends(self) -> tuple[AnyValue, ...]:
        """All values."""
        return self.values

    def at(self, place: float) -> AnyValue:
        """Returns a value: 0 is the first one, 1 the last one."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]

    def draw(self, rng: random.Random) -> AnyValue:
        """Returns a copy of one of the values."""
        return copy.deepcopy(self.values[rng.randrange(len(self.values))])

    def allows(self, value: AnyValue) -> bool:
        """Returns True if it is one of the values; True is not 1."""
        return any(_same(one, value) for one in self.values)

    def to_axis(self, value: AnyValue) -> AnyValue:
        """Returns the index of a value."""
        return next(place for place, one in enumerate(self.values) if _same(one, value))

    def from_axis(self, value: AnyValue) -> AnyValue:
        """Returns the value of an index."""
        return self.values[value]


def _same(one: AnyValue, other: AnyValue) -> bool:
    return type(one) is type(other) and bool(one == other)


class Range(Kind):
    """Numbers between two ends.

    Attributes:
      count: number of grid points; None for no grid.
      log: True to sample uniformly on a logarithmic scale.
      reverse: True to mirror the scale: values are denser at the upper end.
    """

    count: int | None
    log: bool
    reverse: bool

    def points(self) -> list[AnyValue]:
        """Returns `count` points, the ends included."""
        assert self.count is not None, "Space.grid has seen that there is one"
        return self._points(self.count)

    def _points(self, count: int) -> list[AnyValue]:
        places = [0.5] if count == 1 else [place / (count - 1) for place in range(count)]
        return [self.at(place) for place in places]

    def allows(self, value: AnyValue) -> bool:
        """Returns True if it is a number between the ends."""
        low, high = self.ends
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and bool(low <= value <= high)


@dataclass(frozen=True)
class _Bounded(Range):
    """Numbers from `low` to `high`; `low` must be above 0 on a logarithmic scale."""

    low: float
    high: float
    count: int | None = None
    log: bool = False
    reverse: bool = False

    @property
    def ends(self) -> tuple[AnyValue, ...]:
        """The least and the greatest number."""
        return self.low, self.high

    def at(self, place: float) -> AnyValue:
        """Returns the number at a place."""
        low, high = self.low, self.high
        if place <= 0 or place >= 1:
            return low if place <= 0 else high
        if self.reverse:
            value = high + low - _spread(low, high, 1 - place, log=True)
        else:
            value = _spread(low, high, place, log=self.log)
        return min(max(value, low), high)

    def to_axis(self, value: AnyValue) -> AnyValue:
        """Returns the number; on a reversed scale its mirror."""
        return self.low + self.high - value if self.reverse else value

    from_axis = to_axis


@dataclass(frozen=True)
class Double(_Bounded):
    """Any number from `low` to `high`."""

    type = "double"


@dataclass(frozen=True)
class Integer(_Bounded):
    """Any whole number from `low` to `high`, both included."""

    type = "int"

    low: int
    high: int

    def at(self, place: float) -> AnyValue:
        """Returns the whole number at a place."""
        return round(super().at(place))

    def _points(self, count: int) -> list[AnyValue]:
        return super()._points(min(count, self.high - self.low + 1))

    def draw(self, rng: random.Random) -> AnyValue:
        """Draws a whole number."""
        if not self.log and not self.reverse:
            return rng.randint(self.low, self.high)
        # Each integer covers half a unit on both sides, including the ends.
        wide = Double(self.low - 0.5, self.high + 0.5, log=self.log, reverse=self.reverse)
        return min(max(round(wide.draw(rng)), self.low), self.high)


@dataclass(frozen=True)
class LogDouble(Range):
    """Any number from `base ** low` to `base ** high`, with a uniform exponent: PEDL's log."""

    type = "log"

    low: float
    high: float
    base: float = 10.0
    count: int | None = None
    log: ClassVar[bool] = True  # type: ignore[misc]
    reverse: ClassVar[bool] = False  # type: ignore[misc]

    @property
    def ends(self) -> tuple[AnyValue, ...]:
        """The least and the greatest number."""
        return tuple(sorted((self.base**self.low, self.base**self.high)))

    def at(self, place: float) -> AnyValue:
        """Returns the number at a place."""
        return float(self.base ** (self.low + place * (self.high - self.low)))


def _spread(low: float, high: float, place: float, *, log: bool) -> float:
    if not log:
        return low + place * (high - low)
    return math.exp(math.log(low) + place * (math.log(high) - math.log(low)))


class RangedHParams:
    """Ranges by hyperparameter name, in the order in which they were first set.

    Setting a range again replaces it, which allows deriving ranges from others; the kind of range
    must not change.

    A registered function fills them.  It sets only the hyperparameters to search; the others keep
    their values of the hparams set:

        @register_ranged_hparams
        def transformer_small_range(rhp: RangedHParams) -> None:
            rhp.set_float("learning_rate_constant", 0.1, 4.0, scale=rhp.LOG_SCALE)
            rhp.set_int("num_hidden_layers", 2, 6)

    Names and scales are tensor2tensor's, layers/common_hparams.py.
    """

    LINEAR_SCALE = LINEAR_SCALE
    LOG_SCALE = LOG_SCALE
    REVERSE_LOG_SCALE = REVERSE_LOG_SCALE

    def __init__(self) -> None:
        self._ranges: dict[str, Kind] = {}

    @property
    def ranges(self) -> Mapping[str, Kind]:
        """The ranges by name."""
        return MappingProxyType(self._ranges)

    def set_categorical(self, name: str, categories: Sequence[Value]) -> None:
        """Lets a hyperparameter be any of some values.

        Raises:
          HParamsError: there are no values, one is repeated, or the name has another kind of range.
        """
        self._set(name, Categorical(_listed(name, categories)))

    def set_discrete(
        self, name: str, feasible_points: Sequence[int | float], scale: int | None = None
    ) -> None:
        """Lets a hyperparameter be any of some numbers.

        Args:
          name: name of the hyperparameter.
          feasible_points: the numbers.
          scale: scale of the axis; LINEAR_SCALE if None.

        Raises:
          HParamsError: as `set_categorical`; or a number is not finite, or has no logarithm.
        """
        points = tuple(sorted(_number(name, value) for value in _listed(name, feasible_points)))
        log = _scale(name, scale, points[0])["log"]
        self._set(name, Categorical(points, ordered=True, log=log))

    def set_float(
        self, name: str, min_val: float, max_val: float, scale: int | None = None
    ) -> None:
        """Lets a hyperparameter be any number of a range.

        Args:
          name: name of the hyperparameter.
          min_val: inclusive lower bound.
          max_val: inclusive upper bound.  With LOG_SCALE, too, bounds are values, not exponents.
          scale: sampling scale; LINEAR_SCALE if None.

        Raises:
          HParamsError: a bound is not a finite number, the lower bound is above the upper one,
            there is no such scale, or it needs positive bounds; or the name has another kind of
            range.
        """
        low, high = float(_number(name, min_val)), float(_number(name, max_val))
        self._set(name, Double(low, high, **_scale(name, scale, low)))

    def set_int(self, name: str, min_val: int, max_val: int, scale: int | None = None) -> None:
        """Lets a hyperparameter be any whole number of a range, whose ends are included.

        Args:
          name: name of the hyperparameter.
          min_val: inclusive lower bound.
          max_val: inclusive upper bound.
          scale: sampling scale; LINEAR_SCALE if None.

        Raises:
          HParamsError: as `set_float`; or a bound is not an integer.
        """
        low, high = (int(_number(name, value, whole=True)) for value in (min_val, max_val))
        self._set(name, Integer(low, high, **_scale(name, scale, low)))

    def check(self, hparams: HParams, source: str) -> None:
        """Checks that these ranges fit a set: its class has every name and allows every value.

        Args:
          hparams: base set of the search.
          source: source of the ranges, as in "--hparams_range=basic_range1".

        Raises:
          HParamsError: there are no ranges, a name is unknown, or a value is not allowed; the
            message lists all errors, with the nearest names and the allowed values.
        """
        if not self._ranges:
            raise HParamsError(
                f"{source} sets no range. Give at least one: rhp.set_float(...), set_int, "
                "set_discrete or set_categorical."
            )
        if faults := faults_of(self._ranges, hparams):
            raise HParamsError("\n".join(f"{source}: {fault}" for fault in faults))

    def _set(self, name: str, made: Kind) -> None:
        if isinstance(made, _Bounded) and made.low > made.high:
            raise HParamsError(
                f"the range of {name} is from {made.low} to {made.high}: the least comes first."
            )
        if (before := self._ranges.get(name)) is not None and _setter(before) != _setter(made):
            raise HParamsError(
                f"the range of {name} is of {_setter(before)}, and {_setter(made)} "
                "sets it again. Keep its kind, or start from ranges without it."
            )
        self._ranges[name] = made


def faults_of(kinds: Mapping[str, Kind], hparams: HParams) -> list[str]:
    """Returns why the ends of ranges are no values of their hyperparameters, each once."""
    messages: dict[str, None] = {}
    for name, kind in kinds.items():
        for value in kind.ends:
            try:
                hparams.replace(**{name: value})
            except HParamsError as error:
                messages[str(error)] = None
    return list(messages)


def _setter(kind: Kind) -> str:
    if isinstance(kind, Categorical):
        return "set_discrete" if kind.ordered else "set_categorical"
    return "set_int" if isinstance(kind, Integer) else "set_float"


def _listed(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise HParamsError(f"the values of {name} should be a list, not {values!r}.")
    # True and 1 compare equal but are different values.
    twice = [
        v for at, v in enumerate(values) if (type(v), v) in [(type(w), w) for w in values[:at]]
    ]
    if twice:
        raise HParamsError(f"the values of {name} hold {twice[0]!r} twice. Say it once.")
    if not values:
        raise HParamsError(f"{name} has no value to choose from. Give at least one.")
    return tuple(values)


def _number(name: str, value: object, *, whole: bool = False) -> float:
    hint = " Or take set_float." if whole else " (set_categorical takes any values.)"
    return _checked_number(f"the range of {name} says", value, whole=whole, hint=hint)


def _scale(name: str, scale: int | None, least: float) -> dict[str, bool]:
    """Returns the fields of a range that define its scale."""
    if scale is None:
        scale = LINEAR_SCALE
    if scale not in (LINEAR_SCALE, LOG_SCALE, REVERSE_LOG_SCALE):
        raise HParamsError(
            f"the range of {name} has the scale {scale!r}; one of RangedHParams.LINEAR_SCALE, "
            "LOG_SCALE and REVERSE_LOG_SCALE was expected."
        )
    if scale != LINEAR_SCALE and least <= 0:
        raise HParamsError(
            f"the range of {name} begins at {least} and is logarithmic; it needs to begin above 0, "
            "or a linear scale."
        )
    return {"log": scale == LOG_SCALE, "reverse": scale == REVERSE_LOG_SCALE}


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
    """Search space: sets of values by dotted name, in their original order.

    Attributes:
      kinds: sets of values by name.
    """

    kinds: Mapping[str, Kind]

    @classmethod
    def of_mapping(
        cls, hyperparameters: Mapping[str, Any], prefix: str = "hyperparameters."
    ) -> Space:
        """Parses the `hyperparameters` of a PEDL experiment: nested; bare values are constants.

        Args:
          hyperparameters: the section of the experiment, or ranges in the same format.
          prefix: prefix of dotted names in errors, their source.

        Raises:
          HParamsError: an entry is invalid; all errors are reported with their dotted names.
        """
        kinds: dict[str, Kind] = {}
        faults: list[str] = []
        _read_level("", hyperparameters, prefix, kinds, faults)
        if faults:
            raise HParamsError("\n".join(faults))
        return cls(kinds)

    @classmethod
    def of_ranges(cls, ranges: RangedHParams) -> Space:
        """Returns the space of the registered ranges of a problem."""
        return cls(dict(ranges.ranges))

    @classmethod
    def from_list(cls, entries: Sequence[Mapping[str, Any]]) -> Space:
        """Parses the output of `to_list`.

        Raises:
          HParamsError: the format is different.
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
        """Returns the space as a JSON-compatible list."""
        return [
            {"name": name, "kind": type(kind).__name__, **dataclasses.asdict(kind)}
            for name, kind in self.kinds.items()
        ]

    @property
    def searched(self) -> dict[str, Kind]:
        """Sets of values by name, without constants."""
        return {name: kind for name, kind in self.kinds.items() if not isinstance(kind, Constant)}

    def at(self, place: float) -> dict[str, AnyValue]:
        """Returns the values at a relative position: 0 the low ends of ranges, 1 the high ones."""
        return {name: kind.at(place) for name, kind in self.kinds.items()}

    def sample(self, rng: random.Random) -> dict[str, AnyValue]:
        """Draws a value for each name, constants included, in their order."""
        return {name: kind.draw(rng) for name, kind in self.kinds.items()}

    def grid(self) -> Iterator[dict[str, AnyValue]]:
        """Yields every combination; the last name changes fastest.

        Raises:
          HParamsError: a range has no count; the message names all of them.
        """
        lacking = [
            name
            for name, kind in self.kinds.items()
            if isinstance(kind, Range) and kind.count is None
        ]
        if lacking:
            raise HParamsError(
                f"a grid needs a count for each range; {', '.join(lacking)} has none. Write "
                "count: 5, or take --searcher=random."
            )
        for values in itertools.product(*(kind.points() for kind in self.kinds.values())):
            yield dict(zip(self.kinds, copy.deepcopy(values), strict=True))

    def grid_size(self) -> int:
        """Returns the number of combinations of `grid`.

        Raises:
          HParamsError: as `grid`.
        """
        next(self.grid())
        return math.prod(len(kind.points()) for kind in self.kinds.values())

    @staticmethod
    def flat(nested: Mapping[str, Any]) -> dict[str, Any]:
        """Flattens nested values to dotted names; an empty mapping is a value."""
        made: dict[str, Any] = {}
        for name, value in nested.items():
            if isinstance(value, dict) and value:
                made |= {f"{name}.{inner}": one for inner, one in Space.flat(value).items()}
            else:
                made[str(name)] = value
        return made

    @staticmethod
    def nested(values: Mapping[str, AnyValue]) -> dict[str, Any]:
        """Returns values nested as in the file of the experiment."""
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
        hint = did_you_mean(str(kind), _KEYS, limit=1)
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
    low, high = (_read_number(where, key, fields[key], whole=whole) for key in ("minval", "maxval"))
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
    base = _read_number(where, "base", fields.get("base", 10.0))
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


def _checked_number(what: str, value: Any, *, whole: bool = False, hint: str = "") -> float:
    """Returns a number.

    Args:
      what: beginning of the error message: what has this value.
      value: the number.
      whole: True for a whole number.
      hint: end of the error message.

    Raises:
      HParamsError: it is no finite number, or no whole one.
    """
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or (whole and value != int(value)):
        expected = "a whole number" if whole else "a finite number"
        raise HParamsError(f"{what} {value!r}; {expected} was expected.{hint}")
    return int(value) if whole else value


def _read_number(where: str, key: str, value: Any, *, whole: bool = False) -> float:
    if isinstance(value, str):  # YAML 1.1 reads 1e-4 as a string.
        with contextlib.suppress(ValueError):
            value = float(value)
    number = _checked_number(f"{where}: {key} is", value, whole=whole)
    return number if whole else float(number)
