"""Typed fields with descriptions, bounds and provenance.

`Params` is the base of `HParams` (training) and `DecodeHParams` (decoding): a frozen pydantic
model.  A field is declared in one line, next to the fields that are read in the same package:

    dropout: float = hp(0.1, "Probability of zeroing an activation; training only.", low=0, below=1)
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import types
import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import pydantic

from t2t_torch.errors import HParamsError, did_you_mean

_P = TypeVar("_P", bound="Params")

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
LARGEST_INT = 2**31 - 1
"""The largest integer of a field: libraries count sizes in 32 bits, and no memory holds more."""
LARGEST_SEED = 2**63 - 1
"""The largest integer of a field whose name ends with `seed`."""

_PROVENANCE = "provenance"  # JSON key next to the fields.


def hp(
    default: Any,
    meaning: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    pattern: str | None = None,
    computes: bool | None = None,
) -> Any:
    """Declares a field.

    Args:
      default: default value.
      meaning: description, with the unit; printed by `--help` and `--help_hparams`.
      low: inclusive lower bound.
      high: inclusive upper bound.
      above: exclusive lower bound.
      below: exclusive upper bound.
      pattern: regular expression that a string must match.
      computes: True if a model of equal weights computes something else with another value; None:
        as `Params.computes` of the class.
    """
    return pydantic.Field(
        default,
        description=meaning,
        ge=low,
        le=high,
        gt=above,
        lt=below,
        pattern=pattern,
        json_schema_extra=None if computes is None else {"computes": computes},
    )


def share(default: float, meaning: str, *, computes: bool | None = None) -> Any:
    """Declares a field from 0 to 1; see `hp`."""
    return hp(default, meaning, low=0, high=1, computes=computes)


def probability(default: float, meaning: str, *, computes: bool | None = None) -> Any:
    """Declares a field from 0 to less than 1; see `hp`."""
    return hp(default, meaning, low=0, below=1, computes=computes)


class Unread(NamedTuple):
    """A hyperparameter of tensor2tensor that nothing here reads.

    Attributes:
      values: values that mean what is done here; the first is tensor2tensor's default.
      reads: what reads it in tensor2tensor.  model: the models that are here too, so other values
        are another model; others: other models and features; nothing: nothing that the result
        depends on, so every value is accepted.
      instead: what there is instead, as a sentence.
    """

    values: tuple[Any, ...]
    reads: Literal["model", "others", "nothing"] = "others"
    instead: str = ""

    def accepts(self, value: Any) -> bool:
        """Returns True if a value, or its text, changes nothing here."""
        text = value_text(value).strip("'\"").lower()
        return self.reads == "nothing" or any(
            text in (known := value_text(one).lower(), f"{known}.0") or f"{text}.0" == known
            for one in self.values
        )


def assignments(text: str) -> list[str]:
    """Splits "a=1,b=[2,[3,4]]" at the commas that are in no brackets."""
    return re.findall(r"(?:[^,\[]|\[(?:[^\[\]]|\[[^\]]*\])*\]?)+", text)


class Params(pydantic.BaseModel):
    """Immutable set of typed fields that records the source of each value.

    Raises:
      HParamsError: a field is unknown, of the wrong type, or out of bounds; all are reported.
    """

    model_config = pydantic.ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # build validators on first use: `--help` needs none
    )

    unsupported: ClassVar[Mapping[str, Unread]] = MappingProxyType({})
    """Names that users of tensor2tensor may write; those that are no fields are not read."""
    aliases: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names that other libraries use -> the field, or the flag, that is meant; for messages."""
    computes: ClassVar[bool] = False
    """True if equal weights compute something else with other values of the fields that a class
    declares; see `hp`."""
    listed_by: ClassVar[str] = ""
    """The command that lists the fields, for messages."""

    _provenance: dict[str, str] = pydantic.PrivateAttr(default_factory=dict)
    _set: Params | None = pydantic.PrivateAttr(default=None)  # of another class, if taken from it

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _explain(cls, values: Any, handler: Any) -> Any:
        if isinstance(values, Mapping):  # JSON and `parse` give lists; a frozen model holds tuples.
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
        """Raises an error that names the field: fields are immutable.

        Raises:
          HParamsError: always, except for private attributes.
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
        """Compares values, without provenance."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """Hashes the values, without provenance."""
        return hash((type(self), *self.__dict__.values()))

    @property
    def provenance(self) -> Mapping[str, str]:
        """Source of each field: "default", the name of a set, a flag, or "code" (unsigned)."""
        signed, given = self._provenance, self.model_fields_set  # pydantic looks them up slowly
        names = type(self).model_fields
        return MappingProxyType(
            {name: signed.get(name, "code" if name in given else "default") for name in names}
        )

    def replace(self: _P, **delta: Any) -> _P:
        """Returns a copy with some fields changed.

        Raises:
          HParamsError: as the class.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set}
        unread = {name: value for name, value in delta.items() if self._home(name) is not self}
        own = {name: value for name, value in delta.items() if name not in unread}
        made = type(self).model_validate({**values, **own})
        made._provenance = {k: v for k, v in self._provenance.items() if k not in delta}
        made._set = self._set.replace(**unread) if self._set and unread else self._set
        return made

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Checks that hyperparameters are not set that contradict something.

        Args:
          names: of hyperparameters, off if they are 0, False or empty.
          reason: what does not go with them, and the remedy; follows `name=value`.

        Raises:
          HParamsError: one of them is set.
        """
        for name in names:
            if value := getattr(self, name):
                raise HParamsError(f"{name}={value}{reason}")

    def read_by(self, kind: type[_P]) -> _P:
        """Returns the values of a set for a model whose hyperparameters are of the class `kind`.

        Fields that both classes have get the value of the set, also where it is a default; fields
        that only `kind` has get its defaults.  Fields that only the set has are `unread`: `parse`
        and `replace` accept them, and the model does not get them.

        Raises:
          HParamsError: a value is none that the model's field accepts.
        """
        if isinstance(self, kind):
            return self
        defaults = kind()
        values = {
            name: getattr(self, name)
            for name in type(self).model_fields.keys() & kind.model_fields.keys()
            if name in self.model_fields_set or getattr(self, name) != getattr(defaults, name)
        }
        made = kind.model_validate(values)
        made._provenance = {k: v for k, v in self._provenance.items() if k in values}
        made._set = self
        return made

    def with_set_of(self: _P, other: Params) -> _P:
        """Returns a copy that accepts the names of the set from which `other` was taken."""
        made = self.replace()
        made._set = other._set
        return made

    @property
    def unread(self) -> str:
        """Values other than defaults, of the set or given, that the model has no fields for."""
        if self._set is None:
            return ""
        names = self._set.model_fields_set - type(self).model_fields.keys()
        values = {name: getattr(self._set, name) for name in sorted(names)}
        fields = type(self._set).model_fields
        changed = {name: value for name, value in values.items() if value != fields[name].default}
        return ", ".join(f"{name}={value_text(value)}" for name, value in changed.items())

    def _home(self, name: str) -> Params:
        """Returns the values that a name belongs to: the set's if only the set has it."""
        if self._set is None or name in type(self).model_fields:
            return self
        return self._set if name in type(self._set).model_fields else self

    @classmethod
    def starting_from(cls: type[_P], other: Params) -> _P:
        """Returns a set of this class with the non-default fields of a set of another class.

        Raises:
          HParamsError: as the class, for example because this class lacks a field.
        """
        made = cls.model_validate({name: getattr(other, name) for name in other.model_fields_set})
        made._provenance = dict(other._provenance)
        return made

    @classmethod
    def own_fields(cls) -> frozenset[str]:
        """Returns the names of the fields that this class adds to those of its bases."""
        return frozenset(cls.model_fields.keys() & inspect.get_annotations(cls).keys())

    @classmethod
    def computing(cls) -> frozenset[str]:
        """Returns the fields with which equal weights compute something else; see `hp`.

        A field that is declared again is as in the class that declared it first.
        """
        bases = [base for base in cls.__mro__ if issubclass(base, Params)]
        homes = {name: base for base in bases for name in base.own_fields()}
        extras: dict[str, Any] = {n: c.model_fields[n].json_schema_extra for n, c in homes.items()}
        return frozenset(
            name
            for name, extra in extras.items()
            if (extra["computes"] if extra else homes[name].computes)
        )

    def departing(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the recorded values with which equal weights compute something else than here.

        Args:
          recorded: values of another set by name, as in JSON; those that it lacks are not compared.
        """
        own = self.model_dump(mode="json", include=set(self.computing() & recorded.keys()))
        return {name: recorded[name] for name, value in own.items() if recorded[name] != value}

    def signed(self: _P, who: str) -> _P:
        """Returns a copy in which the source of every unsigned field is `who`."""
        made = self.replace()
        unsigned = self.model_fields_set - self._provenance.keys()
        made._provenance.update(dict.fromkeys(unsigned, who))
        return made

    def parse(self: _P, text: str, source: str = "--hparams") -> _P:
        """Returns a copy changed by "hidden_size=512,initializer=xavier,multiples=[0.5,0.1]".

        Values are parsed by field type: booleans are true, false, 1 or 0; "none" clears an optional
        field; lists are in brackets.  `source` is recorded as the source of the fields.  Names of
        `unsupported` with a value that changes nothing are left out, with a note.

        Raises:
          HParamsError: as the class; or a name is repeated, or a value cannot be parsed.
        """
        delta: dict[str, Any] = {}
        unread = []
        for item in assignments(text):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise HParamsError(f"{source}: {item.strip()!r} should be name=value.")
            if name in delta:
                raise HParamsError(f"{source} sets {name!r} twice.")
            if self.leaves_out(name, value):
                unread.append(name)
                continue
            home = self._home(name)
            if name not in type(home).model_fields:
                raise HParamsError(f"{source}: {self._unknown(name)}")
            delta[name] = home._read(name, value, source)
        self.note_unread(unread, source)
        return self.signed("code").replace(**delta).signed(source) if delta else self

    @classmethod
    def leaves_out(cls, name: str, value: Any) -> bool:
        """Returns True for a name of `unsupported` with a value, or its text, that is accepted."""
        known = cls.unsupported.get(name)
        return known is not None and name not in cls.model_fields and known.accepts(value)

    @classmethod
    def note_unread(cls, names: Iterable[str], source: str) -> None:
        """Logs which names were left out."""
        listed = [
            f"{name} ({meant})" if (meant := cls._meant(name)) else name for name in sorted(names)
        ]
        if listed:
            logging.getLogger(__name__).info(
                "%s: nothing here reads tensor2tensor's %s; left out.", source, ", ".join(listed)
            )

    def describe(self) -> str:
        """Returns a description of every field by group: name, type, value, source and meaning."""
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
        """Returns all fields, and the source of those that are not at their defaults, as JSON."""
        who = {k: v for k, v in self.provenance.items() if v != "default"}
        return json.dumps({**self.model_dump(mode="json"), _PROVENANCE: who}, indent=2) + "\n"

    @classmethod
    def from_json(cls: type[_P], text: str) -> _P:
        """Parses the output of `to_json`; missing fields get their defaults.

        Raises:
          HParamsError: as the class; or the text is not a JSON object.
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
        # If a default has changed since the file was written, the written value is kept.
        defaults = cls().model_dump(mode="json")
        changed = {
            k: v for k, v in values.items() if k in who or k not in defaults or v != defaults[k]
        }
        made = cls.model_validate(changed)
        made._provenance = {name: who.get(name, "hparams.json") for name in changed}
        return made

    @classmethod
    def _unknown(cls, name: str) -> str:
        if name in cls.unsupported:
            known = cls.unsupported[name]
            hints = [hint for hint in (known.instead, cls._meant(name)) if hint]
            values = " or ".join(value_text(one) or "empty" for one in known.values)
            return " ".join(
                [
                    f"{name!r}: tensor2tensor has it, but nothing here reads it with "
                    f"{cls.__name__}. Leave it out, or at {values}.",
                    *hints,
                ]
            )
        return f"no hyperparameter is named {name!r}. {cls._hint(name)}"

    @classmethod
    def _meant(cls, name: str) -> str:
        """Returns a suggestion of the field or flag of which a name is an alias, or ""."""
        meant = cls.aliases.get(name.lower(), "")
        if meant.startswith("--"):
            return f"Did you mean the flag {meant}?"
        return f"Did you mean {meant!r}?" if meant in cls.model_fields else ""

    @classmethod
    def _hint(cls, name: str) -> str:
        """Returns a suggestion of the nearest name, or how to list the names."""
        if meant := cls._meant(name):
            return meant
        if hint := did_you_mean(name, cls.model_fields):
            return hint.strip()
        if cls.listed_by:
            return f"List all of {cls.__name__}:  {cls.listed_by}"
        return f"{cls.__name__} has: {', '.join(sorted(cls.model_fields))}."

    @classmethod
    def _complaint(cls, error: Any) -> str:
        """Converts an error of pydantic to a message for the user."""
        name = str(error["loc"][0]) if error["loc"] else ""
        if name not in cls.model_fields:
            return cls._unknown(name) if name else str(error["msg"])
        field = cls.model_fields[name]
        expected = error["msg"].removeprefix("Input ").rstrip(".")
        value = error["input"]
        # Quotes mark a string given instead of another type.
        odd = isinstance(value, str) and field.annotation in (int, float, bool)
        written = repr(value) if odd else value_text(value)
        return f"{name}={written}: {expected}. ({name}: {field.description})"

    @classmethod
    def _read(cls, name: str, text: str, source: str) -> Any:
        """Parses a value according to the type of the field."""
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
    """Parses `text` as a type; ValueError if it is malformed."""
    origin, choices = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):  # The only unions are `X | None`.
        if text.lower() == "none":
            return None
        return _read_value(next(c for c in choices if c is not type(None)), text)
    if origin is Literal:
        return text  # the error of pydantic lists the choices.
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
    """Returns a readable type name: `int`, `float or none`, `list of int`, `a|b`."""
    origin, choices = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if c is type(None) else type_name(c) for c in choices)
    if origin is Literal:
        return "|".join(map(str, choices))
    if origin is tuple:
        return f"list of {type_name(choices[0])}"
    return str(annotation.__name__)


def value_text(value: Any) -> str:
    """Formats a value in the syntax of `parse`."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{','.join(map(value_text, value))}]"
    return str(value)


def _bounds(field: pydantic.fields.FieldInfo) -> str:
    """Returns the bounds of a field: " (0 to 9)", " (at least 0, less than 1)", or ""."""
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
    listed = ", ".join(f"{words[key]} {limit}" for key, limit in limits.items())
    return f" ({listed})" if listed else ""
