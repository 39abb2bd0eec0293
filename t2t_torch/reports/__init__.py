"""Reports: statistics of data sets, pages of runs, and how they show each kind of feature.

What a report does with a kind of feature is a `functools.singledispatch` function of the feature.
A user's kind registers its own:

    @describe_value.register
    def _(feature: Percentage, value: Any) -> str:
        return f"{value} of all"
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.features import (
    Audio,
    ClassLabel,
    Feature,
    Features,
    Gazetteer,
    GazetteerWeights,
    Image,
    MultiLabel,
    PixelSequence,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
    Turns,
    WordShape,
)
from t2t_torch.features.audio import spectrogram
from t2t_torch.features.feature import Row, select_texts
from t2t_torch.text.tree import SHIFT, Tree, repair

_MAX_IDS = 4096  # longer texts are truncated
_MAX_SOFT_LABELS = 5  # number of labels of a distribution


@functools.singledispatch
def describe(feature: Feature, name: str, features: Features, row: Row, limit: int) -> str:
    """Returns the value of a row as text.

    Args:
      feature: the feature.
      name: name of the feature.
      features: features of the problem.
      row: stored numbers.
      limit: number of printed characters; a longer text may be truncated.
    """
    return describe_value(feature, feature.decode(row[name]))


@describe.register
def _(feature: Text, name: str, features: Features, row: Row, limit: int) -> str:
    numbers = row[name]
    start = numbers[: min(_MAX_IDS, 8 * limit)]  # a character has a few ids at most
    text = describe_value(feature, feature.decode(start))
    return text + "…" if len(start) < len(numbers) and len(text) <= limit else text


@describe.register
def _(feature: TreeFeature, name: str, features: Features, row: Row, limit: int) -> str:
    """Returns the tree over its words, if the number of words fits an input."""
    transitions = repair(feature.encoder.decode(row[name]).split(" "))
    for other, text in select_texts(features.inputs).items():
        leaves = text.decode(row[other])
        if isinstance(leaves, list) and len(leaves) == transitions.count(SHIFT) > 0:
            return str(Tree.from_transitions(transitions, leaves))
    return feature.decode(row[name])


@describe.register
def _(feature: Span, name: str, features: Features, row: Row, limit: int) -> str:
    """Returns the words of the span, with their indices."""
    place = feature.decode(row[name])
    if place is None:
        return "(no answer)"
    first, last = place
    numbers = f"word {first}" if first == last else f"words {first} to {last}"
    of = feature.of
    words = features.all[of].decode(row[of]) if of in features.all else None
    if not isinstance(words, list):
        return numbers
    return f"{' '.join(words[first : last + 1])}  ({numbers} of {of})"


@describe.register
def _(feature: Image, name: str, features: Features, row: Row, limit: int) -> str:
    if feature.is_file:
        high, wide, _ = feature.opened(row[name]).shape
        return f"picture of {high} x {wide} pixels, a file of {len(row[name]):,} bytes"
    return f"picture of {feature.height} x {feature.width} pixels"


@describe.register
def _(feature: PixelSequence, name: str, features: Features, row: Row, limit: int) -> str:
    return f"picture of {feature.height} x {feature.width} pixels"


@functools.singledispatch
def describe_value(feature: Feature, value: Any) -> str:
    """Returns a value as one line of a report."""
    if value is None:
        return "(none)"
    if isinstance(value, list | tuple):
        return " ".join(map(describe_entry, value))
    return describe_entry(value)


describe_value.register(ClassLabel, lambda feature, value: describe_entry(value))
describe_value.register(MultiLabel, lambda feature, value: ", ".join(value) or "(none)")


@describe_value.register
def _(feature: SoftLabel, value: Any) -> str:
    """Returns the most probable labels with their probabilities."""
    top = sorted(value.items(), key=lambda pair: -pair[1])[:_MAX_SOFT_LABELS]
    more = ", …" if len(value) > len(top) else ""
    return ", ".join(f"{label} {probability:.3g}" for label, probability in top) + more


@describe_value.register
def _(feature: Turns, value: Any) -> str:
    return "  ".join(f"[{number}] {turn}" for number, turn in enumerate(value, 1))


@describe_value.register
def _(feature: Audio, value: Any) -> str:
    return f"sound of {len(value) / feature.sample_rate:.2f} s"


def describe_entry(value: Any) -> str:
    """Returns an entry of a list as text."""
    if value is None:
        return "(unknown)"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ",".join(map(describe_entry, value)) or "-" if isinstance(value, list) else str(value)


@functools.singledispatch
def draw(feature: Feature, stored: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """Returns the picture of stored numbers, [height, width, channels] bytes; None if none."""
    return None


draw.register(Image, lambda feature, stored: feature.decode(stored))
draw.register(PixelSequence, lambda feature, stored: feature.pixels(stored))


@draw.register
def _(feature: Audio, stored: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    return spectrogram(feature.decode(stored), feature.sample_rate)[..., None]


@functools.singledispatch
def summarize(feature: Feature, rows: Iterable[npt.NDArray[Any]]) -> dict[str, float | str]:
    """Returns further statistics of a split, by name.

    Args:
      feature: the feature.
      rows: stored numbers of each row.
    """
    return {}


@functools.singledispatch
def is_listed_by_word(feature: Feature) -> bool:
    """Returns whether the entries of a feature are shown below the words of `aligned_to`."""
    return False


is_listed_by_word.register(Tags | WordShape | Gazetteer, lambda feature: True)
is_listed_by_word.register(GazetteerWeights, lambda feature: False)


@functools.singledispatch
def empty_length(feature: Feature) -> int:
    """Returns the length of an empty value: 1 for a text that ends with `EOS`."""
    return 0


empty_length.register(Text, lambda feature: int(feature.add_eos))
empty_length.register(Turns, lambda feature: 1)
