"""Samples into rows of ids, in this process or in several."""

from __future__ import annotations

import collections
import concurrent.futures
import concurrent.futures.process
import dataclasses
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from t2t_torch import registry
from t2t_torch.data.ragged import Ragged, Rows, num_rows, value_dtype
from t2t_torch.errors import DataError, T2TError

if TYPE_CHECKING:
    from t2t_torch.features import Feature, Features
    from t2t_torch.problem import Problem

# A chunk is what one task of a worker encodes: large enough to hide the cost of sending it.
CHUNK_ROWS = 8192
_CHUNK_CHARACTERS = 1 << 22
# Rows encoded in this process before a pool is started, if the caller leaves the choice to us: the
# pool's start costs CPU time worth some 10,000 sentences, and small data need not be twice as fast.
_ROWS_BEFORE_POOL = 1 << 18

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
class Chunk:
    """Consecutive samples of a split, by field; `where` and `first` are for messages."""

    where: str
    first: int
    columns: Mapping[str, Sequence[Any]]


class Encoder:
    """Encodes chunks in order; the result does not depend on how many processes do it.

    A context manager: leaving it ends the worker processes, at once if an exception passes.
    """

    def __init__(
        self,
        features: Features,
        make_features: MakeFeatures,
        num_processes: int | None = None,
    ) -> None:
        """Starts no process yet.

        Args:
          features: what this process encodes with.
          make_features: makes the same in a worker process.
          num_processes: 1 encodes here; more are used from the first chunk on.  None uses all CPUs
            of this process, but only once the data proves large enough to repay their start.
        """
        self._features = features.all
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

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[Rows]:
        """Encodes every chunk; holds at most two chunks per worker at a time.

        Raises:
          DataError: a sample cannot be encoded (names split, sample and feature), or a worker died.
        """
        waiting: collections.deque[concurrent.futures.Future[Rows]] = collections.deque()
        try:
            for chunk in chunks:
                if self._num_processes == 1 or self._rows < self._rows_before_pool:
                    rows = encode_chunk(self._features, chunk)
                    self._rows += num_rows(rows)
                    yield rows
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
                initargs=(self._make_features,),
            )
        return self._pool


def available_cpus() -> int:
    """How many CPUs this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def chunks_of(
    samples: Iterable[Mapping[str, Any]], fields: Iterable[str], where: str
) -> Iterator[Chunk]:
    """Groups samples into chunks of bounded size.

    Raises:
      DataError: a sample has not exactly these fields.
    """
    names = list(dict.fromkeys(fields))
    columns: dict[str, list[Any]] = {name: [] for name in names}
    first = rows = characters = 0
    for sample in samples:
        if sample.keys() != columns.keys():
            raise DataError(
                f"{where}: sample {first + rows} has {', '.join(sample) or 'nothing'}; "
                f"the problem's features need {', '.join(names)}. Mend its generate_samples."
            )
        for name, column in columns.items():
            value = sample[name]
            column.append(value)
            characters += len(value) if isinstance(value, (str, bytes)) else 1
        rows += 1
        if rows == CHUNK_ROWS or characters >= _CHUNK_CHARACTERS:
            yield Chunk(where, first, columns)
            columns = {name: [] for name in names}
            first, rows, characters = first + rows, 0, 0
    if rows:
        yield Chunk(where, first, columns)


def encode_chunk(features: Mapping[str, Feature], chunk: Chunk) -> Rows:
    """Encodes a chunk's samples; DataError names the first that cannot be encoded."""
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
            f"{chunk.where}, samples from {chunk.first} on: {name!r} encodes to ids from "
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
            place = f"sample {chunk.first + index}, {name!r} is {shown}"
            break
    else:
        place = f"samples from {chunk.first} on, {name!r}"
    return DataError(f"{chunk.where}, {place}, which cannot be encoded: {error}")


def _can_be_sent(make_features: MakeFeatures) -> bool:
    try:
        pickle.dumps(make_features)
    except Exception:
        return False
    return True


# What a worker process encodes with; set once when it starts.
_worker_features: Mapping[str, Feature] = {}


def _start_worker(make_features: MakeFeatures) -> None:
    global _worker_features
    # Control-C reaches the whole group of processes; the parent alone ends the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _worker_features = make_features().all


def _follow_parent() -> None:
    """Ends this process when its parent is killed; the pool would leave it waiting forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(chunk: Chunk) -> Rows:
    return encode_chunk(_worker_features, chunk)
