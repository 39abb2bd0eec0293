"""Typed fields with meanings, bounds, and a memory of who set them.

`Params` is the machinery under `HParams` (training) and `DecodeHParams` (decoding): a frozen
pydantic model.  A field is one line, beside the others that are read in the same room:

    dropout: float = hp(0.1, "Probability of zeroing an activation; training only.", low=0, below=1)
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

import pydantic

from t2t_torch.errors import HParamsError

_P = TypeVar("_P", bound="Params")

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
LARGEST_INT = 2**31 - 1
"""The largest integer of a field: libraries count sizes in 32 bits, and no memory holds more."""
LARGEST_SEED = 2**63 - 1
"""The largest integer of a field whose name ends with `seed`."""

_PROVENANCE = "provenance"  # The key that stands beside the fields in JSON.


def hp(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    pattern: str | None = None,
) -> Any:
    """Declares a field.

    Args:
      default: its value when nobody sets it.
      meaning: what it is, with its unit; printed by `--help` and `--help_hparams`.
      low: the least allowed value.
      high: the greatest allowed value.
      above: a value that it must exceed.
      below: a value that it must stay under.
      pattern: the regular expression that a string must match.
    """
    return pydantic.Field(
        default, description=meaning, ge=low, le=high, gt=above, lt=below, pattern=pattern
    )


class Params(pydantic.BaseModel):
    """A frozen set of typed fields that knows who set each of them.

    Raises:
      HParamsError: a field is unknown, of the wrong type, or out of bounds; all are reported.
    """

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # validators are built when they are first used: `--help` needs none
    )

    unsupported: ClassVar[frozenset[str]] = frozenset()
    """Names that users of tensor2tensor may write and that nothing here reads."""
    aliases: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names that other libraries use -> the field, or the flag, that is meant; for messages."""
    listed_by: ClassVar[str] = ""
    """The command that lists the fields, for messages."""

    _provenance: dict[str, str] = pydantic.PrivateAttr(default_factory=dict)

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _explain(cls, values: Any, handler: Any) -> Any:
        if isinstance(values, Mapping):  # JSON and `parse` know lists; a frozen model holds tuples.
            values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            made = handler(values)
        except pydantic.ValidationError as error:
            raise HParamsError("\n".join(cls._complaint(e) for e in error.errors())) from None
        faults = [
            {"loc": (name,), "msg": f"should be from {-most} to {most}", "input": value}
            for name in sorted(made.model_fields_set)
            if _exceeds(value := getattr(made, name), most := _largest(name))
        ]
        if faults:
            raise HParamsError("\n".join(map(cls._complaint, faults)))
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses to change a field, by name.

        Raises:
          HParamsError: always, but for private attributes.
        """
        if name.startswith("_"):
            return super().__setattr__(name, value)
        if name not in type(self).model_fields:
            raise HParamsError(self._unknown(name))
        raise HParamsError(
            f"{name}={value_text(value)}: {type(self).__name__} is frozen. Write changed = "
            f"hparams.replace({name}={value!r}), which returns a changed copy."
        )

    def __eq__(self, other: object) -> bool:
        """Compares the values alone: who set them does not matter."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """Hashes the values alone."""
        return hash((type(self), *self.__dict__.values()))

    @property
    def provenance(self) -> Mapping[str, str]:
        """Who set each field: "default", a set's name, a flag, or "code" (not signed yet)."""
        who = {
            name: self._provenance.get(name, "code" if name in self.model_fields_set else "default")
            for name in type(self).model_fields
        }
        return MappingProxyType(who)

    def replace(self: _P, **delta: Any) -> _P:
        """Returns a copy with some fields changed.

        Raises:
          HParamsError: as the class.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set}
        made = type(self).model_validate({**values, **delta})
        made._provenance = {k: v for k, v in self._provenance.items() if k not in delta}
        return made

    @classmethod
    def starting_from(cls: type[_P], other: Params) -> _P:
        """Returns a set of this class in which what is set in one of another class is set likewise.

        Raises:
          HParamsError: as the class; this one may lack a field of the other.
        """
        made = cls.model_validate({name: getattr(other, name) for name in other.model_fields_set})
        made._provenance = dict(other._provenance)
        return made

    def signed(self: _P, who: str) -> _P:
        """Returns a copy in which every field that nobody has signed yet is signed by `who`."""
        made = self.replace()
        unsigned = self.model_fields_set - self._provenance.keys()
        made._provenance.update(dict.fromkeys(unsigned, who))
        return made

    def parse(self: _P, text: str, source: str = "--hparams") -> _P:
        """Returns a copy changed by "hidden_size=512,initializer=xavier,multiples=[0.5,0.1]".

        Values are read by the fields' types: booleans are true, false, 1 or 0; "none" empties an
        optional field; a list stands in brackets.  `source` is who the fields say has set them.

        Raises:
          HParamsError: as the class; or a name stands there twice, or a value cannot be read.
        """
        delta: dict[str, Any] = {}
        for item in re.findall(r"(?:[^,\[]|\[(?:[^\[\]]|\[[^\]]*\])*\]?)+", text):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise HParamsError(f"{source}: {item.strip()!r} should be name=value.")
            if name in delta:
                raise HParamsError(f"{source} sets {name!r} twice.")
            if name not in type(self).model_fields:
                raise HParamsError(f"{source}: {self._unknown(name)}")
            delta[name] = self._read(name, value, source)
        return self.signed("code").replace(**delta).signed(source) if delta else self

    def describe(self) -> str:
        """Prints every field by group: name, type, value, who set it, meaning and bounds."""
        rows: dict[type, list[tuple[str, str, str, str, str]]] = {}
        provenance = self.provenance
        for name, field in type(self).model_fields.items():
            home = next(
                c for c in reversed(type(self).__mro__) if name in getattr(c, "model_fields", ())
            )
            value = getattr(self, name)
            meaning = f"{field.description}{_bounds(field)}"
            kind = (
                "str"
                if typing.get_origin(field.annotation) is Literal
                else type_name(field.annotation)
            )
            row = (name, kind, value_text(value), provenance[name], meaning)
            rows.setdefault(home, []).append(row)
        widths = [max(len(row[i]) for group in rows.values() for row in group) for i in range(4)]
        lines: list[str] = []
        for home, group in rows.items():
            lines += ["", (home.__doc__ or home.__name__).splitlines()[0]]
            for row in group:
                cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
                lines.append("  " + "  ".join([*cells, row[4]]).rstrip())
        return "\n".join(lines[1:]) + "\n"

    def to_json(self) -> str:
        """Writes every field, and who set those that are not at their defaults."""
        who = {k: v for k, v in self.provenance.items() if v != "default"}
        return json.dumps({**self.model_dump(mode="json"), _PROVENANCE: who}, indent=2) + "\n"

    @classmethod
    def from_json(cls: type[_P], text: str) -> _P:
        """Reads what `to_json` has written; fields that it lacks get their defaults.

        Raises:
          HParamsError: as the class; or the text is no JSON object.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise HParamsError(f"hyperparameters are not valid JSON: {error}") from error
        if not isinstance(values, dict):
            raise HParamsError(
                f"hyperparameters should be a JSON object, not {type(values).__name__}."
            )
        who = values.pop(_PROVENANCE, {})
        # A default of today may be another than when this was written: then the written one holds.
        defaults = cls().model_dump(mode="json")
        kept = {
            k: v for k, v in values.items() if k in who or k not in defaults or v != defaults[k]
        }
        made = cls.model_validate(kept)
        made._provenance = {name: who.get(name, "hparams.json") for name in kept}
        return made

    @classmethod
    def _unknown(cls, name: str) -> str:
        if name in cls.unsupported:
            return (
                f"{name!r}: tensor2tensor has it, but nothing here reads it with "
                f"{cls.__name__}. Leave it out."
                + (f" {cls._hint(name)}" if name in cls.aliases else "")
            )
        return f"no hyperparameter is named {name!r}. {cls._hint(name)}"

    @classmethod
    def _hint(cls, name: str) -> str:
        """Says which name may be meant, or how to list them."""
        meant = cls.aliases.get(name.lower(), "")
        if meant.startswith("--"):
            return f"Did you mean the flag {meant}?"
        near = difflib.get_close_matches(name, cls.model_fields, n=3)
        if meant in cls.model_fields:
            near = [meant]
        if near:
            return f"Did you mean {' or '.join(map(repr, near))}?"
        if cls.listed_by:
            return f"List all of {cls.__name__}:  {cls.listed_by}"
        return f"{cls.__name__} has: {', '.join(sorted(cls.model_fields))}."

    @classmethod
    def _complaint(cls, error: Any) -> str:
        """Says what one of pydantic's errors means to the one who set the field."""
        name = str(error["loc"][0]) if error["loc"] else ""
        if name not in cls.model_fields:
            return cls._unknown(name) if name else str(error["msg"])
        field = cls.model_fields[name]
        expected = error["msg"].removeprefix("Input ").rstrip(".")
        value = error["input"]
        # A string where there should be none is told apart by its quotes.
        odd = isinstance(value, str) and field.annotation in (int, float, bool)
        written = repr(value) if odd else value_text(value)
        return f"{name}={written}: {expected}. ({name}: {field.description})"

    @classmethod
    def _read(cls, name: str, text: str, source: str) -> Any:
        """Reads a value as the field's type says."""
        annotation = cls.model_fields[name].annotation
        try:
            return _read_value(annotation, text)
        except ValueError:
            raise HParamsError(
                f"{source}: {name}={text!r} should be {type_name(annotation)}. "
                f"({name}: {cls.model_fields[name].description})"
            ) from None


def _largest(name: str) -> int:
    return LARGEST_SEED if name.endswith("seed") else LARGEST_INT


def _exceeds(value: Any, most: int) -> bool:
    if isinstance(value, tuple):
        return any(_exceeds(each, most) for each in value)
    return isinstance(value, int) and abs(value) > most


def _read_value(annotation: Any, text: str) -> Any:
    """Reads `text` as a type; ValueError if it is none."""
    origin, choices = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):  # The only unions are `X | None`.
        if text.lower() == "none":
            return None
        return _read_value(next(c for c in choices if c is not type(None)), text)
    if origin is Literal:
        return text  # pydantic says which choices there are.
    if origin is tuple:
        if not re.fullmatch(r"\[.*\]", text):
            raise ValueError(text)
        parts = [part.strip() for part in text[1:-1].split(",")]
        return tuple(_read_value(choices[0], part) for part in parts if part)
    if annotation is bool:
        if text.lower() not in _BOOLEANS:
            raise ValueError(text)
        return _BOOLEANS[text.lower()]
    return annotation(text)


def type_name(annotation: Any) -> str:
    """Writes a type as a user reads it: `int`, `float or none`, `list of int`, `a|b`."""
    origin, choices = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if c is type(None) else type_name(c) for c in choices)
    if origin is Literal:
        return "|".join(map(str, choices))
    if origin is tuple:
        return f"list of {type_name(choices[0])}"
    return str(annotation.__name__)


def value_text(value: Any) -> str:
    """Writes a value as `parse` reads it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{','.join(map(value_text, value))}]"
    return str(value)


def _bounds(field: pydantic.fields.FieldInfo) -> str:
    """Writes what a field may be: " (0 to 9)", " (at least 0, less than 1)", or nothing."""
    limits = {
        key: getattr(bound, key)
        for bound in field.metadata
        for key in ("ge", "gt", "le", "lt")
        if getattr(bound, key, None) is not None
    }
    if "ge" in limits and "le" in limits:
        return f" ({limits['ge']} to {limits['le']})"
    if typing.get_origin(field.annotation) is Literal:
        return f" ({type_name(field.annotation)})"
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    told = ", ".join(f"{words[key]} {limit}" for key, limit in limits.items())
    return f" ({told})" if told else ""
