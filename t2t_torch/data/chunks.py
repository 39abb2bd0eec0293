"""Samples in the pieces in which they are encoded, and in the shares of several tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_torch.errors import DataError

# A chunk is what one task of a worker encodes: large enough to hide the cost of sending it.
CHUNK_ROWS = 8192
_CHUNK_BYTES = 1 << 22  # of values, about


@dataclasses.dataclass(frozen=True)
class Share:
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
        share: Share | None = None,
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
        self._share = share or Share()

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
