"""How often each label is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from t2t_torch.census.column import Column
from t2t_torch.errors import DataError
from t2t_torch.features import (
    UNKNOWN,
    Choice,
    ClassLabel,
    Feature,
    Gazetteer,
    GazetteerWeights,
    MultiLabel,
    SoftLabel,
    Tags,
    WordShape,
)
from t2t_torch.features.word import NUM_RESERVED, Shape


@dataclass(frozen=True)
class LabelCounts:
    """How often each label is there.

    Attributes:
      labels: all that may be there, in the order of their ids.
      counts: of each label; of soft labels the sum of their probabilities.
      unknown: labels that training does not know.
      none: rows without a label, where a row may have several.
    """

    labels: tuple[str, ...]
    counts: tuple[float, ...]
    unknown: int = 0
    none: int = 0

    @property
    def total(self) -> float:
        """All labels there are, also unknown ones."""
        return sum(self.counts) + self.unknown

    @property
    def absent(self) -> tuple[str, ...]:
        """The labels that are not there."""
        return tuple(x for x, count in zip(self.labels, self.counts, strict=True) if not count)

    def most_frequent(self, count: int | None = None) -> list[tuple[str, float]]:
        """Returns labels and their counts, the most frequent first."""
        pairs = zip(self.labels, self.counts, strict=True)
        return sorted(pairs, key=lambda pair: -pair[1])[:count]


def labels_of(feature: Feature) -> tuple[str, ...] | None:
    """Returns the labels of a feature in the order of its ids; None if it has none."""
    if isinstance(feature, GazetteerWeights):
        return None
    if isinstance(feature, (ClassLabel, MultiLabel, SoftLabel, Tags, Gazetteer)):
        return feature.encoder.labels
    if isinstance(feature, Choice):
        return tuple(feature.candidates)
    if isinstance(feature, WordShape):
        return tuple(shape.name.lower() for shape in Shape)
    return None


def count_labels(feature: Feature, labels: tuple[str, ...], column: Column) -> LabelCounts:
    """Counts the labels of all rows."""
    if isinstance(feature, (MultiLabel, SoftLabel)):
        return _count_rows(labels, column)
    first = NUM_RESERVED if isinstance(feature, (Gazetteer, WordShape)) else 0
    counts = np.zeros(len(labels), np.int64)
    unknown = 0
    for _, rows in column.blocks():
        ids = rows.values.astype(np.int64)
        unknown += int(np.count_nonzero(ids == UNKNOWN))
        counts += id_counts(ids[ids >= first] - first, len(labels))
    return LabelCounts(labels, tuple(counts.tolist()), unknown)


def _count_rows(labels: tuple[str, ...], column: Column) -> LabelCounts:
    """Counts where a row has a number for each label."""
    sums = np.zeros(len(labels))
    none = 0
    for _, rows in column.blocks():
        table = rows.values.reshape(len(rows), -1)
        if table.shape[1] != len(labels):
            raise _outgrown(f"{table.shape[1]} numbers a row", f"{len(labels)} labels")
        sums += table.sum(axis=0, dtype=np.float64)
        none += int(np.count_nonzero(~table.any(axis=1)))
    whole = np.allclose(sums, np.rint(sums))
    return LabelCounts(labels, tuple((np.rint(sums) if whole else sums).tolist()), none=none)


def id_counts(ids: np.ndarray, size: int) -> np.ndarray:
    """Returns how often each id from 0 is there, [size].

    Raises:
      DataError: an id is beyond.
    """
    counts = np.bincount(ids, minlength=size)
    if len(counts) > size:
        raise _outgrown(f"ids up to {len(counts) - 1}", f"{size} of them")
    return counts


def _outgrown(found: str, expected: str) -> DataError:
    return DataError(
        f"The data has {found}, its vocabulary or labels {expected}: the problem has changed since "
        "the data was made. Make it anew:  t2t-datagen --overwrite ..."
    )
