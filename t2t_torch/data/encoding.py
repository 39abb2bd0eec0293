"""Samples into rows of ids, in this process or in several."""

from __future__ import annotations

import collections
import concurrent.futures
import concurrent.futures.process
import dataclasses
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from absl import logging

from t2t_torch import registry
from t2t_torch.data.chunks import Chunk
from t2t_torch.data.ragged import Ragged, Rows, value_dtype
from t2t_torch.errors import DataError, T2TError

if TYPE_CHECKING:
    from t2t_torch.features import Feature, Features
    from t2t_torch.problem import Problem

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
