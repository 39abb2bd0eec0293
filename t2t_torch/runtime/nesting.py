"""Nested structures of a model's inputs and outputs, and their conversion to named arrays.

`signature.json` stores a nesting as JSON: `{"leaf": "picture"}`, `{"dict": {"a": ..., "b": ...}}`,
`{"list": [...]}`, `{"tuple": [...]}`, `{"namedtuple": "Texts", "fields": {...}}`; null is None.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features import InputSpec

Nesting: TypeAlias = Mapping[str, Any] | None


def nesting_of(value: Any, alone: str) -> Nesting:
    """Returns the nesting of a value.

    Args:
      value: nested dicts, lists and tuples of leaves, or a single leaf.
      alone: name of a leaf that is not nested.

    Raises:
      DataError: a key of a dict is not a string, or two leaves have the same name.
    """
    names: list[str] = []
    nesting = _nesting_of(value, "", alone, names)
    if twice := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise DataError(f"two parts of it would be called {twice[0]!r}: rename a key.")
    return nesting


def _nesting_of(value: Any, name: str, alone: str, names: list[str]) -> Nesting:
    def below(key: object, item: Any) -> Nesting:
        return _nesting_of(item, f"{name}.{key}" if name else str(key), alone, names)

    if value is None:
        return None
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise DataError(f"the key {odd[0]!r} is no string, and JSON has no others.")
        return {"dict": {key: below(key, item) for key, item in value.items()}}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return {
            "namedtuple": type(value).__name__,
            "fields": {key: below(key, item) for key, item in fields},
        }
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [below(place, item) for place, item in enumerate(value)]}
    names.append(name or alone)
    return {"leaf": name or alone}


def names_in(nesting: Nesting) -> list[str]:
    """Returns the names of the leaves in order."""
    if nesting is None:
        return []
    if "leaf" in nesting:
        return [nesting["leaf"]]
    return [name for _, below in _parts(nesting) for name in names_in(below)]


def _parts(nesting: Mapping[str, Any]) -> list[tuple[Any, Nesting]]:
    for kind in ("dict", "fields"):
        if kind in nesting:
            return list(nesting[kind].items())
    return list(enumerate(nesting.get("list", nesting.get("tuple", ()))))


def taken_apart(nesting: Nesting, value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a value with their names.

    Any tuple, list or mapping is accepted for a named tuple, because JSON has no named tuples.

    Args:
      nesting: expected nesting.
      value: value with this nesting.
      place: path of the value, for error messages.

    Raises:
      DataError: the value has another nesting.
    """
    description = place or "the input"
    if nesting is None:
        if value is not None:
            raise DataError(
                f"{description} is {type(value).__name__}, where nothing (null) was expected."
            )
    elif "leaf" in nesting:
        yield nesting["leaf"], value
    else:
        parts = _parts(nesting)
        for key, below in parts:
            part = _part(description, value, key, [key for key, _ in parts], nesting)
            yield from taken_apart(below, part, f"{place}.{key}" if place else str(key))


def _part(
    description: str, value: Any, key: Any, keys: Sequence[Any], nesting: Mapping[str, Any]
) -> Any:
    """Returns the item of a value at a key.

    Raises:
      DataError: the value has another type or other keys.
    """
    if isinstance(value, Mapping) and ("dict" in nesting or "fields" in nesting):
        if sorted(map(str, value)) != sorted(keys):
            keys_given = ", ".join(map(str, value)) or "nothing"
            raise DataError(
                f"{description} has {keys_given}, where {', '.join(keys)} were expected."
            )
        return value[key]
    if "dict" in nesting or not isinstance(value, list | tuple):
        kind = "a mapping" if "dict" in nesting else "a list"
        raise DataError(
            f"{description} is {type(value).__name__}, where {kind} of "
            f"{', '.join(map(str, keys))} was expected."
        )
    if len(value) != len(keys):
        raise DataError(f"{description} has {len(value)} parts, where {len(keys)} were expected.")
    return value[keys.index(key)]


def put_together(nesting: Nesting, leaf_of: Callable[[str], Any], *, plain: bool = False) -> Any:
    """Returns a nested value built from its leaves.

    Args:
      nesting: nesting of the value.
      leaf_of: function from a name to its leaf.
      plain: if True, named tuples become dicts, tuples and arrays become lists, as in JSON.
    """
    if nesting is None:
        return None
    if "leaf" in nesting:
        leaf = leaf_of(nesting["leaf"])
        return leaf.tolist() if plain and isinstance(leaf, np.ndarray | np.generic) else leaf
    parts = {key: put_together(below, leaf_of, plain=plain) for key, below in _parts(nesting)}
    if "dict" in nesting or (plain and "fields" in nesting):
        return parts
    if "fields" in nesting:
        kind = _named_tuple(nesting["namedtuple"], tuple(parts), rename=True)
        return kind(*parts.values())
    return list(parts.values()) if plain or "list" in nesting else tuple(parts.values())


def alike(keys: Iterable[Any], most: int) -> Iterator[list[int]]:
    """Yields the places of equal keys, at most so many together: inputs that form a batch."""
    places: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    for own in places.values():
        yield from (own[first : first + most] for first in range(0, len(own), most))


_named_tuple = functools.cache(collections.namedtuple)


def array_of(field: InputSpec, value: Any, *, rows: bool = False) -> npt.NDArray[Any]:
    """Returns the value of a field as an array of the field's dtype.

    Args:
      field: specification with the shape of one record; -1 matches any size.
      value: an array, a number, or nested lists of numbers.
      rows: if True, the value is a batch with an additional leading axis.

    Raises:
      DataError: the value cannot be converted, or has another shape or dtype.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"{field.name}: its rows have different lengths.") from None
    shape = (-1, *field.shape) if rows else tuple(field.shape)
    fits = len(array.shape) == len(shape) and all(
        wanted in (-1, size) for wanted, size in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise DataError(
            f"{field.name} has the shape {list(array.shape)}, where {list(shape)} was expected"
            f"{' (-1: any size)' if -1 in shape else ''}."
        )
    dtype = np.dtype(field.dtype)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf" or not _may_become(array, dtype):
        raise DataError(f"{field.name} is of {array.dtype}, where {dtype} was expected.")
    return array.astype(dtype)


def _may_become(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Returns True if a cast to another dtype keeps the numbers, except for rounded fractions."""
    if not array.size:
        return True
    if dtype.kind == "f":
        return array.dtype.kind != "b"
    if dtype.kind == "b" or array.dtype.kind == "f":
        return False
    least, greatest = int(array.min()), int(array.max())
    return np.iinfo(dtype).min <= least and greatest <= np.iinfo(dtype).max
