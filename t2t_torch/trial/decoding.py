"""Writes a trial's outputs for its validation loader or an input file.

Files are npz, with arrays named after the leaves (`input1.0.sub_input1`; "input" and "output" for a
single tensor), or jsonl, with one nested record per line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch.errors import DataError, TrialError, UsageError
from t2t_torch.features import InputSpec
from t2t_torch.files import check_regular, read_lines, staged
from t2t_torch.runtime.nesting import Nesting, array_of, nesting_of, put_together, taken_apart
from t2t_torch.trial.nested import described, leaves, mapped, rows_of, unstacked
from t2t_torch.trial.predictor import OpenedRun, TrialPredictor, validation_inputs

NPZ, JSONL = ".npz", ".jsonl"

_CHUNK = 1024  # records of a jsonl file that are read at once


class TrialDecoder:
    """Decoder with a trial's model, checkpoint and loader.

    Args:
      run: opened run.
      checkpoint: see `predictor.load_trial`.

    Attributes:
      predictor: model with the weights of the checkpoint.
    """

    def __init__(self, run: OpenedRun, checkpoint: int | str | Path | None) -> None:
        self._run = run
        chosen = run.load(checkpoint)
        self.predictor = TrialPredictor(run.model, run.task.name, chosen, run.directory.path)

    def decode(self, source: Path | None, target: Path) -> int:
        """Writes the outputs and returns the number of records.

        Args:
          source: npz or jsonl file of inputs; None: the validation loader.
          target: npz or jsonl output file.

        Raises:
          DataError: the source cannot be read, or does not fit the model.
          TrialError: the model raises an error, or its outputs cannot be written.
        """
        batches = self._from_loader() if source is None else self._from_file(source)
        writing = _write_npz if target.suffix == NPZ else _write_jsonl
        return writing(target, batches)

    def _from_loader(self) -> Iterator[tuple[int, Any]]:
        """Yields the number of records and the outputs of each batch."""
        run = self._run
        for inputs in validation_inputs(run.task, run.model, run.device):
            yield rows_of(inputs), self.predictor.batch(inputs)

    def _from_file(self, source: Path) -> Iterator[tuple[int, Any]]:
        run = self._run
        like = next(validation_inputs(run.task, run.model, run.device, rows=1))
        if source.suffix == NPZ:
            yield from self._from_npz(source, like)
        else:
            yield from self._from_jsonl(source, like)

    def _from_npz(self, source: Path, like: Any) -> Iterator[tuple[int, Any]]:
        try:
            with np.load(check_regular(source), allow_pickle=False) as file:
                arrays = dict(file)
        except (OSError, ValueError) as error:
            raise DataError(f"{source} cannot be read as npz: {error}") from None
        names = [name or "input" for name, leaf in leaves(like).items() if leaf is not None]
        if sorted(arrays) != sorted(names):
            raise DataError(
                f"{source} has the arrays {', '.join(arrays) or 'none'}; expected what the loader "
                f"gives: {', '.join(names)}."
            )
        counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if len(set(counts.values())) != 1:
            raise DataError(f"{source}: its arrays have different numbers of rows: {counts}.")
        total, size = next(iter(counts.values())), max(1, rows_of(like))
        for first in range(0, total, size):
            part = {name: array[first : first + size] for name, array in arrays.items()}
            batch = mapped(like, _leaf_of(part))
            yield min(size, total - first), self.predictor.batch(batch)

    def _from_jsonl(self, source: Path, like: Any) -> Iterator[tuple[int, Any]]:
        nesting, fields = _input_specs(like)
        try:
            lines = list(read_lines(source))
        except OSError as error:
            raise DataError(f"{source} cannot be read: {error.strerror or error}.") from None
        for first in range(0, len(lines), _CHUNK):
            records = []
            for number, line in enumerate(lines[first : first + _CHUNK], start=first + 1):
                try:
                    given = dict(taken_apart(nesting, json.loads(line)))
                    arrays = {name: array_of(fields[name], leaf) for name, leaf in given.items()}
                except (DataError, ValueError) as error:
                    raise DataError(f"{source}, line {number}: {error}") from None
                records.append(mapped(like, _leaf_of(arrays)))
            for outputs in self.predictor(records):
                yield 0, outputs


def check_files(source: Path | None, target: Path) -> None:
    """Raises UsageError if a file has an unsupported format."""
    flags = {"--decode_from_file": source, "--decode_to_file": target}
    for flag, path in flags.items():
        if path is not None and path.suffix not in (NPZ, JSONL):
            raise UsageError(
                f"{flag}={path}: of a trial a file is NAME{NPZ}, arrays by name, or NAME{JSONL}, "
                "a nested record a line."
            )
    if source is not None and not source.is_file():
        raise UsageError(f"--decode_from_file={source}: there is no such file.")


def _input_specs(like: Any) -> tuple[Nesting, Mapping[str, InputSpec]]:
    """Returns the nesting of the inputs, and the specs of their arrays for one record.

    Raises:
      DataError: a leaf is not an array.
    """
    nesting = nesting_of(like, "input")
    fields = {}
    for name, leaf in taken_apart(nesting, like):
        if not isinstance(leaf, Tensor) or not leaf.dim():
            raise DataError(
                f"the model takes {name!r}, {described(leaf)}, which a line of JSON has not: give "
                "the validation loader the records, and leave --decode_from_file out."
            )
        dtype = str(leaf.dtype).removeprefix("torch.")
        fields[name] = InputSpec(name, "tensor", dtype, shape=(-1,) * (leaf.dim() - 1))
    return nesting, fields


def _leaf_of(arrays: Mapping[str, Any]) -> Callable[[str, Any], Any]:
    """Returns a function for `nested.mapped` that looks leaves up by name."""
    return lambda name, _: arrays.get(name or "input")


def _write_npz(target: Path, batches: Iterator[tuple[int, Any]]) -> int:
    columns: dict[str, list[Any]] = {}
    total = 0
    for count, outputs in batches:
        arrays = {name or "output": leaf for name, leaf in leaves(outputs).items()}
        if columns and sorted(arrays) != sorted(columns):
            raise TrialError(
                f"forward returned {', '.join(arrays)} after {', '.join(columns)}: an npz file has "
                f"an array for each. Write NAME{JSONL}."
            )
        for name, leaf in arrays.items():
            if leaf is None:
                continue
            if not isinstance(leaf, np.ndarray | np.generic):
                raise TrialError(f"the output {name!r} is {described(leaf)}, no array of an npz.")
            if count and leaf.shape[:1] != (count,):
                raise TrialError(
                    f"the output {name!r}, {described(leaf)}, has no row for each of {count} "
                    "records, so it cannot be written."
                )
            columns.setdefault(name, []).append(
                np.asarray(leaf) if count else np.asarray(leaf)[None]
            )
        total += count or 1
    for name, parts in columns.items():
        shapes = {part.shape[1:] for part in parts}
        if len(shapes) > 1:
            raise TrialError(
                f"the output {name!r} has different shapes: {sorted(map(list, shapes))[:4]}. An "
                f"npz file has one array for all: write NAME{JSONL}."
            )
    whole: Any = {name: np.concatenate(parts) for name, parts in columns.items()}
    with staged(target) as path, path.open("wb") as file:
        np.savez(file, **whole)
    return total


def _write_jsonl(target: Path, batches: Iterator[tuple[int, Any]]) -> int:
    total = 0
    with staged(target) as path, path.open("w", encoding="utf-8") as file:
        for count, outputs in batches:
            for one in unstacked(outputs, count) if count else [outputs]:
                nesting = nesting_of(one, "output")
                arrays = {name: _plain(leaf) for name, leaf in taken_apart(nesting, one)}
                plain = put_together(nesting, arrays.__getitem__, plain=True)
                file.write(json.dumps(plain, ensure_ascii=False) + "\n")
                total += 1
    return total


def _plain(leaf: Any) -> Any:
    return leaf.tolist() if isinstance(leaf, np.ndarray | np.generic) else leaf


def device() -> torch.device:
    """Returns the device for decoding: a GPU if available."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
