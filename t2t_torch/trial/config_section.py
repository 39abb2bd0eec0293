"""What the sections of an experiment's configuration have in common: they say what is wrong."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pydantic

_YAML_NAMES = {
    "tuple_type": "should be a list.",
    "dict_type": "should be a mapping of keys.",
}


class Section(pydantic.BaseModel):
    """A read-only mapping of known keys, as the YAML has it."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    of_clusters: ClassVar[frozenset[str]] = frozenset()
    """Keys that mean something to a cluster and nothing here."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Keys of other versions that are refused, and what to write in their place."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _as_read(cls, values: Any) -> Any:
        """Takes what YAML has: lists for tuples, nothing for a section; leaves out cluster keys."""
        if values is None:
            return {}
        if not isinstance(values, Mapping):
            return values
        kept = {}
        for key, value in values.items():
            if key in cls.of_clusters or (key in cls.instead and value is None):
                continue
            kept[key] = tuple(value) if isinstance(value, list) and cls._is_list(key) else value
        return kept

    @classmethod
    def _is_list(cls, key: str) -> bool:
        field = cls.model_fields.get(key)
        return field is not None and typing.get_origin(field.annotation) is tuple

    @classmethod
    def section(cls, key: str) -> type[Section] | None:
        """Returns the class of the section under a key, or None if there is none."""
        field = cls.model_fields.get(key)
        kind = field.annotation if field else None
        return kind if isinstance(kind, type) and issubclass(kind, Section) else None

    @classmethod
    def complaint(cls, error: Mapping[str, Any]) -> str:
        """Says what one of pydantic's errors means to the one who wrote the file.

        Args:
          error: of those that `ValidationError.errors()` returns.
        """
        where = [str(part) for part in error["loc"]]
        within: type[Section] = cls
        for part in where[:-1]:
            within = within.section(part) or within
        name = ".".join(where)
        if error["type"] == "extra_forbidden":
            return f"{name}: {within._unknown(where[-1])}"
        if error["type"] == "missing":
            return f"{name} is missing."
        expected = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
        told = f"{expected.rstrip('.')}."
        if error["type"] == "model_type":
            told = f"should be a section of keys: {', '.join(_keys(cls, where))}."
        if error["type"] == "value_error" and _keys(cls, where):  # of a whole section
            return f"{name}: {told}" if name else told
        if error["type"] in _YAML_NAMES:
            told = _YAML_NAMES[error["type"]]
        value = error["input"]
        return f"{name}: {list(value) if isinstance(value, tuple) else value!r}: {told}"

    @classmethod
    def _unknown(cls, key: str) -> str:
        if key in cls.instead:
            return cls.instead[key]
        known = sorted({*cls.model_fields, *cls.of_clusters})
        return f"there is no such key.{nearest(key, known)}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a sentence with the names that are most like another, or with all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=2)
    return f" Did you mean {' or '.join(near)}?" if near else f" There are: {', '.join(names)}."


def _keys(top: type[Section], where: Iterable[str]) -> list[str]:
    within: type[Section] | None = top
    for part in where:
        within = within.section(part) if within else None
    return sorted(within.model_fields) if within else []
