"""Raw file formats, by name and file extension."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.conll import FILES, read_bio, read_conll, read_conllu
from t2t_torch.readers.idx import read_idx
from t2t_torch.readers.jsonl import read_json, read_jsonl, read_squad
from t2t_torch.readers.tables import MARKS, read_csv, read_huggingface, read_parquet, read_tsv
from t2t_torch.readers.text_file import BadRecords, Record, read_labelled, read_parallel, read_plain
from t2t_torch.readers.trees import read_trees


@dataclass(frozen=True)
class Format:
    """A raw file format.

    Attributes:
      read: function of a path, `BadRecords` and options as keyword arguments; yields the records of
        a file, whose content its docstring describes.
      endings: file extensions.
    """

    read: Callable[..., Iterator[Record]]
    endings: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The names of the options, and their defaults."""
        parameters = inspect.signature(self.read).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


FORMATS: Mapping[str, Format] = {
    "csv": Format(read_csv, (".csv",)),
    "tsv": Format(read_tsv, (".tsv", ".tab")),
    "jsonl": Format(read_jsonl, (".jsonl", ".ndjson")),
    "json": Format(read_json),
    "parquet": Format(read_parquet, (".parquet",)),
    "conll": Format(read_conll, (".conll", ".bio", ".iob")),
    "conllu": Format(read_conllu, (".conllu",)),
    "lines": Format(read_plain, (".txt", ".text")),
    "labelled": Format(read_labelled),
    "parallel": Format(read_parallel),
    "bio": Format(read_bio),
    "trees": Format(read_trees, (".mrg", ".ptb", ".trees", ".tree")),
    "squad": Format(read_squad, (".json",)),
    "idx": Format(read_idx, (".idx", "-ubyte", ".idx3", ".idx4")),
    "huggingface": Format(read_huggingface),
}
"""All formats by name; files of each may be gzip-compressed."""


def format_of(path: Path) -> str:
    """Returns the name of a file's format from its extension, ignoring ".gz".

    The format of a folder is detected from its content.

    Raises:
      DataError: the extension, or the folder, has no known format.
    """
    if path.is_dir():
        if any((path / mark).exists() for mark in MARKS):
            return "huggingface"
        words = path / FILES["words"]
        if words.exists() or words.with_name(f"{words.name}.gz").exists():
            return "bio"
        raise DataError(
            f"{path} is a folder with neither {FILES['words']} (format bio) nor {MARKS[0]} (format "
            "huggingface). Name a file in it, or the format."
        )
    name = path.name.lower().removesuffix(".gz")
    for known, format in FORMATS.items():
        if name.endswith(format.endings or ("\n",)):
            return known
    endings = (f"{', '.join(f.endings)} {known}" for known, f in FORMATS.items() if f.endings)
    raise DataError(
        f"{path}: the ending tells no format; known are {'; '.join(endings)}, each also with .gz. "
        f"Name the format, one of {', '.join(FORMATS)}."
    )


def open_records(
    path: Path,
    *,
    format: str | None = None,
    bad: BadRecords | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Record]:
    """Yields the records of a file one at a time, with constant memory.

    Args:
      path: the file or folder.
      format: name of the format; None: detected by `format_of`.
      bad: policy for bad records; None raises an error at the first.
      options: options of the format, by name, with JSON values.

    Raises:
      DataError: the file cannot be read, at once or while records are read; or its format is
        unknown.
      UsageError: the format or option does not exist, or its value has the wrong type.
    """
    known = format or format_of(path)
    if known not in FORMATS:
        raise UsageError(f"There is no format {known!r}; choose one of {', '.join(FORMATS)}.")
    defaults = FORMATS[known].options
    given = dict(options or {})
    for name, value in given.items():
        if name not in defaults:
            there = f"its options are {', '.join(defaults)}" if defaults else "it has no options"
            raise UsageError(f"The format {known} has no option {name!r}; {there}.")
        _check(f"The option {name} of the format {known}", value, defaults[name])
    return FORMATS[known].read(path, bad or BadRecords(), **given)


def _check(what: str, value: Any, default: Any) -> None:
    """Raises UsageError for a value whose type differs from that of the default."""
    if isinstance(default, Mapping):
        right, type_name = isinstance(value, Mapping) and _strings(value.values()), "an object"
        right = right and _strings(value)
    elif isinstance(default, tuple):
        right, type_name = isinstance(value, Sequence) and _strings(value), "a list"
        right = right and not isinstance(value, str)
    elif isinstance(default, bool):
        right, type_name = isinstance(value, bool), "true or false"
    else:
        right, type_name = isinstance(value, str), "a string"
    if not right:
        of_strings = " of strings" if type_name in ("an object", "a list") else ""
        raise UsageError(f"{what} is {type_name}{of_strings}; it was given {value!r}.")


def _strings(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)
