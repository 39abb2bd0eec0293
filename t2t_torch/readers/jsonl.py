"""One JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from t2t_torch.readers.bad_records import BadRecords, Place, Record
from t2t_torch.readers.text_file import TextFile

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
            bad.report(
                Place(path, number), "a lone surrogate (\\ud800 to \\udfff), which is no text"
            )
        except ValueError as error:
            bad.report(Place(path, number), f"no JSON: {error}")
        except RecursionError:
            bad.report(Place(path, number), "nested too deeply")
        else:
            if isinstance(values, dict):
                yield Record(Place(path, number), with_dotted(values))
            else:
                kind = _KINDS.get(type(values), "a number")
                bad.report(Place(path, number, 1), f"{kind}, where an object was expected")


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
