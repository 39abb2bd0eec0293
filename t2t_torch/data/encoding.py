"""Samples into rows of ids, in this process or in several."""

from __future__ import annotations

import collections
import concurrent.futures
import concurrent.futures.process
import dataclasses
import functools
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
import pydantic
from absl import logging
from tqdm import tqdm

from t2t_torch import registry
from t2t_torch.data.raw_file import samples_of, seeded
from t2t_torch.data.shards import Ragged, Rows, value_dtype
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.errors import DataError, T2TError
from t2t_torch.features import UNKNOWN
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import MAX_LISTED, BadRecords

if TYPE_CHECKING:
    from t2t_torch.data.publish import Request
    from t2t_torch.features import Feature, Features
    from t2t_torch.problem import Problem


# Samples in the pieces in which they are encoded, and in the shares of several tasks.


# A chunk is what one task of a worker encodes: large enough to hide the cost of sending it.
CHUNK_ROWS = 8192
_CHUNK_BYTES = 1 << 22  # of values, about


@dataclasses.dataclass(frozen=True)
class TaskSlice:
    """The part of a split's samples that one of several tasks encodes: every n-th block of them.

    Attributes:
      task: from 0; the blocks k with k % of == task are its.
      of: how many tasks there are.
    """

    task: int = 0
    of: int = 1

    def holds(self, number: int) -> bool:
        """Whether a sample, by its number in its split, is this task's."""
        return number // CHUNK_ROWS % self.of == self.task


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Samples of a split, by field.

    Attributes:
      where: the data set and the split, for messages.
      first: the number of the first sample.
      columns: for each field the values of all samples.
      numbers: of the samples, if they are not consecutive.
    """

    where: str
    first: int
    columns: Mapping[str, Sequence[Any]]
    numbers: Sequence[int] | None = None

    @property
    def num_rows(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.columns.values())))

    def number(self, index: int) -> int:
        """The number of a sample in its split."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def only(self, indices: Sequence[int]) -> Chunk:
        """Some of the samples, by their places in the chunk."""
        columns = {name: [column[i] for i in indices] for name, column in self.columns.items()}
        return Chunk(self.where, self.first, columns, [self.number(i) for i in indices])


class Chunks:
    """Cuts samples into chunks of bounded size while they are iterated over, once.

    Attributes:
      num_samples: how many samples there were, of all shares; known at the end.
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
          fields: what each has.
          where: the data set and the split, for messages.
          share: which of the samples to take; None is all.
        """
        self.num_samples = 0
        self._samples = samples
        self._fields = list(dict.fromkeys(fields))
        self._where = where
        self._share = share or TaskSlice()

    def __iter__(self) -> Iterator[Chunk]:
        """Yields the chunks, each of consecutive samples.

        Raises:
          DataError: a sample of the share has not exactly these fields.
        """
        columns = self._columns()
        holds, mine = self._share.holds, False
        number, size = -1, 0
        for number, sample in enumerate(self._samples):
            if number % CHUNK_ROWS == 0:
                mine = holds(number)
            if not mine:
                continue
            if sample.keys() != columns.keys():
                raise self._misfit(number, sample)
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

    def _misfit(self, number: int, sample: Mapping[str, Any]) -> DataError:
        return DataError(
            f"{self._where}: sample {number} has {', '.join(sample) or 'nothing'}; "
            f"the problem's features need {', '.join(self._fields)}. Mend its generate_samples."
        )


def _size(value: Any) -> int:
    """About how many bytes of values something holds."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return 8 * len(value) if hasattr(value, "__len__") else 8


# Rows encoded in this process before a pool is started, if the caller leaves the choice to us: the
# pool's start costs CPU time worth some 10,000 sentences, and small data need not be twice as fast.
_ROWS_BEFORE_POOL = 1 << 18

# Python's own are 700, 10, 10.
_COLLECTIONS = (100_000, 20, 20)

# What encoders raise for a value of the wrong kind: None, a number for a text, a lone surrogate.
_UNFIT = (T2TError, ValueError, TypeError, KeyError, AttributeError, OverflowError)


@dataclasses.dataclass(frozen=True)
class MakeFeatures:
    """Makes a problem's features; sent to worker processes, which know no user's folders yet."""

    problem: Problem
    data_dir: Path
    usr_dirs: Sequence[str] = ()

    def __call__(self) -> Features:
        """Makes them."""
        for directory in self.usr_dirs:
            registry.import_usr_dir(directory)
        return self.problem.stored_features(self.data_dir)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """What became of a chunk.

    Attributes:
      chunk_rows: how many samples it had.
      rows: those that could be encoded.
      numbers: [rows] int64, their samples' numbers, rising.
      unfit: number and reason of each that could not, rising; empty unless they are to be skipped.
    """

    chunk_rows: int
    rows: Rows
    numbers: npt.NDArray[np.int64]
    unfit: Sequence[tuple[int, str]] = ()


class Encoder:
    """Encodes chunks in order; the result does not depend on how many processes do it.

    A context manager: leaving it ends the worker processes, at once if an exception passes.
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
          features: what this process encodes with.
          make_features: makes the same in a worker process.
          num_processes: 1 encodes here; more are used from the first chunk on.  None uses all CPUs
            of this process, but only once the data proves large enough to repay their start.
          skip_unfit: samples that cannot be encoded are left out and listed; else they are errors.
        """
        self._features = features.stored
        self._skip_unfit = skip_unfit
        self._make_features = make_features
        self._rows_before_pool = _ROWS_BEFORE_POOL if num_processes is None else 0
        self._num_processes = num_processes or available_cpus()
        if self._num_processes > 1 and not _can_be_sent(make_features):
            logging.warning("The problem cannot be pickled, so one process encodes.")
            self._num_processes = 1
        self._rows = 0
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def uses_pool(self) -> bool:
        """Whether worker processes have been started."""
        return self._pool is not None

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[Encoded]:
        """Encodes every chunk; holds at most two chunks per worker at a time.

        Raises:
          DataError: a sample cannot be encoded (names split, sample and feature) and is not to be
            skipped, or a worker died.
        """
        waiting: collections.deque[concurrent.futures.Future[Encoded]] = collections.deque()
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


def available_cpus() -> int:
    """How many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def encode_chunk(
    features: Mapping[str, Feature], chunk: Chunk, *, skip_unfit: bool = False
) -> Encoded:
    """Encodes a chunk's samples.

    Raises:
      DataError: a sample cannot be encoded, and `skip_unfit` is False; names the first.
    """
    try:
        rows = _encode_columns(features, chunk)
    except DataError:
        if not skip_unfit:
            raise
    else:
        return Encoded(chunk.num_rows, rows, chunk.first + np.arange(chunk.num_rows))
    unfit = {}
    for index in range(chunk.num_rows):
        try:
            _encode_columns(features, chunk.only([index]))
        except DataError as error:
            unfit[index] = str(error)
    kept = [index for index in range(chunk.num_rows) if index not in unfit]
    return Encoded(
        chunk.num_rows,
        _encode_columns(features, chunk.only(kept)),
        chunk.first + np.array(kept, dtype=np.int64),
        [(chunk.first + index, why) for index, why in unfit.items()],
    )


def _encode_columns(features: Mapping[str, Feature], chunk: Chunk) -> Rows:
    return {
        name: _encode_column(feature, name, chunk.columns[feature.source or name], chunk)
        for name, feature in features.items()
    }


def _encode_column(feature: Feature, name: str, column: Sequence[Any], chunk: Chunk) -> Ragged:
    dtype = value_dtype(feature.arrow_type)
    try:
        rows = Ragged.from_lists(feature.encode_batch(column), dtype)
    except _UNFIT as error:
        raise _located(error, feature, name, column, chunk) from error
    size = feature.vocab_size
    low = feature.lowest_id
    if size and len(rows.values) and not low <= rows.values.min() <= rows.values.max() < size:
        raise DataError(
            f"{chunk.where}, samples from {chunk.number(0)} on: {name!r} encodes to ids from "
            f"{rows.values.min()} to {rows.values.max()}; its vocabulary has {size}, so {low} to "
            f"{size - 1} were expected. Mend the encoder, or its vocab_size."
        )
    return rows


def _located(
    error: Exception, feature: Feature, name: str, column: Sequence[Any], chunk: Chunk
) -> DataError:
    """The same error with the number and the text of the sample that causes it."""
    for index, value in enumerate(column):
        try:
            feature.encode(value)
        except Exception:
            shown = repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
            place = f"sample {chunk.number(index)}, {name!r} is {shown}"
            break
    else:
        place = f"samples from {chunk.number(0)} on, {name!r}"
    return DataError(f"{chunk.where}, {place}, which cannot be encoded: {error}")


def _can_be_sent(make_features: MakeFeatures) -> bool:
    try:
        pickle.dumps(make_features)
    except Exception:
        return False
    return True


# What a worker process encodes with; set once when it starts.
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
    """Ends this process when its parent is killed; the pool would leave it waiting forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(chunk: Chunk) -> Encoded:
    return encode_chunk(_worker_features, chunk, skip_unfit=_worker_skips_unfit)


# A task's share of a split: generated, encoded, counted, and handed to the shuffle.


class ShareEntry(pydantic.BaseModel):
    """What a share holds; shares add up to the whole split.

    Attributes:
      samples: how many samples the problem gave for the split, those of all shares.
      rows: how many of the share's samples were encoded.
      tokens: the sum of the rows' lengths, by feature.
      max_length: the greatest of the rows' lengths, by feature.
      unread: how many records of the raw files the problem left out, for all shares.
      unread_listed: place and reason of the first of them.
      unknown: by feature, how many labels are none of those of training, where there are such.
      unfit: how many of the share's samples could not be encoded and were left out.
      unfit_listed: number and reason of the first of them.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    samples: int
    rows: int
    tokens: Mapping[str, int]
    max_length: Mapping[str, int]
    unknown: Mapping[str, int] = {}
    unread: int
    unread_listed: Sequence[str]
    unfit: int
    unfit_listed: Sequence[tuple[int, str]]

    @property
    def skipped(self) -> int:
        """How many rows were left out, for whatever reason."""
        return self.unread + self.unfit

    def lines(self) -> list[str]:
        """Place and reason of what was left out; the last line says how many are not listed."""
        told = [*self.unread_listed, *(why for _, why in self.unfit_listed)]
        more = self.skipped - len(told)
        return [*told, f"and {more} more"] if more else told


def encode_share(
    request: Request,
    split: Split,
    features: Features,
    encoder: Encoder,
    shuffle: Shuffle,
    *,
    share: TaskSlice | None = None,
    progress: bool,
) -> ShareEntry:
    """Generates all samples of a split, encodes those of a share and gives them to `shuffle`.

    Raises:
      DataError: a raw file is malformed or a sample cannot be encoded, and it is not to be skipped.
    """
    problem, where = request.problem, request.where(split)
    tokens = dict.fromkeys(features.stored, 0)
    longest = dict.fromkeys(features.stored, 0)
    unknown = {name: 0 for name, feature in features.all.items() if feature.lowest_id == UNKNOWN}
    unfit: list[tuple[int, str]] = []
    num_unfit = 0
    problem.bad_records = unread = BadRecords(request.on_bad_record)
    with seeded(request.seed, split.value), _bar(where, show=progress) as bar:
        samples = samples_of(problem, request.raw_folder, split)
        limited = itertools.islice(samples, request.max_cases or None)
        chunks = Chunks(limited, features.sources.values(), where, share)
        for encoded in encoder.encode(chunks):
            for name, column in encoded.rows.items():
                tokens[name] += len(column.values)
                longest[name] = max(longest[name], int(column.lengths.max(initial=0)))
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
        tokens=tokens,
        max_length=longest,
        unknown={name: count for name, count in unknown.items() if count},
        unread=unread.count,
        unread_listed=[told.removeprefix(prefix) for told in unread.listed],
        unfit=num_unfit,
        unfit_listed=unfit,
    )


def whole(shares: Sequence[ShareEntry], where: str) -> ShareEntry:
    """What all shares of a split hold together.

    Raises:
      DataError: they were not made from the same samples, or there is no row.
    """
    first = shares[0]
    for task, share in enumerate(shares):
        if (share.samples, share.unread) != (first.samples, first.unread):
            raise DataError(
                f"{where}: generate_samples gave task 0 {first.samples} samples and left out "
                f"{first.unread} records, but task {task} {share.samples} and {share.unread}. It "
                "has to give the same each time. Mend it, and run the tasks with --overwrite."
            )
    rows = sum(share.rows for share in shares)
    if rows == 0:
        raise DataError(_nothing(where, sum(share.skipped for share in shares)))
    unfit = sorted(itertools.chain.from_iterable(share.unfit_listed for share in shares))
    return ShareEntry(
        samples=first.samples,
        rows=rows,
        tokens=functools.reduce(_added, (share.tokens for share in shares)),
        max_length=functools.reduce(_greater, (share.max_length for share in shares)),
        unknown=dict(sum((Counter(share.unknown) for share in shares), Counter())),
        unread=first.unread,
        unread_listed=first.unread_listed,
        unfit=sum(share.unfit for share in shares),
        unfit_listed=unfit[:MAX_LISTED],
    )


def _nothing(where: str, skipped: int) -> str:
    left_out = f"; {skipped} were skipped" if skipped else ""
    return (
        f"{where}: generate_samples gave no sample{left_out}, and at least one was expected. Look "
        "at the raw files (--tmp_dir), or take the split out of the problem's `shards`."
    )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: one[name] + other[name] for name in one}


def _greater(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {name: max(one[name], other[name]) for name in one}


def _bar(where: str, *, show: bool) -> tqdm[Any]:
    # disable=None: only on a terminal.
    return tqdm(desc=where, unit=" rows", unit_scale=True, disable=None if show else True)
