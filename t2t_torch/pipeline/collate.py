"""Batches of padded tensors: of rows, or of random values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from t2t_torch.data.shards import Ragged
from t2t_torch.features import (
    Audio,
    Feature,
    Features,
    Image,
    PixelSequence,
    SoftLabel,
    Span,
    Text,
    TreeFeature,
    Turns,
    WordStarts,
)
from t2t_torch.features.feature import count_positions, select_measured
from t2t_torch.layers.tree import ValidTransitions
from t2t_torch.pipeline.plan import FixedShapes
from t2t_torch.pipeline.reader import RowReader
from t2t_torch.text.encoder import EOS, NUM_RESERVED

Batch = dict[str, torch.Tensor]
_Numbers = npt.NDArray[Any]


class Collator:
    """Reads rows and pads them: row numbers in, a batch out.

    A feature of shape `(None,)` becomes [B, T], `(None, w)` [B, T, w], both filled up with the
    feature's padding; `()` becomes [B] and any other shape [B, *shape].  Integers become int64,
    floats and bytes stay.

    Args:
      reader: of the rows.
      pad_to: the shapes that batches are filled up to, with padding and rows of it; None pads
        each feature to the longest row of the batch.
    """

    def __init__(self, reader: RowReader, pad_to: FixedShapes | None = None) -> None:
        self._reader = reader
        self._pad_to = pad_to

    def __call__(self, rows: npt.NDArray[Any], epoch: int = 0) -> Batch:
        """Returns the batch of some rows, in the order of their numbers, in an epoch."""
        read = self._reader.read(np.sort(rows), epoch)  # of one shard together
        return stack(self._reader, read, self._pad_to)


def stack(reader: RowReader, rows: dict[str, Ragged], pad_to: FixedShapes | None) -> Batch:
    """Returns the batch of rows that were read.

    Args:
      reader: knows the features.
      rows: of each feature, as many.
      pad_to: as in `Collator`.
    """
    features = reader.features
    count = width = 0
    if pad_to is not None:
        lengths = [
            count_positions(features[name], rows[name].lengths)
            for name in select_measured(features)
        ]
        count = max((len(length) for length in lengths), default=0)
        count, width = pad_to.of(count, max((int(length.max()) for length in lengths), default=1))
    return {
        name: torch.from_numpy(padded(features[name], values, width, count))
        for name, values in rows.items()
    }


def padded(feature: Feature, rows: Ragged, width: int = 0, count: int = 0) -> _Numbers:
    """Returns a feature's rows as [B, ...]; integers become int64, except for 16-bit samples.

    Args:
      feature: whose rows they are.
      rows: flat numbers.
      width: positions of a sequence; 0 for those of the longest row, at least 1.
      count: minimum number of rows; the last ones are all padding.
    """
    values = rows.values
    if values.dtype.kind == "i" and values.dtype != np.int16:
        values = values.astype(np.int64)
    count = max(count, len(rows))
    inner: Any = feature.shape[1:] if feature.is_sequence else feature.shape
    if not feature.is_sequence:
        full = np.zeros((count, *inner), values.dtype)
        full[: len(rows)] = values.reshape(-1, *inner)
        return full
    lengths = count_positions(feature, rows.lengths)
    shape = count, width or max(1, int(lengths.max())), *inner
    return fill(values.reshape(-1, *inner), lengths, shape, feature.padding)


def fill(values: _Numbers, lengths: _Numbers, shape: Sequence[int], padding: int = 0) -> _Numbers:
    """Returns the positions of all rows, [sum of lengths, ...], in an array of padding."""
    full = np.full(shape, padding, values.dtype)
    full[: len(lengths)][np.arange(shape[1]) < lengths[:, None]] = values
    return full


def random_batch(features: Features, *, rows: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Returns a padded batch of random values, each row of a text ended by EOS."""
    generator = torch.Generator().manual_seed(seed)
    lengths: dict[str, list[int]] = {}
    batch = {}
    for k, (name, feature) in enumerate(features.all.items()):
        # Features of words have one entry per word; rows differ in length.
        of = feature.refers_to or name
        sizes = lengths.setdefault(of, [6 + k - 2 * (i % 3) + 1 for i in range(rows)])
        batch[name] = random_values(feature, sizes, generator)
    return batch


@functools.singledispatch
def random_values(feature: Feature, lengths: list[int], generator: Generator) -> Tensor:
    """Returns padded rows of random values of a feature.

    Args:
      feature: the feature.
      lengths: number of positions of each row of a sequence; other features have as many rows.
      generator: source of random numbers.
    """
    if feature.is_sequence:
        return _random_ids(feature, lengths, generator, int(feature.padding == 0))
    shape = (len(lengths), *(size or 1 for size in feature.shape))
    if feature.vocab_size:
        return torch.randint(feature.vocab_size, shape[:1], generator=generator)
    if feature.arrow_type == "list<uint8>":
        return torch.randint(2, shape, generator=generator, dtype=torch.uint8)
    return torch.rand(shape, generator=generator) + 0.1


def _random_ids(feature: Feature, lengths: list[int], generator: Generator, low: int) -> Tensor:
    """Returns ids from `low` on, or numbers if there is no vocabulary."""
    shape = (len(lengths), max(lengths), *(size or 1 for size in feature.shape[1:]))
    if feature.vocab_size:
        ids = torch.randint(low, feature.vocab_size, shape, generator=generator)
    else:
        ids = torch.rand(shape, generator=generator) + 0.1
    return _end_at(ids, lengths, feature.padding)


def _end_at(values: Tensor, lengths: list[int], padding: int) -> Tensor:
    for i, length in enumerate(lengths):
        values[i, length:] = padding
    return values


@random_values.register(Text)
def _random_texts(feature: Text, lengths: list[int], generator: Generator) -> Tensor:
    ids = _random_ids(feature, lengths, generator, NUM_RESERVED)
    if feature.add_eos:
        ids[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    return ids


@random_values.register(WordStarts)
def _(feature: WordStarts, lengths: list[int], generator: Generator) -> Tensor:
    return torch.zeros(len(lengths), max(lengths), dtype=torch.int64)


@random_values.register(Turns)
def _random_turns(feature: Turns, lengths: list[int], generator: Generator) -> Tensor:
    ids = _random_texts(feature, lengths, generator)
    ids[torch.arange(len(lengths)), torch.tensor(lengths) // 2] = EOS
    return ids


@random_values.register(PixelSequence)
def _random_pixels(feature: PixelSequence, lengths: list[int], generator: Generator) -> Tensor:
    return _random_texts(feature, [feature.size + 1] * len(lengths), generator)


@random_values.register(TreeFeature)
def _random_trees(feature: TreeFeature, lengths: list[int], generator: Generator) -> Tensor:
    """Returns transitions of trees over the given numbers of words."""
    rules = ValidTransitions(feature, 3, torch.device("cpu"))
    progress = rules.start(torch.tensor(lengths))
    trees: list[Tensor] = []
    while len(trees) < 2 or bool((trees[-1] > EOS).any()):
        weights = rules.valid(progress) * torch.tensor([1.0] * 5 + [0.3] * (feature.vocab_size - 5))
        ids = torch.multinomial(weights, 1, generator=generator)[:, 0]
        ids = ids.masked_fill(trees[-1] <= EOS, 0) if trees else ids
        progress = rules.after(ids, progress)
        trees.append(ids)
    return torch.stack(trees, 1)


@random_values.register(Audio)
def _random_sounds(feature: Audio, lengths: list[int], generator: Generator) -> Tensor:
    lengths = [8 * length for length in lengths]  # frames, several for each id
    shape = (len(lengths), max(lengths), feature.samples_per_frame)
    samples = torch.randint(-9999, 9999, shape, generator=generator, dtype=torch.int16)
    return _end_at(samples, lengths, feature.padding)


@random_values.register(Image)
def _random_images(feature: Image, lengths: list[int], generator: Generator) -> Tensor:
    shape = len(lengths), feature.height, feature.width, feature.channels
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


@random_values.register(SoftLabel)
def _random_weights(feature: SoftLabel, lengths: list[int], generator: Generator) -> Tensor:
    shape = len(lengths), feature.encoder.vocab_size
    values = (torch.rand(shape, generator=generator) + 0.1) ** 6  # peaked: something to learn
    return values / values.sum(-1, keepdim=True)


@random_values.register(Span)
def _spans(feature: Span, lengths: list[int], generator: Generator) -> Tensor:
    return torch.tensor([[1, 2], [-1, -1], [0, 0]])[torch.arange(len(lengths)) % 3]
