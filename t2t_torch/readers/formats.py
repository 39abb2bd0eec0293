"""Raw file formats: registered readers, by name and file extension."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch import registry
from t2t_torch.errors import DataError, RegistryError, UsageError
from t2t_torch.files import open_regular, without_packing
from t2t_torch.readers.conll import FILES, file_of
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.tables import MARKS
from t2t_torch.readers.text_file import BadRecords, Record


@dataclass(frozen=True)
class Format:
    """A raw file format.

    Attributes:
      read: the registered reader: a function of a path, `BadRecords` and options as keyword
        arguments; yields the records of a file, whose content its docstring describes.
      endings: file extensions.
      matches: recognizes a file by its head; None: its extension alone does.
    """

    read: Callable[..., Iterator[Record]]
    endings: tuple[str, ...] = ()
    matches: Callable[[Head], Match | None] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The names of the options, and their defaults."""
        parameters = inspect.signature(self.read).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


class _Formats(Mapping[str, Format]):
    """The registered readers; the file of each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Format:
        if name not in registry.list_names("reader"):
            raise KeyError(name)
        read: Any = registry.reader(name)
        return Format(read, getattr(read, "endings", ()), getattr(read, "matches", None))

    def __iter__(self) -> Iterator[str]:
        return iter(registry.list_names("reader"))

    def __len__(self) -> int:
        return len(registry.list_names("reader"))


FORMATS: Mapping[str, Format] = _Formats()
"""All formats by name, also those of `--t2t_usr_dir`; the library's may be packed with gzip."""


def _endings() -> dict[str, str]:
    """Returns the format of each ending.

    Raises:
      RegistryError: two readers declare the same ending.
    """
    formats: dict[str, str] = {}
    for name, of in FORMATS.items():
        for ending in of.endings:
            if (other := formats.setdefault(ending.lower(), name)) != name:
                raise RegistryError(
                    f"the readers {other!r} and {name!r} both declare the ending {ending!r}. Leave "
                    'it out of yours, and name the "format" in the declaration.'
                )
    return formats


def format_of(path: Path) -> str:
    """Returns the name of a file's format from its extension, ignoring ".gz".

    The format of a folder follows from the files in it.

    Raises:
      DataError: the ending, or the folder, is of no known format.
    """
    if path.is_dir():
        if any((path / mark).exists() for mark in MARKS):
            return "huggingface"
        if file_of(path, FILES["words"]):
            return "bio"
        raise DataError(
            f"{path} is a folder with neither {FILES['words']} (format bio) nor {MARKS[0]} (format "
            "huggingface). Name a file in it, or the format."
        )
    name, endings = without_packing(path.name.lower()), _endings()
    if matching := [ending for ending in endings if name.endswith(ending)]:
        return endings[max(matching, key=len)]
    known = (f"{', '.join(f.endings)} {name}" for name, f in FORMATS.items() if f.endings)
    raise DataError(
        f"{path}: unknown file extension; known are {'; '.join(known)}, each also with .gz. "
        f"Name the format, one of {', '.join(FORMATS)}."
    )


def usual_format_of(path: Path) -> str:
    """Returns `format_of` a path, "" if it is not known."""
    try:
        return format_of(path)
    except DataError:
        return ""


def open_records(
    path: Path,
    *,
    format: str | None = None,
    bad: BadRecords | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Record]:
    """Yields the records of a file, one after another, with constant memory.

    Args:
      path: the file or folder.
      format: its name; None: `format_of` the path.
      bad: what becomes of bad records; None ends at the first.
      options: the format's, by name, with values as JSON has them.

    Raises:
      DataError: the file cannot be read, at once or while records are taken; or its format is
        unknown.
      UsageError: there is no such format or option, or its value is of the wrong type.
    """
    known = format or format_of(path)
    if known not in FORMATS:
        raise UsageError(
            f"There is no format {known!r}; choose one of {', '.join(FORMATS)}, or register a "
            "reader of this name in a --t2t_usr_dir (@register_reader)."
        )
    found = FORMATS[known]
    defaults = found.options
    given = dict(options or {})
    for name, value in given.items():
        if name not in defaults:
            there = f"its options are {', '.join(defaults)}" if defaults else "it has no options"
            raise UsageError(f"The format {known} has no option {name!r}; {there}.")
        _check(f"The option {name} of the format {known}", value, defaults[name])
    return found.read(path, bad or BadRecords(), **given)


def header_of(path: Path, format: str, options: Mapping[str, Any]) -> Sequence[str]:
    """Returns the names of the columns of a table without rows."""
    if format == "parquet":
        from pyarrow import parquet

        with open_regular(path) as file:
            return list(parquet.read_schema(file).names)
    if "header" not in FORMATS[format].options or "columns" in options:
        return [*options.get("columns", ())]
    first = next(open_records(path, format=format, options={**options, "header": False}), None)
    return [] if first is None else [str(name) for name in first.values.values()]


def _check(what: str, value: Any, default: Any) -> None:
    """Refuses a value that is not of the type of the default."""
    parts: Iterable[Any] = ()
    if isinstance(default, Mapping):
        right, expected = isinstance(value, Mapping), "an object of strings"
        parts = (*value, *value.values()) if right else ()
    elif isinstance(default, tuple):
        right = isinstance(value, Sequence) and not isinstance(value, str)
        parts, expected = value if right else (), "a list of strings"
    elif isinstance(default, bool):
        right, expected = isinstance(value, bool), "true or false"
    else:
        right, expected = isinstance(value, str), "a string"
    if not right or not all(isinstance(part, str) for part in parts):
        raise UsageError(f"{what} is {expected}; it was given {value!r}.")
