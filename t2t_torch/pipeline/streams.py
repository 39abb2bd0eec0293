"""Batches of a split read as continuous text, for language models with a memory between batches.

The examples of a split are concatenated to one text, which is divided into streams of equal
length.  Each batch has the next `stream_length` tokens of each stream (truncated backpropagation
through time: Mikolov et al. 2010; Zaremba et al. 2014, arXiv:1409.2329).

A batch of a text `x` contains, for B streams of T tokens:
  x         [B, T], the tokens, 0 after the end of a stream.
  x_before  [B], the token before the first one; 0 if there is none.
  x_stream  [B], the number of each stream.
  x_block   [B], the number of earlier batches of the stream in this pass; at 0 the memory is empty.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features.feature import select_generated
from t2t_torch.pipeline.collate import Batch
from t2t_torch.pipeline.plan import ORDER_VERSION, PlanReport, noise
from t2t_torch.reports.column_statistics import Bucket

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.features import Features
    from t2t_torch.hparam import DataHParams


STREAMS_VERSION = 1
"""Part of the fingerprint, next to the version of the order of examples."""

STREAMS_MARK = ".streams"
"""Marks the fingerprint of streams."""

_PLACE = 4  # stream of noise, beside those of `EpochPlan`
_Numbers = npt.NDArray[Any]


class StreamPlan:
    """Training batches of streams and their order.

    Batch k is a function of the text, the hparams, the seed and k, as in `EpochPlan`.  Each epoch
    starts at a random position of the text and wraps around, so streams and blocks have other
    boundaries in each epoch.  Tokens that do not fill a last block are omitted.  The batches of a
    step have different streams, so the result does not depend on the number of processes.

    Args:
      text: N tokens.
      name: name of the text in a batch.
      rows: number of examples of the text.
      hparams: stream_length, stream_rows.
      batches_per_step: number of batches of all processes in a step.
      seed: seed of the positions.
      source: fingerprint of the text.

    Raises:
      DataError: the text does not fill a block of each stream.
      HParamsError: the streams cannot be divided evenly among the batches of a step.
    """

    def __init__(
        self,
        text: _Numbers,
        *,
        name: str,
        rows: int,
        hparams: DataHParams,
        batches_per_step: int = 1,
        seed: int = 0,
        source: str = "",
    ) -> None:
        self.seed = seed
        self._text, self._name, self._examples = text, name, rows
        self._length, self._streams = hparams.stream_length, hparams.stream_rows
        self._groups = batches_per_step
        self._source = source
        if self._streams % batches_per_step:
            raise HParamsError(
                f"stream_rows={self._streams}: the {batches_per_step} batches of a step (of all "
                "processes, optimizer_multistep_accumulate_steps each) have as many streams each. "
                f"Set a multiple of {batches_per_step}."
            )
        self._blocks = len(text) // (self._streams * self._length)
        if not self._blocks:
            raise DataError(
                f"the text has {len(text):,} tokens, and stream_rows={self._streams} streams of "
                f"stream_length={self._length} are {self._streams * self._length:,}. Set fewer or "
                "shorter ones."
            )

    @classmethod
    def of(
        cls,
        shards: Shards,
        features: Features,
        hparams: DataHParams,
        *,
        seed: int,
        batches_per_step: int,
    ) -> StreamPlan:
        """Returns the plan of a training split.

        Raises:
          DataError: see the class.
          HParamsError: see the class; or the data is not for a language model.
        """
        name = streamed(features, hparams)
        return cls(
            joined(shards, features.columns[name]),
            name=name,
            rows=shards.num_rows,
            hparams=hparams,
            batches_per_step=batches_per_step,
            seed=seed,
            source=shards.fingerprint,
        )

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in each epoch."""
        return self._blocks * self._groups

    @functools.cached_property
    def fingerprint(self) -> str:
        """A version and a hash of everything the order depends on; a resumed run checks it."""
        sizes = [self._length, self._streams, self._groups, len(self._text)]
        content = json.dumps([self._source, self.seed, sizes]).encode()
        version = f"{ORDER_VERSION}{STREAMS_MARK}{STREAMS_VERSION}"
        return f"{version}-{hashlib.sha256(content).hexdigest()[:16]}"

    @property
    def report(self) -> PlanReport:
        """Statistics of an epoch."""
        return PlanReport(
            examples=self._examples,
            kept=self._examples,
            too_long=0,
            too_short=0,
            batches=self.batches_per_epoch,
            tokens=self._blocks * self._streams * self._length,
            padding_fraction=0.0,
        )

    @property
    def buckets(self) -> list[Bucket]:
        """The only bucket: all batches have the same shape."""
        size, count = self._streams // self._groups, self.batches_per_epoch
        tokens = size * count * self._length
        length, rows = self._length, size * count
        return [Bucket(0, length, size, rows, count, tokens, tokens, length + 1)]

    @property
    def largest_batch(self) -> _Numbers:
        """The first batch: all have the same size."""
        return self.batch(0)

    @property
    def one_of_each_shape(self) -> list[_Numbers]:
        """The first batch: all have the same shape."""
        return [self.batch(0)]

    def batch(self, index: int) -> _Numbers:
        """Returns the argument of `collate` for global batch `index`: its number, [1]."""
        return np.asarray([index], np.int64)

    def collate(self, numbers: _Numbers, epoch: int = 0) -> Batch:
        """Returns the batch with a number, [1], counted over all epochs."""
        epoch, place = divmod(int(numbers[0]), self.batches_per_epoch)
        block, group = divmod(place, self._groups)
        rows = self._streams // self._groups
        streams = group * rows + np.arange(rows)
        # Of the text, where the epoch starts.
        begin = int(noise(1, self.seed, epoch, _PLACE)[0] % np.uint64(len(self._text)))
        starts = begin + (streams * self._blocks + block) * self._length
        places = starts[:, None] + np.arange(-1, self._length)  # with the token before
        ids = self._text[places % len(self._text)].astype(np.int64)
        return _batch(self._name, ids, streams, block)


class EvalStreams:
    """One pass over a split as a text, every token once, in `eval_stream_rows` streams.

    The process of rank r takes streams r, r + world_size, ...

    Attributes:
      total: number of batches of all processes.
      cut: number of truncated examples, always 0.

    Args:
      shards: shards of the split.
      features: features of the problem.
      hparams: stream_length, eval_stream_rows.
      rank: rank of this process.
      world_size: number of processes.

    Raises:
      DataError: the split has no tokens.
      HParamsError: the data is not for a language model.
    """

    cut = 0

    def __init__(
        self,
        shards: Shards,
        features: Features,
        hparams: DataHParams,
        *,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._name = streamed(features, hparams)
        self._text = joined(shards, features.columns[self._name])
        if not len(self._text):
            raise DataError("the split has no token to evaluate.")
        self._length = hparams.stream_length
        rows = hparams.eval_stream_rows
        self._size = -(-len(self._text) // rows)  # tokens of a stream; the last may have fewer
        self._streams = np.arange(rows)[rank::world_size]
        blocks = -(-self._size // self._length)
        self._blocks = blocks if len(self._streams) else 0
        self.total = blocks * min(rows, world_size)

    def __len__(self) -> int:
        """Returns the number of batches of this process."""
        return self._blocks

    def __iter__(self) -> Iterator[Batch]:
        """Yields the blocks in the order of the text."""
        begins = self._streams * self._size
        ends = np.minimum(begins + self._size, len(self._text))
        for block in range(self._blocks):
            places = (begins + block * self._length)[:, None] + np.arange(-1, self._length)
            mask = (places >= begins[:, None]) & (places < ends[:, None])
            ids = np.where(mask, self._text[np.where(mask, places, 0)], 0).astype(np.int64)
            yield _batch(self._name, ids, np.arange(len(self._streams)), block)


def _batch(name: str, ids: _Numbers, streams: _Numbers, block: int) -> Batch:
    """Returns a batch; `ids` is [B, 1 + T] and includes the token before."""
    before = ids[:, 0] if block else np.zeros_like(ids[:, 0])
    arrays = {
        name: ids[:, 1:],
        f"{name}_before": before,
        f"{name}_stream": streams.astype(np.int64),
        f"{name}_block": np.full(len(ids), block, np.int64),
    }
    return {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in arrays.items()}


def joined(shards: Shards, column: str) -> _Numbers:
    """Returns the concatenated ids of all rows of a column, [N]."""
    parts = [values[offsets[0] : offsets[-1]] for values, offsets in shards.column(column)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def streamed(features: Features, hparams: DataHParams) -> str:
    """Returns the name of the text that is read in streams: a language model's only feature.

    Raises:
      HParamsError: there are other features, or packing or splitting is enabled.
    """
    names = list(features.all)
    if len(names) != 1 or names != list(select_generated(features.targets)):
        raise HParamsError(
            f"stream_length={hparams.stream_length} reads the text of a language model in streams; "
            f"the features here are {', '.join(names)}. Set stream_length=0."
        )
    if hparams.pack_dataset or hparams.split_to_length:
        raise HParamsError(
            "stream_length makes batches of streams: nothing is packed or split. Set "
            "pack_dataset=False and split_to_length=0."
        )
    return names[0]
