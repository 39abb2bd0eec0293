"""Settings of commands and runs: fields declared once, with type, description and bounds.

Flags, `--help`, the JSON schema of `--config` and the page of flags are made from the declarations:

    class BakingOptions(Settings):
        loaves: int = hp(2, "Loaves in the oven.", low=1, high=9)

Hyperparameters (`params.py`) are declared in the same way but are pydantic models, which are too
slow to import for `--help`.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

from t2t_torch.errors import HParamsError

_S = TypeVar("_S", bound="Settings")
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


class Settings:
    """Immutable set of declared fields.

    Args:
      **values: values of fields that differ from their defaults.

    Raises:
      HParamsError: a field is unknown, of the wrong type, or out of bounds; all are reported.
    """

    def __init__(self, **values: Any) -> None:
        declared = self.declared()
        faults = [f"there is no setting {name!r}." for name in values if name not in declared]
        for name, setting in declared.items():
            value = values.get(name, setting.default)
            value = tuple(value) if isinstance(value, list) else value
            if fault := setting.fault(value):
                faults.append(f"{name}={value}: {fault}. ({name}: {setting.meaning})")
            self.__dict__[name] = value
        if faults:
            raise HParamsError("\n".join(faults))

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """Returns the declaration of each field, by name."""
        hints = typing.get_type_hints(cls)
        fields = [item for base in reversed(cls.__mro__) for item in vars(base).items()]
        return {name: each.typed(hints[name]) for name, each in fields if isinstance(each, Setting)}

    def replace(self: _S, **delta: Any) -> _S:
        """Returns a copy with some fields changed.

        Raises:
          HParamsError: as the class.
        """
        return type(self)(**{**self.__dict__, **delta})

    def __setattr__(self, name: str, value: Any) -> None:
        raise HParamsError(f"{type(self).__name__} is frozen. Use replace({name}=...).")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yields (name, value) of each field."""
        return iter(self.__dict__.items())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self)
        return f"{type(self).__name__}({fields})"
