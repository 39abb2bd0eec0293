"""Batches of padded tensors: of rows, or of random values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from t2t_torch.data.shards import Ragged
from t2t_torch.features import Feature, Features, PixelSequence, SoftLabel, TreeFeature, Turns
from t2t_torch.layers.tree import ValidTransitions
from t2t_torch.pipeline.plan import FixedShapes
from t2t_torch.pipeline.reader import RowReader, measured
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
        lengths = [features[name].lengths(rows[name].lengths) for name in measured(features)]
        count = max((len(length) for length in lengths), default=0)
        longest = max((int(length.max()) for length in lengths), default=1)
        count, width = pad_to.of(count, longest)
    return {
        name: torch.from_numpy(
            _filled_up(features[name], padded(features[name], values, width), count)
        )
        for name, values in rows.items()
    }


def _filled_up(feature: Feature, rows: _Numbers, count: int) -> _Numbers:
    """Returns at least `count` rows, the last ones all padding.  [B, ...] each."""
    missing = count - len(rows)
    if missing <= 0:
        return rows
    padding = feature.padding if feature.is_sequence else 0
    return np.concatenate([rows, np.full((missing, *rows.shape[1:]), padding, rows.dtype)])


def padded(feature: Feature, rows: Ragged, width: int = 0) -> _Numbers:
    """Returns a feature's rows as [B, ...]; integers become int64, except for 16-bit samples.

    Args:
      feature: whose rows they are.
      rows: flat numbers.
      width: positions of a sequence; 0 for those of the longest row, at least 1.
    """
    values = rows.values
    if values.dtype.kind == "i" and values.dtype != np.int16:
        values = values.astype(np.int64)
    if not feature.is_sequence:
        return values.reshape(-1, *feature.shape)
    lengths = feature.lengths(rows.lengths)
    width = width or max(1, int(lengths.max()))
    inner: Any = feature.shape[1:]
    full = np.full((len(lengths), width, *inner), feature.padding, values.dtype)
    full[np.arange(width) < lengths[:, None]] = values.reshape(-1, *inner)
    return full


def random_batch(features: Features, *, rows: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Returns a padded batch of random values, each row of a text ended by EOS."""
    generator = torch.Generator().manual_seed(seed)
    lengths: dict[str, list[int]] = {}
    batch = {}
    for k, (name, feature) in enumerate(features.all.items()):
        if isinstance(feature, TreeFeature):
            batch[name] = _random_trees(feature, lengths[feature.of], generator)
        elif isinstance(feature, PixelSequence):
            batch[name] = _random_rows(feature, [feature.size + 1] * rows, generator)
        elif feature.is_sequence:
            # Features of words have one entry per word; rows differ in length.
            of = feature.aligned_to or name
            width = lengths.setdefault(of, [6 + k - 2 * (i % 3) + 1 for i in range(rows)])
            if feature.is_sound:  # frames, several for each id
                width = [8 * size for size in width]
            batch[name] = _random_rows(feature, width, generator)
        else:
            batch[name] = _random_values(feature, rows, generator)
    return batch


def _random_rows(feature: Feature, lengths: list[int], generator: torch.Generator) -> Tensor:
    low = NUM_RESERVED if feature.is_text else int(feature.padding == 0)
    shape = (len(lengths), max(lengths), *(size or 1 for size in feature.shape[1:]))
    if feature.vocab_size:
        ids = torch.randint(low, feature.vocab_size, shape, generator=generator)
    elif feature.is_sound:
        ids = torch.randint(-9999, 9999, shape, generator=generator, dtype=torch.int16)
    else:  # numbers that are not ids
        ids = torch.rand(shape, generator=generator) + 0.1
    for i, length in enumerate(lengths):
        if feature.generates:
            ids[i, length - 1] = EOS
        if isinstance(feature, Turns):
            ids[i, length // 2] = EOS
        ids[i, length:] = feature.padding
    return ids


def _random_trees(feature: TreeFeature, words: Sequence[int], generator: torch.Generator) -> Tensor:
    """Returns transitions of trees over the given numbers of words."""
    rules = ValidTransitions(feature, 3, torch.device("cpu"))
    progress = rules.start(torch.tensor(words))
    trees: list[Tensor] = []
    while len(trees) < 2 or bool((trees[-1] > EOS).any()):
        weights = rules.valid(progress) * torch.tensor([1.0] * 5 + [0.3] * (feature.vocab_size - 5))
        ids = torch.multinomial(weights, 1, generator=generator)[:, 0]
        ids = ids.masked_fill(trees[-1] <= EOS, 0) if trees else ids
        progress = rules.after(ids, progress)
        trees.append(ids)
    return torch.stack(trees, 1)


def _random_values(feature: Feature, rows: int, generator: torch.Generator) -> Tensor:
    if feature.selects_words:
        return torch.tensor([[1, 2], [-1, -1], [0, 0]])[torch.arange(rows) % 3]
    if feature.vocab_size:
        return torch.randint(feature.vocab_size, (rows,), generator=generator)
    shape = (rows, *(size or 1 for size in feature.shape))
    if feature.arrow_type == "list<uint8>":
        top = 256 if feature.is_image else 2
        return torch.randint(top, shape, generator=generator, dtype=torch.uint8)
    values = torch.rand(shape, generator=generator) + 0.1
    if isinstance(feature, SoftLabel):  # peaked: there is something to learn
        values = values**6
        return values / values.sum(-1, keepdim=True)
    return values
