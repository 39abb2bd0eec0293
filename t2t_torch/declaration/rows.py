"""Files of a declaration, and conversion of their rows to samples."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from absl import logging

from t2t_torch.declaration import schema
from t2t_torch.declaration.schema import Column, Declaration, FieldType, mistake, nearest
from t2t_torch.errors import DataError, UsageError, listed
from t2t_torch.mode import Split
from t2t_torch.readers.conll import FILES as BIO_FILES
from t2t_torch.readers.conll import file_of
from t2t_torch.readers.formats import format_of, open_records
from t2t_torch.readers.idx import labels_of
from t2t_torch.readers.text_file import BadRecords, Record, split_at_blanks
from t2t_torch.remote import resolve
from t2t_torch.runtime.prediction import list_of, parts_of, text_of_cell
from t2t_torch.text.tree import parse_tree


class RowFiles:
    """The files of a declaration's splits.

    A relative path is searched in the folder of raw files, then in the declaration's folder.

    Args:
      declaration: the declaration.
      path: path of the declaration.
      tmp_dir: the folder of raw files.
    """

    def __init__(self, declaration: Declaration, path: Path, tmp_dir: Path) -> None:
        self._declaration = declaration
        self._files = declaration.own_files
        self._path = path
        self._folders = (tmp_dir, path.parent)

    def splits(self) -> Iterator[Split]:
        """Yields the splits with their own files."""
        for split in self._files.splits:
            if not self._files.of(split).is_held_out:
                yield split

    def paths(self, split: Split) -> list[Path]:
        """Returns the files or folders of a split, existing or not; for a held-out split, train's.

        A pattern gives its matches, sorted.

        Raises:
          RegistryError: a pattern is invalid, or parallel patterns differ in number of matches.
        """
        return [path for files in self._groups(split) for path in files.values()]

    def check(self) -> None:
        """Checks that all files exist, and each belongs to one split only.

        Raises:
          DataError: files are missing; all are named.
          RegistryError: the same file is in two splits.
        """
        named = {split: self.paths(split) for split in self.splits()}
        if missing := [path for paths in named.values() for path in paths if not path.exists()]:
            paths = "\n  ".join(dict.fromkeys(str(path) for path in missing))
            raise DataError(
                f"{self._declaration.problem!r} ({self._path}) reads files that are not there:\n"
                f"  {paths}\nPut them into the folder of raw files (--tmp_dir), or beside the "
                'declaration, or fix its "files".'
            )
        for first, second in itertools.combinations(named, 2):
            of_first = {path.resolve() for path in named[first]}
            both = [path for path in named[second] if path.resolve() in of_first]
            if both and not self._files.of(first).excludes(self._files.of(second)):
                one, other = first.name.lower(), second.name.lower()
                raise mistake(
                    self._path,
                    f"files.{other}",
                    f"{both[0]} is read for {one!r} too, so what is learnt would be measured on "
                    f'itself. Name the files of each one by one ("{one}": ["a.csv", "b.csv"]), by '
                    "a pattern that does not fit the other's, or by the values of a column "
                    f'({{"path": "a.csv", "where": {{"split": "{other}"}}}}), or hold out a part '
                    f'of the training rows: "{other}": 0.05.',
                )

    def check_where(self, split: Split, values: Mapping[str, Any]) -> None:
        """Raises RegistryError if a row lacks a column by which rows are chosen."""
        for name in self._rows(split).where:
            if name not in values:
                what = f"there is no column {name!r}.{nearest(name, values)}"
                raise mistake(self._path, f"files.{split.name.lower()}", what)

    def raw_files(self) -> list[Path]:
        """Returns all plain files, including those in declared folders, and image labels."""
        found: list[Path] = []
        for split in self.splits():
            rows = self._files.of(split)
            for path in self.paths(split):
                found += [path] if rows.parallel else self._files_in(path)
        return list(dict.fromkeys(found))

    def records(self, split: Split, bad: BadRecords) -> Iterator[Record]:
        """Yields the rows of a split's files, file by file.

        Raises:
          DataError: a file cannot be read, or a row is bad and `bad` does not skip it.
          RegistryError: the options do not fit the format.
        """
        rows = self._rows(split)
        for _, one in self.opened(split, bad):
            yield from (r for r in one if rows.holds(r.values)) if rows.where else one

    def opened(self, split: Split, bad: BadRecords) -> Iterator[tuple[str, Iterator[Record]]]:
        """Yields the format and the rows of each file, or of each group of parallel files."""
        for files in self._groups(split):
            format_name = self._format(files[""]) if "" in files else "parallel"
            yield format_name, self._open(files, format_name, bad)

    def _source(self, split: Split) -> Split:
        """Returns the split that has the files of a split: for a held-out one, train."""
        return Split.TRAIN if self._files.of(split).is_held_out else split

    def _rows(self, split: Split) -> schema.Rows:
        """Returns the source of a split's rows; for a held-out split, train's."""
        return self._files.of(self._source(split))

    def _groups(self, split: Split) -> list[dict[str, Path]]:
        """Returns parallel files by field, matches of patterns in order; others alone, by ""."""
        rows = self._rows(split)
        if not rows.parallel:
            return [{"": path} for name in rows.paths for path in self._found(name, split)]
        found = {field: self._found(name, split) for field, name in rows.parallel.items()}
        counts = {field: len(paths) for field, paths in found.items()}
        if len(set(counts.values())) > 1:
            counted = ", ".join(f"{n} for {f!r} ({rows.parallel[f]})" for f, n in counts.items())
            what = f"as many files for each field were expected, not {counted}."
            raise mistake(self._path, f"files.{self._source(split).name.lower()}", what)
        return [dict(zip(found, paths, strict=True)) for paths in zip(*found.values(), strict=True)]

    def _open(
        self, files: Mapping[str, Path], format_name: str, bad: BadRecords
    ) -> Iterator[Record]:
        path, options = next(iter(files.values())), dict(self._declaration.options)
        if "" not in files:
            # The reader resolves paths in the first file's folder: use absolute ones.
            options["files"] = {field: str(one.absolute()) for field, one in files.items()}
        try:
            yield from open_records(path, format=format_name, bad=bad, options=options)
        except UsageError as error:
            raise mistake(self._path, "options", str(error)) from None

    def _format(self, path: Path) -> str:
        if self._declaration.format is not None:
            return self._declaration.format
        try:
            return format_of(path)
        except DataError as error:
            raise mistake(self._path, "format", f"is missing. {error}") from None

    def _found(self, name: str, split: Split) -> list[Path]:
        """Returns the matches of a path or pattern; the expected path if nothing exists."""
        try:
            expanded = resolve(name)
            for folder in self._folders:
                path = folder / expanded
                if path.exists():
                    return [path]
                if any(mark in name for mark in "*?["):
                    pattern = str(expanded.relative_to(expanded.anchor))
                    if matching := sorted((folder / expanded.anchor).glob(pattern)):
                        return matching
        except (ValueError, RuntimeError, OSError) as error:  # raised by pathlib for invalid names
            what = f"{name!r} is no path and no pattern: {error}."
            raise mistake(self._path, f"files.{self._source(split).name.lower()}", what) from None
        return [self._folders[0] / expanded]

    def _files_in(self, path: Path) -> list[Path]:
        """Returns the plain files read for a path."""
        if not path.exists():  # data outlives its raw files
            return [path]
        format_name, options = self._format(path), self._declaration.options
        if format_name == "bio":
            folder = path if path.is_dir() else path.parent
            held = (file_of(folder, name) for name in options.get("files", BIO_FILES).values())
            return [one for one in held if one is not None]
        if format_name == "idx":
            with contextlib.suppress(DataError):  # reported when they are read
                return [path, labels_of(path, options.get("labels", ""))]
        if path.is_dir():
            return sorted(one for one in path.rglob("*") if one.is_file())
        return [path]


_FROM_THE_END = re.compile(r"-[1-9]\d*")
_BETWEEN_WORDS = re.compile(r"[ \t\r\n]+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_NUMBER = float(np.finfo(np.float32).max)  # numbers are stored as float32
_SUM_TOLERANCE = 1e-3  # maximum error of a sum of probabilities; same as features/label.py


class UnfitError(DataError):
    """A value is invalid for its field; the row is bad."""


class MissingColumnError(UnfitError):
    """A row lacks a column.

    Attributes:
      wanted: the missing column.
    """

    def __init__(self, wanted: str, found: Sequence[str]) -> None:
        self.wanted = wanted
        # Includes nested names; their number is small unless the file is the wrong one.
        super().__init__(f"there is no column {wanted!r}.{nearest(wanted, found[:100])}")


def picked(values: Mapping[str, Any], column: Column) -> list[Any]:
    """Returns a row's values in a field's columns.

    Raises:
      MissingColumnError: the row lacks a column.
    """
    found = []
    for name in column.column:
        if name in values:
            found.append(values[name])
        elif _FROM_THE_END.fullmatch(name) and -int(name) <= len(values):
            found.append(list(values.values())[int(name)])
        else:
            raise MissingColumnError(name, list(values))
    return found


def text(parts: Sequence[Any], column: Column) -> str:
    """Returns a text; several are joined, empty ones skipped."""
    made = any_text(parts, column)
    if not made.strip():
        raise UnfitError("an empty text")
    return made


def any_text(parts: Sequence[Any], column: Column) -> str:
    """Returns a text, possibly empty."""
    texts = [text_of_cell(part) for part in parts]
    return column.join.join(part for part in texts if part) if len(texts) > 1 else texts[0]


def sound(parts: Sequence[Any], column: Column) -> str | Path:
    """Returns the path of a sound, as it is written: see `find_sounds`; or a file of a folder."""
    return parts[0] if isinstance(parts[0], Path) else text(parts, column)


def texts(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns a list of at least one text, all non-empty."""
    made = [text_of_cell(part) for part in _listed(parts, column)]
    if not made:
        raise UnfitError("an empty list, where texts were expected")
    if not all(part.strip() for part in made):
        raise UnfitError(f"an empty text, number {[bool(t.strip()) for t in made].index(False)}")
    return made


def words(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns a list of at least one word; a string is split at spaces and tabs.

    Spaces within a word, as of Vietnamese in Universal Dependencies, become "_".
    """
    cells = (text_of_cell(part) for part in _listed(parts, column, at_blanks=True))
    made = [_BETWEEN_WORDS.sub("_", cell.strip()) for cell in cells]
    if not made:
        raise UnfitError("no words")
    if not all(made):
        raise UnfitError(f"word {made.index('') + 1} is empty")
    return made


ON = ("1", "1.0", "true", "yes")  # in lower case, as OFF: the label of the column applies
OFF = ("0", "0.0", "false", "no", "", "-1")  # -1: not judged, as in the test set of Jigsaw


def _one_hot(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns the names of the columns whose value is 1 or true.

    Raises:
      UnfitError: a value is neither on nor off.
    """
    states = [text_of_cell(part).strip().lower() for part in parts]
    for state in states:
        if state not in ON + OFF:
            raise UnfitError(f"{_short(state)} is neither 0 nor 1, nor false nor true")
    return [name for name, state in zip(column.column, states, strict=True) if state in ON]


def label(parts: Sequence[Any], column: Column) -> str:
    """Returns a label."""
    if column.one_hot:
        parts = _one_hot(parts, column)
        if len(parts) != 1:
            raise UnfitError(f"{len(parts)} labels, where one was expected")
    made = text(parts, column)
    if "\n" in made or "\r" in made:
        raise UnfitError(f"the label {_short(made)} holds a line break")
    return made


def labels(parts: Sequence[Any], column: Column) -> list[str]:
    """Returns zero or more labels; whitespace around the labels in a string is stripped."""
    if column.one_hot:
        return _one_hot(parts, column)
    made = _listed(parts, column)
    if column.split is not None:
        made = [part.strip() if isinstance(part, str) else part for part in made]
        made = [part for part in made if part != ""]
    return [label([part], column) for part in made]


def numbers(parts: Sequence[Any], column: Column) -> list[float]:
    """Returns finite numbers."""
    made: list[float] = []
    for part in parts:
        held = list_of(part) or [part]
        if isinstance(part, str) and column.split is not None:
            held = parts_of(part, column.split)
        made += map(number_of, held)
    return made


def number_of(value: Any) -> float:
    """Returns a finite number of 32 bits; rejects true and 1_000.

    Raises:
      UnfitError: not a number, or too large.
    """
    if isinstance(value, bool | np.bool_) or (isinstance(value, str) and "_" in value):
        raise UnfitError(f"{_short(value)} is no number")
    try:
        number = float(value)
    except OverflowError:  # from a large integer
        number = math.inf
    except (TypeError, ValueError):
        raise UnfitError(f"{_short(value)} is no number") from None
    if not math.isfinite(number):
        raise UnfitError(f"{_short(value)} is no finite number")
    if abs(number) > _MAX_NUMBER:
        raise UnfitError(f"{_short(value)} is too great: numbers are stored in 32 bits")
    return number


def answers(parts: Sequence[Any], column: Column) -> list[dict[str, Any]]:
    """Returns answers as {"text", "start"}; a string has no start, an empty one means no answer."""
    made: list[dict[str, Any]] = []
    held = parts[0]
    if isinstance(held, Mapping) and isinstance(held.get("text"), list):  # as in `datasets`
        starts = held.get("answer_start", held.get("start"))
        names = ("text",) if starts is None else ("text", "start")
        columns = (held["text"],) if starts is None else (held["text"], starts)
        held = [dict(zip(names, one, strict=False)) for one in zip(*columns, strict=False)]
    for part in list_of(held) or ([held] if held else []):
        if isinstance(part, str):
            made.append({"text": part})
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            start = part.get("start", part.get("answer_start"))
            place = {} if start is None else {"start": _whole(start, "answer_start")}
            made.append({"text": part["text"], **place})
        else:
            raise UnfitError(f'{_short(part)} is no answer: {{"text", "start"}} was expected')
    return made


def located(found: Sequence[Mapping[str, Any]], context: str) -> list[dict[str, Any]]:
    """Returns answers with the character offset of each in the context.

    Raises:
      UnfitError: an answer does not occur in the context.
    """
    made = []
    for answer in found:
        start = answer["start"] if "start" in answer else context.find(answer["text"])
        end = start + len(answer["text"])
        if start < 0 or not answer["text"].strip() or context[start:end] != answer["text"]:
            where = f"at character {start} of" if "start" in answer else "in"
            raise UnfitError(f"the answer {_short(answer['text'])} is not {where} its context")
        made.append({"text": answer["text"], "start": start})
    return made


def image(parts: Sequence[Any], column: Column) -> Any:
    """Returns an image's pixels, or the bytes of its file."""
    if isinstance(parts[0], bytes):
        return parts[0]
    pixels = np.asarray(parts[0])
    if pixels.ndim not in (2, 3) or pixels.dtype.kind not in "iu":
        raise UnfitError(f"no picture but {pixels.dtype} {pixels.shape}")
    if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 255):
        raise UnfitError("pixels are not from 0 to 255")
    return pixels.astype(np.uint8)


def probabilities(parts: Sequence[Any], column: Column) -> dict[str, float]:
    """Returns a probability for each label: of a mapping, or of a column for each label."""
    held = parts[0] if len(parts) == 1 else dict(zip(column.column, parts, strict=True))
    if not isinstance(held, Mapping):
        raise UnfitError(f"{_short(held)} is no mapping of labels to probabilities")
    made = {str(name): number_of(0.0 if value is None else value) for name, value in held.items()}
    good = min(made.values(), default=-1.0) >= 0
    if not good or not math.isclose(sum(made.values()), 1.0, abs_tol=_SUM_TOLERANCE):
        raise UnfitError(f"{_short(made)} is no distribution: their sum is to be 1")
    return made


def gazetteer(parts: Sequence[Any], column: Column) -> dict[int, dict[str, float]]:
    """Returns the labels and weights of each word, by word index, from 0.

    A value is a list with one mapping per word, or PyText's list of {"tokenIdx", "features"}, which
    omits words without labels; either may be a JSON string.
    """
    held = parts[0]
    if isinstance(held, str):
        try:
            held = json.loads(held or "[]")
        except (ValueError, RecursionError):
            raise UnfitError(f"{_short(held)} is no JSON list") from None
    entries = [] if held is None else list_of(held)
    if entries is None:
        raise UnfitError(f"{_short(held)} is no list with labels and weights for each word")
    made: dict[int, dict[str, float]] = {}
    following = 0
    for entry in entries:
        place, weights = following, entry
        if isinstance(entry, Mapping) and entry.keys() == {"tokenIdx", "features"}:
            place, weights = _whole(entry["tokenIdx"], "tokenIdx"), entry["features"]
        if place < 0:
            raise UnfitError(f"tokenIdx {place} is no place of a word: they count from 0")
        if not isinstance(weights, Mapping | None):
            raise UnfitError(f"{_short(weights)} is no mapping of labels to weights")
        following = max(following, place + 1)
        made[place] = {str(name): number_of(weight) for name, weight in (weights or {}).items()}
    return made


_CONVERSIONS: Mapping[FieldType, Callable[[Sequence[Any], Column], Any]] = {
    FieldType.TEXT: text,
    FieldType.ANY_TEXT: any_text,
    FieldType.TEXTS: texts,
    FieldType.WORDS: words,
    FieldType.TAGS: words,
    FieldType.LABEL: label,
    FieldType.LABELS: labels,
    FieldType.NUMBERS: numbers,
    FieldType.ANSWERS: answers,
    FieldType.TREE: text,
    FieldType.IMAGE: image,
    FieldType.SOUND: sound,
    FieldType.PROBABILITIES: probabilities,
    FieldType.GAZETTEER: gazetteer,
}
"""Functions of a row's values in a field's columns; they raise UnfitError or ValueError."""


def _listed(parts: Sequence[Any], column: Column, *, at_blanks: bool = False) -> list[Any]:
    """Returns the parts of all columns; strings are split as declared."""
    if len(parts) > 1:
        return [one for part in parts for one in _listed([part], column, at_blanks=at_blanks)]
    if (held := list_of(parts[0])) is not None:
        return held
    if parts[0] is None:
        return []
    if column.split is not None:
        return parts_of(text_of_cell(parts[0]), column.split)
    if at_blanks:
        return split_at_blanks(text_of_cell(parts[0]))
    raise UnfitError(
        f"{_short(parts[0])} is one text, where a list was expected; say what separates its parts: "
        f'{{"column": "{column.column[0]}", "split": ","}}'
    )


def _whole(value: Any, what: str) -> int:
    """Returns an integer, also from a string or from 6.0."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    raise UnfitError(f"{what} {_short(value)} is no whole number")


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


_OF_FEATURES = {
    "gazetteer": FieldType.GAZETTEER,
    "dense": FieldType.NUMBERS,
    "weight": FieldType.NUMBERS,
}
"""Types of the fields whose columns are in "features"."""


class SampleMaker:
    """Converts rows to samples.

    Args:
      declaration: the declaration.
      kind: its kind.
      columns: by field of a sample, its column.
      sizes: by numeric field, the required number of values.

    Attributes:
      labelled: fields of labels and tags.
      say: receives messages about rows that are held out.
    """

    def __init__(
        self,
        declaration: Declaration,
        kind: schema.ProblemKind,
        columns: Mapping[str, Column],
        sizes: Mapping[str, int],
    ) -> None:
        self._kind = kind
        self._labels = frozenset(declaration.labels)
        self._merged = declaration.merge_labels
        self._sizes = sizes
        files = declaration.own_files
        self._parts = [(split, files.of(split).part) for split in files.splits]
        self._wanted = {s: files.of(s).rows for s in files.splits if files.of(s).rows}
        self._split_by = Column(column=declaration.split_by) if declaration.split_by else None
        beside = declaration.features
        types = {**kind.fields, **_OF_FEATURES}
        if beside.soft_labels:
            types["targets"] = FieldType.PROBABILITIES
        dense = beside.dense and beside.dense.column
        given = {"gazetteer": beside.gazetteer, "dense": dense, "weight": beside.weight, **columns}
        self._fields = [
            (f, value, column) for f, value in types.items() if (column := given.get(f))
        ]
        # Most fields are texts of one column and need no conversion.
        self._texts = {
            field
            for field, value, column in self._fields
            if value is FieldType.TEXT and len(column.column) == 1
        }
        self.labelled = [field for field, value, _ in self._fields if value in schema.LABELLED]
        aligned = (FieldType.TREE, FieldType.TAGS, FieldType.GAZETTEER)
        self.say: Callable[[str], None] = logging.warning
        self._sounds = [field for field, value, _ in self._fields if value is FieldType.SOUND]
        self._is_aligned = any(value in aligned for _, value, _ in self._fields)

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of all fields, including additional features."""
        return {field: column for field, _, column in self._fields}

    def find_sounds(self, sample: dict[str, Any], record: Record) -> None:
        """Replaces the written paths of sounds by paths from the folder of the record's file.

        Raises:
          UnfitError: a path leads to no file.
        """
        for field in self._sounds:
            if isinstance(sample[field], Path):
                continue
            path = record.place.path.parent / sample[field].strip()
            if not path.is_file():
                raise UnfitError(f"{path} is not there")
            sample[field] = path

    def sample(
        self, row: Mapping[str, Any], fields: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Returns the sample of a row, by field.

        Args:
          row: the row.
          fields: the fields that are needed, whose columns the row has; None: all.

        Raises:
          MissingColumnError: the row lacks a column.
          UnfitError: a value is invalid for its field; names the column.
        """
        made: dict[str, Any] = {}
        for field, value, column in self._fields:
            if fields is not None and field not in fields:
                continue
            held = row.get(column.column[0]) if field in self._texts else None
            if type(held) is str and held and not held.isspace():
                made[field] = held
            else:
                self._make(made, row, field, value, column)
        if self._is_aligned:
            self._check_words(made)
        if "weight" in made:
            made["weight"] = made["weight"][0]
        return made

    def _make(
        self,
        made: dict[str, Any],
        row: Mapping[str, Any],
        field: str,
        value: FieldType,
        column: Column,
    ) -> None:
        """Adds a field to a sample."""
        try:
            made[field] = _CONVERSIONS[value](picked(row, column), column)
            if (
                self._merged
                and value in schema.LABELLED
                and not isinstance(held := made[field], Mapping)
            ):
                merged = [self._merged.get(one, one) for one in _items(held)]
                made[field] = merged[0] if isinstance(held, str) else merged
            self._check(field, value, made)
        except MissingColumnError:
            raise
        except (UnfitError, ValueError) as error:
            names = ", ".join(map(repr, column.column))
            message = str(error).rstrip(".")
            raise UnfitError(f"column {names} ({field!r}): {message}.") from None

    def _check(self, field: str, value: FieldType, made: dict[str, Any]) -> None:
        """Raises UnfitError if a value contradicts the declaration or the other fields."""
        if self._labels and value in schema.LABELLED:
            held = made[field] if isinstance(made[field], list | dict) else [made[field]]
            unknown = next((label for label in held if label not in self._labels), None)
            if unknown is not None:
                raise UnfitError(f"{unknown!r} is no label.{nearest(unknown, self._labels)}")
        if value is FieldType.NUMBERS and len(made[field]) != self._sizes[field]:
            raise UnfitError(f"{len(made[field])} numbers, not {self._sizes[field]}")
        if field == "weight" and made[field][0] < 0:
            raise UnfitError(f"{made[field][0]} is no weight: it is below 0")
        if value is FieldType.ANSWERS:
            made[field] = located(made[field], made["context"])

    def _check_words(self, made: dict[str, Any]) -> None:
        """Parses trees; UnfitError unless words, tags and leaves have the same number."""
        there = [(field, value) for field, value, _ in self._fields if field in made]
        for field, value in there:
            if value is FieldType.TREE:
                try:
                    made[field] = parse_tree(made[field])
                except DataError as error:
                    raise UnfitError(f"no tree ({field!r}): {error}") from None
                leaves = made[field].words
                if made.setdefault("inputs", leaves) != leaves:
                    raise UnfitError(f"the words are not those of the tree: {' '.join(leaves)!r}.")
        for field, value in there:
            if value not in (FieldType.TAGS, FieldType.GAZETTEER):
                continue
            held, words = made[field], len(made["inputs"])
            count = len(held) if value is FieldType.TAGS else max(held, default=-1) + 1
            if count > words or (value is FieldType.TAGS and count < words):
                raise UnfitError(f"{words} words, but {count} in {field!r}.")
            if value is FieldType.GAZETTEER:
                made[field] = [held.get(place, {}) for place in range(words)]

    def split(
        self,
        row: Mapping[str, Any],
        sample: Mapping[str, Any],
        held_out: Mapping[int, Split] = MappingProxyType({}),
    ) -> Split:
        """Returns the split of a training row when part of the rows is held out.

        Depends only on the row's group, so a row keeps its split when rows are added, except where
        a number of rows is held out.

        Args:
          row: the row.
          sample: its sample.
          held_out: result of `hold_out`.

        Raises:
          MissingColumnError: the row lacks a column of "split_by".
        """
        group = self.group(row, sample)
        if group in held_out:
            return held_out[group]
        share = group / 2**64
        for split, part in self._parts:
            if share < part:
                return split
            share -= part
        return Split.TRAIN

    def hold_out(self, rows: Callable[[], Iterator[Record]], asked: Split) -> dict[int, Split]:
        """Returns the groups that are held out where a number of rows is declared.

        Groups are sorted by their label (the rarest of several labels or tags), then by hash, and
        taken at equal distances: labels have the same shares in all splits.  A label of at least
        three groups is in each of them, one of a single group in training only, as far as the
        number allows: at most half more than it is held out, and at most half of all groups.

        Args:
          rows: returns all training rows.
          asked: split that is read; labels that are absent from it or from training are reported.

        Raises:
          DataError: the rows have too few groups for the split, or too many; or more than half of
            them are declared as held out.
        """
        sizes: Counter[int] = Counter()
        labels: dict[int, set[str]] = {}
        for record in rows() if self._wanted else ():
            if len(labels) > _MOST_GROUPS:
                raise DataError(
                    f"more than {_MOST_GROUPS:,} inputs are too many to hold out a number of rows. "
                    'Hold out a share of them: "eval": 0.05.'
                )
            with contextlib.suppress(UnfitError):  # reported when samples are made
                sample = self.sample(record.values)
                group = self.group(record.values, sample)
                sizes[group] += 1
                labels.setdefault(group, set()).update(self.labels_of(sample))
        wanted = sum(self._wanted.values())
        if wanted * 2 > sizes.total() > 0 and asked is not Split.TRAIN:
            raise DataError(
                f"{wanted:,} of {sizes.total():,} training rows cannot be held out: at least half "
                f'must remain for training. Declare at most {{"rows": {sizes.total() // 2}}}.'
            )
        held: dict[int, Split] = {}
        for split, wanted in self._wanted.items():
            drawn = _drawn(labels, sizes, held, wanted)
            if not drawn and split is asked:
                raise DataError(
                    f"none of the training rows can be held out for {split.name.lower()!r}: equal "
                    f"inputs stay together, and only {len(labels):,} are distinct. Give a file of "
                    f'other inputs: "files": {{"{split.name.lower()}": ...}}.'
                )
            held |= dict.fromkeys(drawn, split)
        kept, there = (
            set().union(*(labels[one] for one in labels if held.get(one, Split.TRAIN) is split))
            for split in (Split.TRAIN, asked)
        )
        for place, absent in (("training", there - kept), (asked.name.lower(), kept - there)):
            if absent and asked in self._wanted:
                names = listed(sorted(absent))
                self.say(f"{len(absent):,} labels are absent from {place!r}: {names}.")
        return held

    def group_text(self, sample: Mapping[str, Any]) -> str:
        """Returns the texts of a sample by which it is held out; "" for pictures and sounds."""
        parts = [sample[field] for field in self._kind.group]
        parts = [" ".join(one) if isinstance(one, list) else one for one in parts]
        return " ".join(parts) if all(isinstance(one, str) for one in parts) else ""

    def labels_of(self, sample: Mapping[str, Any]) -> Iterator[str]:
        """Yields the labels and tags of a sample, of probabilities the most probable label."""
        for field in self.labelled:
            held = sample[field]
            if isinstance(held, Mapping):
                held = max(held, key=held.__getitem__)
            yield from map(str, _items(held))

    def group(self, row: Mapping[str, Any], sample: Mapping[str, Any]) -> int:
        """Returns a hash of the row's input (for questions about a text, the text; for documents of
        a query, the query), or of the columns of "split_by": equal rows, and rows that would reveal
        an answer, share it.
        """
        if self._split_by:
            group = picked(row, self._split_by)
        else:
            group = [sample[field] for field in self._kind.group]
        if not all(type(one) is str for one in group):
            held = [one.tolist() if isinstance(one, np.ndarray) else one for one in group]
            held = ["/".join(one.parts[-2:]) if isinstance(one, Path) else one for one in held]
            group = [json.dumps(held, sort_keys=True, default=str)]
        # A lone surrogate cannot be encoded in UTF-8.
        key = "\0".join(group).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


def _items(held: Any) -> Sequence[Any]:
    return held if isinstance(held, list | tuple) else [held]


_MOST_GROUPS = 500_000  # in memory
_MOST_BEYOND = 1.5  # times the number of rows that is declared


def _drawn(
    labels: Mapping[int, set[str]], sizes: Counter[int], held: Collection[int], wanted: int
) -> list[int]:
    """Returns groups of about `wanted` rows together; see `SampleMaker.hold_out`.

    Args:
      labels: labels of each group.
      sizes: number of rows of each group.
      held: groups of another split.
      wanted: number of rows.
    """
    frequency = Counter(label for several in labels.values() for label in several)
    by_label: dict[str, list[int]] = {}
    for group in sorted(labels.keys() - held):
        rarest = min(labels[group], key=lambda label: (frequency[label], label), default="")
        by_label.setdefault(rarest, []).append(group)
    label_of = {group: label for label in sorted(by_label) for group in by_label[label]}
    room = sizes.total() / 2 - sum(sizes[group] for group in held)
    most = limit = min(_MOST_BEYOND * wanted, room)
    # A text that is in many rows would be much of the split, too.
    if sum(size for group, size in sizes.items() if size <= wanted // 4) >= 2 * wanted:
        most = wanted // 4
    small = [group for group in label_of if sizes[group] <= most]
    order = [group for group in small if len(by_label[label_of[group]]) > 1]
    distance = max(2.0, sizes.total() / wanted)
    places = (int((number + 0.5) * distance) for number in range(len(order)))
    evenly = [order[place] for place in places if place < len(order)]
    left = Counter(label_of.values())
    each = (
        min(several, key=sizes.__getitem__)
        for label, several in by_label.items()
        if left[label] == len(several) > 2
    )
    by_hash = sorted(small, key=lambda group: group % 2**32)
    chosen: set[int] = set()
    count = 0
    # Each with the number of rows that is enough, and the number of groups that a label keeps.
    steps = [(evenly, limit, 1), (each, limit, 1), (by_hash, wanted, 1), (by_hash, wanted, 0)]
    for groups, enough, kept in steps:
        if not kept and 2 * count >= wanted:
            break
        for group in groups:
            size, label = sizes[group], label_of[group]
            fits = count < enough and count + size <= limit and left[label] > kept
            if fits and group not in chosen and 2 * (len(held) + len(chosen)) < len(labels):
                chosen.add(group)
                left[label] -= 1
                count += size
    # Where each is in more rows than are wanted, one is held out.
    smallest = sorted(label_of, key=sizes.__getitem__)[:1]
    return sorted(chosen or [group for group in smallest if sizes[group] < room])
