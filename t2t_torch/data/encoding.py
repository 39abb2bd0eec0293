"""Encoding of samples to rows of ids, in one or several processes."""

from __future__ import annotations

import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import dataclasses
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from absl import logging

from t2t_torch import registry
from t2t_torch.data.manifest import MAX_UNKNOWN_LABELS, StoredEntry
from t2t_torch.data.raw_file import samples_of, seeded
from t2t_torch.data.shards import Ragged, Rows, value_dtype
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.errors import DataError, T2TError
from t2t_torch.executor import available_cpus
from t2t_torch.features import UNKNOWN
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import MAX_LISTED, BadRecords
from t2t_torch.reporter import bar

if TYPE_CHECKING:
    from tqdm import tqdm

    from t2t_torch.data.publish import DatasetRequest
    from t2t_torch.features import Feature, Features
    from t2t_torch.problem import Problem


# A chunk is encoded by a worker at once: large enough to hide the cost of sending it.
CHUNK_ROWS = 8192
_CHUNK_BYTES = 1 << 22  # of values, about


@dataclasses.dataclass(frozen=True)
class TaskSlice:
    """The slice of a split's samples that one of several tasks encodes: every n-th block.

    Attributes:
      task: index of the task, from 0; it has the blocks k with k % of == task.
      of: number of tasks.
    """

    task: int = 0
    of: int = 1

    def holds(self, number: int) -> bool:
        """Returns True if the sample of this index in its split belongs to this task."""
        return number // CHUNK_ROWS % self.of == self.task


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Samples of a split, by field.

    Attributes:
      where: name of the data set and the split, for messages.
      first: index of the first sample.
      columns: values of all samples by field.
      numbers: indices of the samples, if they are not consecutive.
    """

    where: str
    first: int
    columns: Mapping[str, Sequence[Any]]
    numbers: Sequence[int] | None = None

    @property
    def num_rows(self) -> int:
        """Number of samples."""
        return len(next(iter(self.columns.values())))

    def number(self, index: int) -> int:
        """Returns the index of a sample in its split."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def only(self, indices: Sequence[int]) -> Chunk:
        """Returns a chunk of some samples, given their indices in this one."""
        columns = {name: [column[i] for i in indices] for name, column in self.columns.items()}
        return Chunk(self.where, self.first, columns, [self.number(i) for i in indices])


class Chunks:
    """Splits an iterable of samples into chunks of bounded size.

    Attributes:
      num_samples: number of samples of all slices; known at the end.
    """

    def __init__(
        self,
        samples: Iterable[Mapping[str, Any]],
        fields: Iterable[str],
        where: str,
        share: TaskSlice | None = None,
    ) -> None:
        """Reads no sample yet.

        Args:
          samples: all samples of a split, in their order.
          fields: fields of each sample.
          where: name of the data set and the split, for messages.
          share: slice of the samples to take; None for all.
        """
        self.num_samples = 0
        self._samples = samples
        self._fields = list(dict.fromkeys(fields))
        self._where = where
        self._share = share or TaskSlice()

    def __iter__(self) -> Iterator[Chunk]:
        """Yields the chunks, each of consecutive samples.

        Raises:
          DataError: a sample of the slice does not have exactly these fields.
        """
        columns = self._columns()
        holds, is_own = self._share.holds, False
        number, size = -1, 0
        for number, sample in enumerate(self._samples):
            if number % CHUNK_ROWS == 0:
                is_own = holds(number)
            if not is_own:
                continue
            if sample.keys() != columns.keys():
                raise DataError(
                    f"{self._where}: sample {number} has {', '.join(sample) or 'nothing'}; the "
                    f"problem's features need {', '.join(self._fields)}. Fix its generate_samples."
                )
            for name, column in columns.items():
                value = sample[name]
                column.append(value)
                size += len(value) if type(value) is str else _size(value)
            if (number + 1) % CHUNK_ROWS == 0 or size >= _CHUNK_BYTES:
                yield self._chunk(number, columns)
                columns, size = self._columns(), 0
        self.num_samples = number + 1
        if size or any(columns.values()):
            yield self._chunk(number, columns)

    def _columns(self) -> dict[str, list[Any]]:
        return {name: [] for name in self._fields}

    def _chunk(self, last: int, columns: Mapping[str, list[Any]]) -> Chunk:
        count = len(next(iter(columns.values())))
        return Chunk(self._where, last + 1 - count, columns)


def _size(value: Any) -> int:
    """Returns the approximate size of a value in bytes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return 8 * len(value) if hasattr(value, "__len__") else 8


# Rows encoded in this process before a pool is started, if the caller leaves the choice to us: the
# pool's start costs CPU time worth some 10,000 sentences, and small data need not be twice as fast.
_ROWS_BEFORE_POOL = 1 << 18

# Python's own are 700, 10, 10.
_COLLECTIONS = (100_000, 20, 20)

# Errors of encoders for values of a wrong type: None, a number for a text, a lone surrogate.
_UNFIT = (T2TError, ValueError, TypeError, KeyError, AttributeError, OverflowError)


@dataclasses.dataclass(frozen=True)
class MakeFeatures:
    """Creates the features of a problem in a worker process, which imports users' folders first."""

    problem: Problem
    data_dir: Path
    usr_dirs: Sequence[str] = ()

    def __call__(self) -> Features:
        """Creates the features."""
        for directory in self.usr_dirs:
            registry.import_usr_dir(directory)
        return self.problem.stored_features(self.data_dir)


@dataclasses.dataclass(frozen=True)
class EncodedChunk:
    """An encoded chunk.

    Attributes:
      chunk_rows: number of its samples.
      rows: rows of the encoded samples.
      numbers: indices of the encoded samples, ascending, [rows] int64.
      unfit: index and reason of each invalid sample, ascending; empty unless they are skipped.
    """

    chunk_rows: int
    rows: Rows
    numbers: npt.NDArray[np.int64]
    unfit: Sequence[tuple[int, str]] = ()


class Encoder:
    """Encodes chunks in order; the result does not depend on the number of processes.

    A context manager: its exit ends the worker processes, immediately after an exception.
    """

    def __init__(
        self,
        features: Features,
        make_features: MakeFeatures,
        num_processes: int | None = None,
        *,
        skip_unfit: bool = False,
    ) -> None:
        """Starts no process yet.

        Args:
          features: features for encoding in this process.
          make_features: creates the same features in a worker process.
          num_processes: number of processes; 1 encodes in this one.  None uses all CPUs of this
            process as soon as the data is large enough to justify their start.
          skip_unfit: True to skip and list samples that cannot be encoded; False: they are errors.
        """
        self._features = features.stored
        self._skip_unfit = skip_unfit
        self._make_features = make_features
        self._rows_before_pool = _ROWS_BEFORE_POOL if num_processes is None else 0
        self._num_processes = num_processes or available_cpus()
        if self._num_processes > 1:
            try:
                pickle.dumps(make_features)
            except Exception:
                logging.warning("The problem cannot be pickled, so one process encodes.")
                self._num_processes = 1
        self._rows = 0
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[EncodedChunk]:
        """Encodes every chunk; holds at most two chunks per worker at a time.

        Raises:
          DataError: a sample cannot be encoded and is not skipped (the message has split, sample
            and feature), or a worker died.
        """
        waiting: collections.deque[concurrent.futures.Future[EncodedChunk]] = collections.deque()
        try:
            for chunk in chunks:
                if self._num_processes == 1 or self._rows < self._rows_before_pool:
                    self._rows += chunk.num_rows
                    yield encode_chunk(self._features, chunk, skip_unfit=self._skip_unfit)
                    continue
                waiting.append(self._started_pool().submit(_encode_in_worker, chunk))
                if len(waiting) >= 2 * self._num_processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except concurrent.futures.process.BrokenProcessPool:
            raise DataError(
                f"One of {self._num_processes} encoding processes died, perhaps for want of "
                "memory. Run it again with --num_concurrent_processes=1."
            ) from None

    def _started_pool(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._pool is None:
            # spawn: a fork would copy the locks of whatever threads this process has.
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._num_processes,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(self._make_features, self._skip_unfit),
            )
        return self._pool


def encode_chunk(
    features: Mapping[str, Feature], chunk: Chunk, *, skip_unfit: bool = False
) -> EncodedChunk:
    """Encodes the samples of a chunk.

    Raises:
      DataError: a sample cannot be encoded, and `skip_unfit` is False; names the first one.
    """
    with contextlib.suppress(*([DataError] if skip_unfit else [])):
        rows = _encode_columns(features, chunk)
        return EncodedChunk(chunk.num_rows, rows, chunk.first + np.arange(chunk.num_rows))
    unfit = {}
    for index in range(chunk.num_rows):
        try:
            _encode_columns(features, chunk.only([index]))
        except DataError as error:
            unfit[index] = str(error)
    indices = [index for index in range(chunk.num_rows) if index not in unfit]
    return EncodedChunk(
        chunk.num_rows,
        _encode_columns(features, chunk.only(indices)),
        chunk.first + np.array(indices, dtype=np.int64),
        [(chunk.first + index, why) for index, why in unfit.items()],
    )


def _encode_columns(features: Mapping[str, Feature], chunk: Chunk) -> Rows:
    return {
        name: _encode_column(feature, name, chunk.columns[feature.source or name], chunk)
        for name, feature in features.items()
    }


def lowest_id(feature: Feature) -> int:
    """Returns the lowest id that `encode` returns: `UNKNOWN` if a label may be unknown."""
    return UNKNOWN if feature.vocab_size and feature.allow_unknown else 0


def _encode_column(feature: Feature, name: str, column: Sequence[Any], chunk: Chunk) -> Ragged:
    dtype = value_dtype(feature.arrow_type)
    try:
        rows = Ragged.from_lists(feature.encode_batch(column), dtype)
    except _UNFIT as error:
        raise _located(error, feature, name, column, chunk) from error
    size = feature.vocab_size
    low = lowest_id(feature)
    if size and len(rows.values) and not low <= rows.values.min() <= rows.values.max() < size:
        raise DataError(
            f"{chunk.where}, samples from {chunk.number(0)} on: {name!r} encodes to ids from "
            f"{rows.values.min()} to {rows.values.max()}; its vocabulary has {size}, so {low} to "
            f"{size - 1} were expected. Fix the encoder, or its vocab_size."
        )
    return rows


def _located(
    error: Exception, feature: Feature, name: str, column: Sequence[Any], chunk: Chunk
) -> DataError:
    """Returns the error with the index and the text of the sample that causes it."""
    hint = ""
    for index, value in enumerate(column):
        try:
            feature.encode(value)
        except Exception:
            if isinstance(value, Path):
                hint = "  Fix the file, or skip such samples:  --on_bad_record=skip"
            text = f"'{value}'" if isinstance(value, Path) else repr(value)
            text = text if len(text) <= 80 or isinstance(value, Path) else f"{text[:77]}..."
            place = f"sample {chunk.number(index)}, {name!r} is {text}"
            break
    else:
        place = f"samples from {chunk.number(0)} on, {name!r}"
    return DataError(f"{chunk.where}, {place}, which cannot be encoded: {error}{hint}")


# State of a worker process; set once when it starts.
_worker_features: Mapping[str, Feature] = {}
_worker_skips_unfit = False


def _start_worker(make_features: MakeFeatures, skip_unfit: bool) -> None:
    global _worker_features, _worker_skips_unfit
    # Control-C reaches the whole group of processes; the parent alone ends the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _worker_features, _worker_skips_unfit = make_features().stored, skip_unfit
    # Encoding makes millions of small lists and no cycles; looking for those took a tenth of it.
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


def _follow_parent() -> None:
    """Exits this process when its parent is killed; otherwise it would wait forever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(chunk: Chunk) -> EncodedChunk:
    return encode_chunk(_worker_features, chunk, skip_unfit=_worker_skips_unfit)


class ShareEntry(StoredEntry):
    """Statistics of a slice; those of all slices add up to the split.

    Attributes:
      samples: number of samples of the split, of all slices.
      rows: number of encoded samples of the slice.
      tokens: sum of the row lengths by feature.
      max_length: maximum of the row lengths by feature.
      unread: number of skipped records of raw files, of all slices.
      unread_listed: location and reason of the first of them.
      unknown: number of labels by feature that are not in the training data, if any.
      unknown_labels: the first of these labels, by feature.
      unfit: number of samples of the slice that could not be encoded and were skipped.
      unfit_listed: index and reason of the first of them.
    """

    samples: int
    rows: int
    tokens: Mapping[str, int]
    max_length: Mapping[str, int]
    unknown: Mapping[str, int] = {}
    unknown_labels: Mapping[str, Sequence[str]] = {}
    unread: int
    unread_listed: Sequence[str]
    unfit: int
    unfit_listed: Sequence[tuple[int, str]]

    @property
    def skipped(self) -> int:
        """Number of skipped rows, for any reason."""
        return self.unread + self.unfit

    def lines(self) -> list[str]:
        """Returns location and reason of skipped rows; the last line counts those not listed."""
        listed = [*self.unread_listed, *(why for _, why in self.unfit_listed)]
        more = self.skipped - len(listed)
        return [*listed, f"and {more} more"] if more else listed


class RowLengths:
    """Sum and maximum of the row lengths of features, by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.total = dict.fromkeys(names, 0)
        self.longest = dict.fromkeys(self.total, 0)

    def add(self, rows: Rows) -> None:
        """Counts rows."""
        for name, column in rows.items():
            self.total[name] += len(column.values)
            self.longest[name] = max(self.longest[name], int(column.lengths.max(initial=0)))


def _watched(
    samples: Iterable[dict[str, Any]], features: Features, found: Mapping[str, dict[str, None]]
) -> Iterator[dict[str, Any]]:
    """Yields samples; collects the first of their labels that the vocabularies of labels lack.

    Args:
      samples: samples of a split.
      features: features of the problem.
      found: by feature, the labels so far in the order of the samples.
    """
    kinds: Mapping[str, Any] = features.all
    known = {name: frozenset(kinds[name].encoder.labels) for name in found}
    for sample in samples:
        for name, labels in found.items():
            value = sample.get(features.sources[name])
            for label in value if isinstance(value, list | tuple) else [value]:
                if (text := str(label)) not in known[name] and len(labels) < MAX_UNKNOWN_LABELS:
                    labels.setdefault(text)
        yield sample


def encode_share(
    request: DatasetRequest,
    split: Split,
    features: Features,
    encoder: Encoder,
    shuffle: Shuffle,
    *,
    share: TaskSlice | None = None,
    progress: bool,
) -> ShareEntry:
    """Generates all samples of a split, encodes those of a slice and passes them to `shuffle`.

    Raises:
      DataError: a raw file is malformed or a sample cannot be encoded, and it is not skipped.
    """
    problem, where = request.problem, request.where(split)
    lengths = RowLengths(features.stored)
    unknown = {name: 0 for name, feature in features.all.items() if lowest_id(feature) == UNKNOWN}
    unknown_labels: dict[str, dict[str, None]] = {name: {} for name in unknown}
    unfit: list[tuple[int, str]] = []
    num_unfit = 0
    problem.bad_records = unread = BadRecords(request.on_bad_record)
    with seeded(request.seed, split.value), row_bar(where, show=progress) as bar:
        watched = _watched(samples_of(problem, request.raw_folder, split), features, unknown_labels)
        limited = itertools.islice(watched, request.max_cases or None)
        chunks = Chunks(limited, features.sources.values(), where, share)
        for encoded in encoder.encode(chunks):
            lengths.add(encoded.rows)
            for name in unknown:
                unknown[name] += int((encoded.rows[name].values == UNKNOWN).sum())
            shuffle.add(encoded.rows, encoded.numbers)
            num_unfit += len(encoded.unfit)
            unfit += encoded.unfit[: MAX_LISTED - len(unfit)]
            bar.update(encoded.chunk_rows)
    prefix = f"{request.raw_folder}/"  # the same lines wherever the raw files are
    return ShareEntry(
        samples=chunks.num_samples,
        rows=shuffle.num_rows,
        tokens=lengths.total,
        max_length=lengths.longest,
        unknown={name: count for name, count in unknown.items() if count},
        unknown_labels={name: list(unknown_labels[name]) for name in unknown if unknown[name]},
        unread=unread.count,
        unread_listed=[message.removeprefix(prefix) for message in unread.listed],
        unfit=num_unfit,
        unfit_listed=unfit,
    )


def whole(shares: Sequence[ShareEntry], where: str) -> ShareEntry:
    """Returns the combined statistics of all slices of a split.

    Raises:
      DataError: they were not made from the same samples, or there are no rows.
    """
    first = shares[0]
    for task, share in enumerate(shares):
        if (share.samples, share.unread) != (first.samples, first.unread):
            raise DataError(
                f"{where}: generate_samples gave task 0 {first.samples} samples and left out "
                f"{first.unread} records, but task {task} {share.samples} and {share.unread}. It "
                "must be deterministic. Fix it, and run the tasks with --overwrite."
            )
    rows = sum(share.rows for share in shares)
    if rows == 0:
        skipped = sum(share.skipped for share in shares)
        left_out = f"; {skipped} were skipped" if skipped else ""
        raise DataError(
            f"{where}: generate_samples gave no sample{left_out}, and at least one was expected. "
            "Look at the raw files (--tmp_dir), or take the split out of the problem's `shards`."
        )
    unfit = sorted(itertools.chain.from_iterable(share.unfit_listed for share in shares))
    changes = {
        "rows": rows,
        "tokens": {name: sum(share.tokens[name] for share in shares) for name in first.tokens},
        "max_length": {
            name: max(share.max_length[name] for share in shares) for name in first.max_length
        },
        "unknown": dict(sum((Counter(share.unknown) for share in shares), Counter())),
        "unknown_labels": {
            name: list(labels) for share in shares for name, labels in share.unknown_labels.items()
        },
        "unfit": sum(share.unfit for share in shares),
        "unfit_listed": unfit[:MAX_LISTED],
    }
    return first.model_copy(update=changes)  # samples and bad records are those of all


def row_bar(where: str, *, show: bool) -> tqdm[Any]:
    """Returns a progress bar of rows, which is shown on a terminal only."""
    return bar(show=show, desc=where, unit=" rows", unit_scale=True)
