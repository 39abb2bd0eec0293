"""Settings of commands and runs: fields declared once, with type, description and bounds.

Flags, `--help`, the JSON schema of `--config` and the page of flags are made from the declarations:

    class BakingOptions(Settings):
        loaves: int = hp(2, "Loaves in the oven.", low=1, high=9)

Hyperparameters (`params.py`) are declared in the same way but are pydantic models, which are too
slow to import for `--help`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.remote.place import local

_NAMES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string",
    tuple: "a list of strings",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """The declaration of a field.

    Attributes:
      default: default value.
      meaning: description, with the unit.
      low: inclusive lower bound.
      high: inclusive upper bound.
      choices: allowed strings; empty: any.
      path: True if a string is a path, in which a flag expands `~`.
      repeated: True if the flag of a list is repeated for each item; False if items are separated
        by commas.
      annotation: type of the field.
    """

    default: Any
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    path: bool = False
    repeated: bool = False
    annotation: Any = None

    @property
    def kind(self) -> type:
        """The type of a value that is not None: int, float, bool, str or tuple."""
        for kind in (self.annotation, *typing.get_args(self.annotation)):
            if kind in (int, float, bool, str):
                return typing.cast("type", tuple if self.is_list else kind)
            if typing.get_origin(kind) is Literal:
                return str
        return typing.cast("type", tuple if self.is_list else self.annotation)

    @property
    def is_list(self) -> bool:
        """True if a value is a tuple of strings."""
        return typing.get_origin(self.annotation) is tuple

    def typed(self, annotation: Any) -> Setting:
        """Returns the declaration with the type of the field and the choices of that type."""
        choices = self.choices
        for kind in (annotation, *typing.get_args(annotation)):
            if typing.get_origin(kind) is Literal:
                choices = typing.get_args(kind)
        return dataclasses.replace(self, annotation=annotation, choices=choices)

    def arguments(self, name: str, value: Any) -> list[str]:
        """Returns the arguments of a command line for a value; none for None."""
        if value is None:
            return []
        if self.kind is bool:
            return [f"--{name}" if value else f"--{name}=false"]
        if self.is_list:
            items = value if self.repeated else [",".join(value)]
            return [f"--{name}={item}" for item in items]
        return [f"--{name}={value}"]

    def fault(self, value: Any) -> str:
        """Returns the error message for a value; "" if it is valid."""
        if value is None:
            optional = types.NoneType in typing.get_args(self.annotation)
            return "" if optional else f"should be {_NAMES.get(self.kind, self.kind.__name__)}"
        expected: Any = (int, float) if self.kind is float else self.kind
        if not isinstance(value, expected) or (isinstance(value, bool) and self.kind is not bool):
            return f"should be {_NAMES.get(self.kind, self.kind.__name__)}"
        if self.is_list and not all(isinstance(item, str) for item in value):
            return f"should be {_NAMES[tuple]}"
        if self.choices and value not in self.choices:
            return f"should be {' or '.join(map(repr, self.choices))}"
        if isinstance(value, float) and not math.isfinite(value):
            return "should be a finite number"
        if self.low is not None and value < self.low:
            return f"should be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"should be at most {self.high}"
        return ""


def hp(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    path: bool = False,
    repeated: bool = False,
) -> Any:
    """Declares a field of `Settings`; see `Setting`."""
    return Setting(default, meaning, low, high, tuple(choices), path, repeated)


def hp_path(meaning: str, default: str | None = None) -> Any:
    """Declares a field that is the path of a file or folder."""
    return hp(default, meaning, path=True)


class Settings:
    """Immutable set of declared fields, which knows the fields whose values were given.

    A flag drops a trailing `_` of a field's name, which avoids a Python keyword.

    Args:
      **values: the given values; other fields have their defaults.

    Attributes:
      given: names of the fields whose values were given, also if they equal the defaults.

    Raises:
      HParamsError: a field is unknown, of the wrong type, or out of bounds; all are reported.
    """

    given: frozenset[str]

    def __init__(self, **values: Any) -> None:
        self.__dict__["given"] = frozenset(values)
        self._set(values)

    def _set(self, values: Mapping[str, Any]) -> None:
        declared = self.declared()
        faults = [f"there is no setting {name!r}." for name in values if name not in declared]
        for name, setting in declared.items():
            value = values.get(name, setting.default)
            value = tuple(value) if isinstance(value, list) else value
            if setting.path and isinstance(value, str):
                value = local(value)
            elif setting.path and isinstance(value, tuple):
                value = tuple(map(local, value))
            if fault := setting.fault(value):
                faults.append(f"{name}={value}: {fault}. ({name}: {setting.meaning})")
            self.__dict__[name] = value
        if faults:
            raise HParamsError("\n".join(faults))

    @classmethod
    @functools.cache
    def declared(cls) -> Mapping[str, Setting]:
        """Returns the declaration of each field, by name: those of the class, then of its bases.

        A class that defines a property in the place of a field of a base has no such field.
        """
        hints = typing.get_type_hints(cls)
        members: dict[str, Any] = {}
        for base in cls.__mro__:
            for name, each in vars(base).items():
                members.setdefault(name, each)
        fields = {name: one for name, one in members.items() if isinstance(one, Setting)}
        return {name: one.typed(hints[name]) for name, one in fields.items()}

    def replace(self, **delta: Any) -> Self:
        """Returns a copy with some fields changed, which count as given only if they did before.

        Raises:
          HParamsError: as the class.
        """
        made = copy.copy(self)
        made._set({**dict(self), **delta})
        return made

    def with_defaults(self, **values: Any) -> Self:
        """Returns a copy in which fields that were not given have other values than the default.

        Raises:
          HParamsError: as the class.
        """
        return self.replace(**{n: value for n, value in values.items() if n not in self.given})

    def is_changed(self, name: str) -> bool:
        """Returns True if a field was given a value other than its default."""
        return name in self.given and getattr(self, name) != self.declared()[name].default

    def differences(self, other: Self) -> list[str]:
        """Returns the command-line arguments of the fields that differ from those of another."""
        return self.arguments([n for n, value in self if value != getattr(other, n)])

    def arguments(self, names: Iterable[str] | None = None) -> list[str]:
        """Returns the command-line arguments of fields; default: of those that were given."""
        declared = self.declared()
        return [
            word
            for name in (names if names is not None else filter(self.given.__contains__, declared))
            for word in declared[name].arguments(name.rstrip("_"), getattr(self, name))
        ]

    def __setattr__(self, name: str, value: Any) -> None:
        raise HParamsError(f"{type(self).__name__} is frozen. Use replace({name}=...).")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yields (name, value) of each field."""
        return ((name, value) for name, value in self.__dict__.items() if name != "given")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash((type(self), *(value for _, value in self)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self)
        return f"{type(self).__name__}({fields})"


class MissingSettingsError(UsageError):
    """Settings without which a workflow does nothing are missing."""


def require(settings: Settings, *names: str) -> None:
    """Checks that settings have values.

    Raises:
      MissingSettingsError: some have none; lists all of them with their meanings.
    """
    if missing := [name for name in names if not getattr(settings, name)]:
        lines = [f"  --{name}=...  {settings.declared()[name].meaning}" for name in missing]
        raise MissingSettingsError("\n".join(["missing flags:", *lines]))
