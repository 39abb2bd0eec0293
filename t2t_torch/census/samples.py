"""Single rows, as text and as ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.census.column import Column
from t2t_torch.features import (
    ClassLabel,
    Feature,
    Features,
    Gazetteer,
    GazetteerWeights,
    Image,
    MultiLabel,
    SoftLabel,
    Span,
    Tags,
    Text,
    Turns,
    Words,
    WordShape,
)
from t2t_torch.features.tree import TreeFeature
from t2t_torch.text.transition import mended
from t2t_torch.text.tree import SHIFT, Tree

MAX_IDS = 48
"""Ids that are shown of a feature."""
_MAX_WORDS = 60
_MAX_CHARACTERS = 600
_MAX_TEXT_IDS = 4096  # a longer text is cut before it is decoded
_MAX_SOFT_LABELS = 5


@dataclass(frozen=True)
class Value:
    """A feature of a row.

    Attributes:
      name: the feature's.
      text: what it says; a long one is cut, which an ellipsis shows.
      ids: the first of its numbers; none of a picture's.
      length: how many numbers it has.
    """

    name: str
    text: str
    ids: tuple[float, ...]
    length: int

    @property
    def told_ids(self) -> str:
        """The ids in a line; an ellipsis shows that there are more."""
        told = " ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in self.ids)
        return f"{told} …" if 0 < len(self.ids) < self.length else told


@dataclass(frozen=True)
class AlignedWords:
    """Words, and what each of them is given.

    Attributes:
      names: of the features: the words', then the others'.
      words: for each word its entry of each feature.
      left_out: words at the end that are not shown.
    """

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    left_out: int


@dataclass(frozen=True)
class SampleRow:
    """A row of a split.

    Attributes:
      split: which.
      row: its number, from 0.
      values: its features.
      aligned: its words with their tags.
      pictures: by feature, [height, width, channels].
    """

    split: str
    row: int
    values: tuple[Value, ...]
    aligned: tuple[AlignedWords, ...] = ()
    pictures: Mapping[str, npt.NDArray[np.uint8]] = field(default_factory=dict)


def spread(rows: int, count: int) -> list[int]:
    """Returns the numbers of `count` rows, each from the middle of an equal part of all."""
    return sorted({(2 * i + 1) * rows // (2 * count) for i in range(count)} if rows else set())


def sample_row(
    split: str, row: int, features: Features, columns: Mapping[str, Column]
) -> SampleRow:
    """Reads a row."""
    stored = {name: columns[name].row(row) for name in features.all}
    return SampleRow(
        split=split,
        row=row,
        values=tuple(
            Value(
                name,
                text_of(name, features, stored),
                () if isinstance(one, Image) else tuple(stored[name][:MAX_IDS].tolist()),
                len(stored[name]),
            )
            for name, one in features.all.items()
        ),
        aligned=_aligned(features, stored),
        pictures={
            name: feature.decode(stored[name])
            for name, feature in features.all.items()
            if isinstance(feature, Image)
        },
    )


def text_of(
    name: str,
    features: Features,
    stored: Mapping[str, npt.NDArray[Any]],
    limit: int = _MAX_CHARACTERS,
) -> str:
    """Returns what a feature of a row says, in at most about `limit` characters."""
    feature, numbers = features.all[name], stored[name]
    if isinstance(feature, TreeFeature):
        text = _tree_text(feature, numbers, features, stored)
    elif isinstance(feature, Span):
        text = _span_text(feature, numbers, features, stored)
    elif isinstance(feature, Image):
        text = f"picture of {feature.height} x {feature.width} pixels"
    elif type(feature) is Text or isinstance(feature, (Words, Turns)):
        cut = numbers[: min(_MAX_TEXT_IDS, 8 * limit)]  # a character has a few ids at most
        text = _joined(feature, feature.decode(cut))
        text += "…" if len(cut) < len(numbers) and len(text) <= limit else ""
    else:
        text = _joined(feature, feature.decode(numbers))
    return text if len(text) <= limit else text[:limit].rstrip() + "…"


def _joined(feature: Feature, value: Any) -> str:
    """Writes a decoded value in a line."""
    if value is None:
        return "(unknown)" if isinstance(feature, ClassLabel) else "(none)"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(feature, Turns):
        return "  ".join(f"[{number}] {turn}" for number, turn in enumerate(value, 1))
    if isinstance(feature, MultiLabel):
        return ", ".join(value) or "(none)"
    if isinstance(feature, SoftLabel):
        top = sorted(value.items(), key=lambda pair: -pair[1])[:_MAX_SOFT_LABELS]
        more = ", …" if len(value) > len(top) else ""
        return ", ".join(f"{label} {probability:.3g}" for label, probability in top) + more
    if isinstance(value, (list, tuple)):
        return " ".join(map(_entry, value))
    return str(value)


def _entry(value: Any) -> str:
    """Writes one of several things."""
    if value is None:
        return "(unknown)"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ",".join(map(_entry, value)) or "-" if isinstance(value, list) else str(value)


def _span_text(
    feature: Span,
    numbers: npt.NDArray[Any],
    features: Features,
    stored: Mapping[str, npt.NDArray[Any]],
) -> str:
    place = feature.decode(numbers)
    if place is None:
        return "(no answer)"
    first, last = place
    told = f"word {first}" if first == last else f"words {first} to {last}"
    context = features.all.get(feature.of)
    if not isinstance(context, Words):
        return told
    words = context.decode(stored[feature.of])[first : last + 1]
    return f"{' '.join(words)}  ({told} of {feature.of})"


def _tree_text(
    feature: TreeFeature,
    numbers: npt.NDArray[Any],
    features: Features,
    stored: Mapping[str, npt.NDArray[Any]],
) -> str:
    """A tree with its words, if there is a feature with as many."""
    transitions = mended(feature.encoder.decode(numbers).split(" "))
    for name, words in features.inputs.items():
        if isinstance(words, Words):
            leaves = words.decode(stored[name])
            if len(leaves) == transitions.count(SHIFT) > 0:
                return str(Tree.from_transitions(transitions, leaves))
    return feature.decode(numbers)


def _aligned(
    features: Features, stored: Mapping[str, npt.NDArray[Any]]
) -> tuple[AlignedWords, ...]:
    tables = []
    for name, words in features.all.items():
        beside = [
            other
            for other, feature in features.all.items()
            if feature.aligned_to == name
            and isinstance(feature, (Tags, WordShape, Gazetteer))
            and not isinstance(feature, GazetteerWeights)
        ]
        if not isinstance(words, Words) or not beside:
            continue
        entries = [words.decode(stored[name])]
        entries += [list(map(_entry, features.all[x].decode(stored[x]))) for x in beside]
        count = max(map(len, entries))
        shown = [column + [""] * (count - len(column)) for column in entries]
        rows = tuple(zip(*(column[:_MAX_WORDS] for column in shown), strict=True))
        tables.append(AlignedWords((name, *beside), rows, max(0, count - _MAX_WORDS)))
    return tuple(tables)
