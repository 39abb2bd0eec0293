"""The meaning of a feature's ids and numbers, to compare features of several runs or problems."""

from __future__ import annotations

from typing import Any

from t2t_torch.features.feature import Feature, Features
from t2t_torch.features.real import Real


def meanings(features: Features, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the kind of a feature and the meaning of each id.

    A feature without ids has its shape instead; numbers also have the mean and the deviation with
    which they are standardized.
    """
    feature: Any = features.all[name]
    encoder = getattr(feature, "encoder", None)
    kind = "text" if feature.generates or hasattr(encoder, "words_of_ids") else ""
    if encoder is None:
        scale = (*feature.mean, "/", *feature.std) if isinstance(feature, Real) else ()
        return type(feature).__name__, tuple(map(str, (*feature.shape, *scale)))
    if not hasattr(encoder, "words_of_ids"):
        return type(feature).__name__, tuple(encoder.labels)
    return kind, tuple(encoder.decode([number]) for number in range(encoder.vocab_size))


def scale_of(feature: Feature) -> str:
    """Returns the size and scale of numbers for messages; empty for other features."""
    if not isinstance(feature, Real):
        return ""
    count = f"{feature.size} number{'s' if feature.size > 1 else ''}"
    if not feature.mean:
        return f"{count}, not standardized"
    pairs = [f"{m:g} and {s:g}" for m, s in zip(feature.mean, feature.std, strict=True)]
    more = ", ..." if len(pairs) > 3 else ""
    return f"{count}, standardized with mean and deviation {', '.join(pairs[:3])}{more}"
