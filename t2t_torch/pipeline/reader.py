"""Rows of shards: truncated, decoded, and as values."""

from __future__ import annotations

import base64
import dataclasses
import functools
import itertools
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from t2t_torch.data.shards import Ragged
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import (
    NO_SPAN,
    Audio,
    Feature,
    Features,
    Gazetteer,
    GazetteerWeights,
    Image,
    Span,
    WordLabel,
)
from t2t_torch.features.audio import wav_of
from t2t_torch.features.feature import (
    ExampleChange,
    Row,
    count_positions,
    find_alignments,
    find_word_starts,
    select_measured,
    select_sequences,
)
from t2t_torch.features.word import NUM_RESERVED, UNKNOWN_LABEL
from t2t_torch.mode import Split

if TYPE_CHECKING:
    from t2t_torch.data.shards import Shards
    from t2t_torch.hparam import DataHParams
    from t2t_torch.pipeline.plan import Batching


def paddings(features: Mapping[str, Feature]) -> dict[str, int]:
    """Returns the padding values of text-like sequences, whose padding is counted.

    They are the measured sequences with one number per position.
    """
    return {
        name: feature.padding
        for name, feature in select_measured(features).items()
        if feature.shape == (None,)
    }


def numbers_per_position(feature: Feature) -> int:
    """Returns the number of values per position of a sequence."""
    return math.prod(size or 1 for size in feature.shape[1:])


@dataclasses.dataclass(frozen=True)
class LengthLimits:
    """Maximum lengths of examples, for truncation.

    Attributes:
      by_feature: maximum number of positions of each truncated feature.
    """

    by_feature: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, features: Features, hparams: DataHParams, *, bound: int = 0) -> LengthLimits:
        """Returns the limits set by hparams.

        Args:
          features: features of the problem.
          hparams: `max_input_seq_length`, `max_target_seq_length`.
          bound: additional limit of all features; 0 for none.

        Raises:
          HParamsError: a limit applies to targets that are aligned to the words of an input.
        """
        by_role = {
            "inputs": hparams.max_input_seq_length,
            "targets": hparams.max_target_seq_length,
            "notes": 0,
        }
        for name, of in find_alignments(features.targets).items():
            if by_role["targets"] and of in features.all:
                raise HParamsError(
                    f"max_target_seq_length cuts texts, but the target {name!r} has an entry for "
                    f"each word of {of!r} and is cut with them. Use max_input_seq_length."
                )
        limits = {}
        for name in select_measured(features.all):
            limit = by_role[features.role(name)]
            limits[name] = min(limit or bound, bound or limit)
        return cls({name: limit for name, limit in limits.items() if limit})

    def lengths(
        self,
        stored: Mapping[str, npt.NDArray[Any]],
        features: Mapping[str, Feature],
        columns: Mapping[str, str],
    ) -> dict[str, npt.NDArray[Any]]:
        """Returns the number of positions of each row after truncation, for measured features.

        Rows of data without sequences have one position, under the name of the first feature.

        Args:
          stored: number of stored values of each row, by column.
          features: features by name.
          columns: stored column of each feature.
        """
        sequences = select_measured(features) or dict([next(iter(features.items()))])
        lengths = {
            name: count_positions(feature, stored[columns[name]])
            for name, feature in sequences.items()
        }
        return {name: self.cut(name, length) for name, length in lengths.items()}

    def cut(self, name: str, lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns lengths of a measured feature after truncation.  [N]."""
        limit = self.by_feature.get(name, 0)
        return np.minimum(lengths, limit) if limit else lengths


@dataclasses.dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of rows, in the order of rows; every row has at least one.

    Attributes:
      rows: row of each piece, [P] int32.
      starts: first position of each piece in its row, [P] int32.
      lengths: number of positions of each piece, [P] int32: `size`, or less for the last piece of a
        row; 0 for an empty row.
      size: number of positions of a piece.
    """

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    size: int

    @classmethod
    def of(cls, lengths: npt.NDArray[Any], size: int) -> Pieces:
        """Splits rows with lengths [N] into pieces of `size` positions."""
        counts = np.maximum(-(-lengths // size), 1)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), counts)
        first = np.cumsum(counts) - counts  # piece of each row
        starts = ((np.arange(len(rows)) - first[rows]) * size).astype(np.int32)
        rest = lengths[rows].astype(np.int32) - starts
        return cls(rows, starts, np.minimum(rest, size), size)

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """True for full pieces of rows with several pieces, [P]."""
        pieces_of_row = np.bincount(self.rows)
        whole: npt.NDArray[np.bool_] = self.lengths == self.size
        whole &= pieces_of_row[self.rows] > 1
        return whole


def check_splittable(features: Features) -> str:
    """Returns the name of the text split by `split_to_length`: the only sequence.

    Raises:
      HParamsError: there are inputs or other sequences that are not of the same text.
    """
    sequences = list(select_sequences(features.all))
    if len({features.columns[name] for name in features.all}) != 1 or not sequences:
        names = ", ".join(features.all)
        raise HParamsError(
            "split_to_length cuts the texts of a language model, whose pieces are examples of "
            f"their own; the features here are {names}. Set split_to_length=0, and cut with "
            "max_input_seq_length or leave long examples out with max_length."
        )
    return sequences[0]


_Numbers = npt.NDArray[Any]
_Rows = dict[str, Ragged]
_EVAL_SEED = 0  # of `Problem.preprocess_example`: every evaluation sees the same examples


class Columns(Protocol):
    """Source of rows, for example `data.shards.Shards`."""

    def column(self, feature: str) -> Sequence[tuple[_Numbers, _Numbers]]:
        """Returns a column's rows as flat arrays, values and offsets, in row order."""


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """`Problem.preprocess_example`, applied to rows.

    Attributes:
      function: the method.
      features: features by name.
      mode: mode passed to the method.
      seed: seed of its generators; the same in each evaluation.
      most: maximum number of positions of a measured feature in the result; 0 for as many as
        stored.
    """

    function: Callable[..., Mapping[str, Any]]
    features: Mapping[str, Feature]
    mode: Split
    seed: int
    most: int

    def __call__(self, rows: Mapping[str, Ragged], numbers: _Numbers, epoch: int) -> _Rows:
        """Returns the transformed rows of examples.

        Args:
          rows: stored values of each feature.
          numbers: numbers of the examples, [N].
          epoch: epoch, counted from 0; 0 in evaluation.

        Raises:
          DataError: the method returned other features, another shape, ids outside the vocabulary,
            or more positions than planned for the batch.
        """
        rows_of: dict[str, list[Any]] = {name: [] for name in rows}
        for i, number in enumerate(numbers.tolist()):
            stored = {name: self._example(name, each, i) for name, each in rows.items()}
            copies = {name: value.copy() for name, value in stored.items()}
            rng = np.random.default_rng([self.seed, epoch, number])
            after = self.function(copies, self.mode, rng)
            if not isinstance(after, Mapping) or after.keys() != rows.keys():
                got = ", ".join(after) if isinstance(after, Mapping) else reprlib.repr(after)
                raise self._error(number, f"returned {got}; expected {', '.join(rows)}")
            for name, value in after.items():
                rows_of[name].append(self._checked(name, value, stored[name], number))
        return {
            name: Ragged.from_lists(values, rows[name].values.dtype)
            for name, values in rows_of.items()
        }

    def _example(self, name: str, rows: Ragged, index: int) -> _Numbers:
        start, end = rows.offsets[index], rows.offsets[index + 1]
        if (files := file_decoder(self.features[name])) is not None:
            return files.opened(rows.values[start:end])
        shape = [-1 if size is None else size for size in self.features[name].shape]
        return rows.values[start:end].reshape(shape)

    def _checked(self, name: str, value: Any, stored: _Numbers, number: int) -> _Numbers:
        """Returns a feature of a transformed example as a flat array with the stored dtype."""
        feature = self.features[name]
        array = np.asarray(value)
        if (files := file_decoder(feature)) is not None:
            array = files.fitted(array)
        dtype, length = stored.dtype, len(stored) if stored.ndim else 0
        if not array.size:
            array = array.astype(dtype)
        shape = feature.shape
        fits = len(array.shape) == len(shape) and all(
            size in (None, actual) for size, actual in zip(shape, array.shape, strict=True)
        )
        if not fits or not np.can_cast(array.dtype, dtype, "same_kind"):
            wanted = "x".join("length" if size is None else str(size) for size in shape) or "one"
            raise self._error(
                number,
                f"made {name!r} an array of shape {array.shape} and type {array.dtype}; expected "
                f"{wanted} of {dtype}",
            )
        if name in select_measured(self.features):
            most = max(length, self.most)
            if len(array) > most:
                raise self._error(
                    number,
                    f"made {name!r} {len(array)} positions long, of {length} that are stored, and "
                    f"its batch holds at most {most}. Return fewer"
                    + ("" if not self.most else ", or set a larger --hparams=max_length=N"),
                )
        if feature.vocab_size:
            wrong = array[(array < 0) | (array >= feature.vocab_size)].tolist()
            if wrong and not set(wrong) <= set(stored.reshape(-1).tolist()):
                raise self._error(
                    number,
                    f"put the id {wrong[0]} in {name!r}; expected 0 to {feature.vocab_size - 1}",
                )
        return array.astype(dtype).reshape(-1)

    def _error(self, number: int, fault: str) -> DataError:
        owner = getattr(self.function, "__qualname__", repr(self.function))
        return DataError(f"{owner}, of example {number}, {fault}.")


class RowReader:
    """Reads rows of several features.

    Features aligned to a truncated text are truncated after the words that start in the remaining
    text.  A span outside of it becomes `NO_SPAN`, like the answer of a window without it.

    Args:
      shards: the data.
      features: features by name.
      columns: stored column of each feature.
      limits: maximum lengths of examples.
      pieces: pieces of the only sequence to read instead of rows.
      preprocess: transformation of examples.
    """

    def __init__(
        self,
        shards: Columns,
        features: Mapping[str, Feature],
        columns: Mapping[str, str],
        limits: LengthLimits | None = None,
        pieces: Pieces | None = None,
        preprocess: Preprocessing | None = None,
    ) -> None:
        self._preprocess = preprocess
        self.features = dict(features)
        self._stored = {name: shards.column(columns[name]) for name in features}
        self._limits = limits or LengthLimits()
        self._pieces = pieces
        # Where words begin, by the text that they are of.
        self._starts = find_word_starts(features)
        self._words, self._sequences = find_alignments(features), select_sequences(features)
        parts = next(iter(self._stored.values()))
        rows = getattr(parts, "rows", None) or [len(offsets) - 1 for _, offsets in parts]
        self._first_row = np.concatenate([[0], np.cumsum(rows)])  # [shards + 1]

    def read(self, numbers: _Numbers, epoch: int = 0) -> dict[str, Ragged]:
        """Returns the values of rows or pieces.

        Args:
          numbers: ascending numbers of the rows, [N].
          epoch: epoch, for `Problem.preprocess_example`.
        """
        rows = numbers if self._pieces is None else self._pieces.rows[numbers]
        splits = np.searchsorted(rows, self._first_row)  # [shards + 1]
        word_counts = self._words_kept(rows, splits)
        read = {}
        for name, feature in self.features.items():
            bound = self._limits.by_feature.get(name)
            limit: _Numbers | None = None if bound is None else np.full(len(rows), bound)
            if (of := self._words.get(name)) in word_counts:
                limit = word_counts[str(of)]
            if limit is not None and name in self._sequences:
                limit = limit * numbers_per_position(feature)
            skip = None
            if self._pieces is not None and name in self._sequences:
                skip, limit = self._pieces.starts[numbers], self._pieces.lengths[numbers]
            read[name] = clip_references(
                feature, self._gather(name, rows, splits, limit, skip), word_counts
            )
        if self._preprocess is not None:
            return self._preprocess(read, numbers, epoch)
        for name, feature in self.features.items():
            if (files := file_decoder(feature)) is not None:
                read[name] = _decoded(files, read[name])
        return read

    def _words_kept(self, rows: _Numbers, splits: _Numbers) -> dict[str, _Numbers]:
        """Returns the maximum number of words of each truncated text.  [rows] each."""
        word_counts = {}
        for text, limit in self._limits.by_feature.items():
            word_counts[text] = np.full(len(rows), limit)
            if text in self._starts:
                starts = self._gather(self._starts[text], rows, splits)
                before = np.concatenate([[0], np.cumsum(starts.values < limit)])
                word_counts[text] = np.diff(before[starts.offsets])
        return word_counts

    def _gather(
        self,
        name: str,
        rows: _Numbers,
        splits: _Numbers,
        limit: _Numbers | None = None,
        skip: _Numbers | None = None,
    ) -> Ragged:
        """Returns the first `limit` values of each row after the first `skip`.  [rows] each."""
        pieces = []
        lengths = np.empty(len(rows), np.int64)
        stored = self._stored[name]
        for shard, (low, high) in enumerate(itertools.pairwise(splits.tolist())):
            if low == high:
                continue
            values, offsets = stored[shard]
            local = rows[low:high] - self._first_row[shard]
            starts = offsets[local]
            if skip is not None:
                starts = starts + skip[low:high]
            count = offsets[local + 1] - starts
            if limit is not None:
                count = np.minimum(count, limit[low:high])
            lengths[low:high] = count
            before = np.cumsum(count) - count
            pieces.append(values[np.repeat(starts - before, count) + np.arange(count.sum())])
        return Ragged(np.concatenate(pieces), np.concatenate([[0], np.cumsum(lengths)]))


class FileDecoder(Protocol):
    """Decodes the stored files of a feature."""

    def opened(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the value of a stored file, in its own size."""

    def fitted(self, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns a value of `opened` in the shape of the feature."""


@functools.singledispatch
def file_decoder(feature: Feature) -> FileDecoder | None:
    """Returns the decoder of a feature whose stored numbers are the bytes of files; else None."""
    return None


file_decoder.register(Image, lambda feature: feature if feature.is_file else None)


def _decoded(decoder: FileDecoder, files: Ragged) -> Ragged:
    """Returns the values of stored files."""
    values: list[Any] = [
        decoder.fitted(decoder.opened(files.values[start:end])).reshape(-1)
        for start, end in itertools.pairwise(files.offsets.tolist())
    ]
    return Ragged.from_lists(values, values[0].dtype if values else files.values.dtype)


@functools.singledispatch
def clip_references(feature: Feature, rows: Ragged, words: Mapping[str, _Numbers]) -> Ragged:
    """Returns rows without references to words that are truncated.

    Args:
      feature: the feature.
      rows: its rows.
      words: by truncated text, the number of its remaining words.  [rows] each.
    """
    return rows


@clip_references.register
def _(feature: Span, rows: Ragged, words: Mapping[str, _Numbers]) -> Ragged:
    if feature.of not in words:
        return rows
    spans = rows.values.reshape(-1, 2)
    inside = spans[:, 1:] < words[feature.of][:, None]
    return Ragged(np.where(inside, spans, NO_SPAN).reshape(-1), rows.offsets)


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Examples, numbered from 0: rows, or their pieces with `split_to_length`.

    Attributes:
      lengths: number of positions of each example, [N], for measured features.
      reader: reader of examples by number.
      source: fingerprint of the examples.
      alone: True for full pieces of rows with several pieces, [N]; None without pieces.
      cut: number of examples that are truncated to `bound`.
    """

    lengths: dict[str, npt.NDArray[Any]]
    reader: RowReader
    source: str
    alone: npt.NDArray[np.bool_] | None = None
    cut: int = 0

    @classmethod
    def of(
        cls,
        shards: Shards,
        features: Features,
        batching: Batching,
        *,
        bound: int = 0,
        seed: int | None = None,
        measure: bool = True,
    ) -> Examples:
        """Returns the examples of a split.

        Args:
          shards: shards of the split.
          features: features of the problem.
          batching: `max_input_seq_length`, `max_target_seq_length`, `split_to_length`.
          bound: additional maximum number of positions; 0 for none.
          seed: seed of training, for `Problem.preprocess_example`; None for evaluation.
          measure: False to leave `lengths` empty, for a plan in blocks.

        Raises:
          HParamsError: hparams do not fit the features.
        """
        by_hparams = LengthLimits.of(features, batching.hparams)
        limits = LengthLimits.of(features, batching.hparams, bound=bound)
        stored = {}
        if measure:
            stored = by_hparams.lengths(shards.lengths, features.all, features.columns)
        preprocess = _preprocessing(features, batching, bound, seed)
        if batching.split_length:
            pieces = Pieces.of(stored[check_splittable(features)], batching.split_length)
            reader = RowReader(shards, features.all, features.columns, None, pieces, preprocess)
            source = f"{shards.fingerprint} split {batching.split_length}"
            lengths = dict.fromkeys(select_measured(features.all), pieces.lengths)
            return cls(lengths, reader, source, pieces.whole)
        lengths = {name: limits.cut(name, length) for name, length in stored.items()}
        longer = [stored[name] > length for name, length in lengths.items()]
        reader = RowReader(shards, features.all, features.columns, limits, preprocess=preprocess)
        cut = int(np.logical_or.reduce(longer).sum()) if bound else 0
        return cls(lengths, reader, shards.fingerprint, cut=cut)


def _preprocessing(
    features: Features, batching: Batching, bound: int, seed: int | None
) -> Preprocessing | None:
    """Returns the problem's transformation of examples; None if there is none."""
    if batching.preprocess is None:
        return None
    function: Any = batching.preprocess
    if isinstance(function, ExampleChange):
        function = function.of(features)
    if seed is None:
        return Preprocessing(function, features.all, Split.EVAL, _EVAL_SEED, bound)
    # Packed rows cannot grow: bins are filled by stored lengths.
    packed = batching.hparams.pack_dataset
    most = 0 if packed else math.ceil(batching.training.max_length * batching.most_growth)
    return Preprocessing(function, features.all, Split.TRAIN, seed, most)


@functools.singledispatch
def restore(feature: Feature, name: str, features: Features, row: Row) -> Any:
    """Returns a value, in its JSON form, that encodes to the stored numbers.

    Args:
      feature: the feature.
      name: name of the feature.
      features: features of the problem.
      row: stored numbers of an example.
    """
    return feature.decode(row[name])


@restore.register
def _(feature: Image, name: str, features: Features, row: Row) -> Any:
    return feature.decode(row[name]).tolist()


@restore.register
def _(feature: Audio, name: str, features: Features, row: Row) -> Any:
    """Returns a wav file as a base64 text."""
    content = wav_of(feature.decode(row[name].reshape(-1)), feature.sample_rate)
    return base64.b64encode(content).decode("ascii")


@restore.register
def _(feature: WordLabel, name: str, features: Features, row: Row) -> Any:
    """Returns a label for each word, including words with an unknown label."""
    labels = feature.encoder.labels
    return [labels[i - NUM_RESERVED] if i >= NUM_RESERVED else UNKNOWN_LABEL for i in row[name]]


@restore.register
def _(feature: Gazetteer, name: str, features: Features, row: Row) -> Any:
    """Returns the labels of each word with their weights."""
    weights = next(
        row[other]
        for other, one in features.given.items()
        if isinstance(one, GazetteerWeights) and one.field == feature.field
    )
    rows = np.array(weights, np.float64).reshape(-1, feature.width).tolist()
    pairs = zip(feature.decode(row[name]), rows, strict=True)
    return [dict(zip(labels, its, strict=False)) for labels, its in pairs]
