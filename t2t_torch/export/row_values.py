"""Stored numbers as what an input gives, and values that inputs seldom have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_torch.features import Feature, Gazetteer, Image, WordReal, Words
from t2t_torch.features.word import NUM_RESERVED, WordLabel
from t2t_torch.text.token import TokenEncoder

_UNKNOWN = "<unknown>"  # stands for a label that the data has and training has not


def value_of(feature: Feature, numbers: Any) -> Any:
    """Returns what numbers were made of, about.

    Args:
      feature: that they are of.
      numbers: of a row, as they are stored; of a gazetteer its ids and its weights.
    """
    if isinstance(feature, WordLabel):
        return [
            feature.encoder.decode(int(i) - NUM_RESERVED) if i >= NUM_RESERVED else _UNKNOWN
            for i in numbers
        ]
    if isinstance(feature, Gazetteer):
        ids, weights = numbers
        rows = np.array(weights, np.float64).reshape(-1, feature.width).tolist()
        return [
            dict(zip(labels, its, strict=False))
            for labels, its in zip(feature.decode(ids), rows, strict=True)
        ]
    found = feature.decode(numbers)
    return found.tolist() if isinstance(feature, Image) else found


def text_of(feature: Words, numbers: Sequence[int]) -> str:
    """Returns words as a text that `families.spanqa.tokens_of` cuts into as many.

    The sign for unknown words it would cut into several, so words of which each is another stand
    for these, and none is known.

    Args:
      feature: that they are of.
      numbers: their ids.
    """
    words = feature.decode(numbers)
    if isinstance(feature.encoder, TokenEncoder):
        known = set(feature.encoder.tokens)
        signs = {feature.encoder.decode([number]) for number in feature.encoder.unknown_ids}
        for place, word in enumerate(words):
            if word in signs:
                words[place] = next(
                    name for i in range(len(known) + 1) if (name := f"w{place}w{i}") not in known
                )
    return " ".join(words)


def odd_values(kind: WordLabel | Gazetteer | WordReal) -> list[Any]:
    """Returns what words seldom have."""
    if isinstance(kind, WordReal):
        return [[0.0] * kind.size, [-1e4 * (-1) ** place for place in range(kind.size)]]
    if isinstance(kind, Gazetteer):
        labels = kind.encoder.labels
        alike = dict.fromkeys([_UNKNOWN, *reversed(labels[: kind.width + 2])], 0.5)
        return [alike, {}, {_UNKNOWN: 1.0}, {labels[-1]: -2.0, labels[0]: 0.0}]
    return [_UNKNOWN]
