"""JSON: one object on each line, or one array of objects."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from t2t_torch.errors import DataError
from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.text_file import TextFile
from t2t_torch.text.lines import read_raw_lines

SURROGATE = "a lone surrogate (\\ud800 to \\udfff), which is no text"
"""The error message of a record with one."""

_KINDS = {list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def read_jsonl(path: Path, bad: BadRecords) -> Iterator[Record]:
    r"""Yields the objects of a file, one of each line, by key; the values are JSON's.

    What an object holds inside another is there too, by the keys with dots between them: of
    `{"a": {"b": 1}}` the values are "a" and "a.b", unless a key of that name is there.  A blank
    line is no row.  Bad are what is not JSON (also NaN and Infinity), what is no object, a key that
    is there twice, and a lone surrogate ("\ud800"), which is no text.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad lines.

    Raises:
      DataError: the file cannot be read.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
    for number, line in TextFile(path, bad):
        if line is None or not line.strip(" \t\r\n"):
            continue
        try:
            values = decoder.decode(line)
            if "\\u" in line:
                json.dumps(values, ensure_ascii=False).encode()
        except json.JSONDecodeError as error:
            # A fault at the line's end is told in JSON's count as one of the next line.
            column = min(error.pos, len(line.rstrip("\r\n"))) + 1
            bad.report(Place(path, number, column), f"no JSON: {error.msg}")
        except UnicodeEncodeError:
            bad.report(Place(path, number), SURROGATE)
        except ValueError as error:
            bad.report(Place(path, number), f"no JSON: {error}")
        except RecursionError:
            bad.report(Place(path, number), "nested too deeply")
        else:
            if isinstance(values, dict):
                yield Record(Place(path, number), with_dotted(values))
            else:
                bad.report(Place(path, number, 1), _no_object(values))


def read_json(path: Path, bad: BadRecords) -> Iterator[Record]:
    """Yields the objects of a file that is one JSON array, loaded whole.

    Keys and values are those of `read_jsonl`, but NaN is an empty value. A place has the number of
    the object, from 1. An element that is no object is bad, and an object with a lone surrogate.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad elements.

    Raises:
      DataError: the file cannot be read, or is not a JSON array.
    """
    loaded = load_json(path)
    if not isinstance(loaded, list):
        raise DataError(
            f"{path} is not an array of objects: [{{...}}, ...]. The format jsonl reads one object "
            "on each line, the format squad the form of SQuAD."
        )
    for number, values in enumerate(loaded, 1):
        place = Place(path, number, unit="object")
        if not isinstance(values, dict):
            bad.report(place, _no_object(values))
            continue
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            bad.report(place, SURROGATE)
        else:
            yield Record(place, with_dotted(values))


def load_json(path: Path) -> Any:
    """Loads a JSON file, packed with gzip or not.

    Raises:
      DataError: it cannot be read, is not UTF-8, or is no JSON.
    """
    try:
        return json.loads(b"".join(read_raw_lines(path)).removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not UTF-8 ({error.reason}).") from None
    except json.JSONDecodeError as error:
        place = Place(path, error.lineno, error.colno)
        raise DataError(f"{place}: no JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path} is no JSON that can be read: {error}") from None


def _no_object(value: Any) -> str:
    return f"{_KINDS.get(type(value), 'a number')}, where an object was expected"


def with_dotted(values: dict[str, Any]) -> dict[str, Any]:
    """Returns an object with all that is nested in it, by keys such as "a.b"."""
    nested = {name: value for name, value in values.items() if isinstance(value, dict)}
    if not nested:
        return values
    flat: dict[str, Any] = {}
    while nested:
        inner = {
            f"{name}.{key}": value for name, held in nested.items() for key, value in held.items()
        }
        flat.update(inner)
        nested = {name: value for name, value in inner.items() if isinstance(value, dict)}
    return {**flat, **values}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
