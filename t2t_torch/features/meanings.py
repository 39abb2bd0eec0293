"""What the ids of a feature stand for: whether those of another mean the same."""

from __future__ import annotations

from typing import Any

from t2t_torch.features.feature import Features


def meanings(features: Features, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the kind of a feature and what each of its ids stands for."""
    feature: Any = features.all[name]
    encoder = getattr(feature, "encoder", None)
    kind = "text" if feature.generates or hasattr(encoder, "words_of_ids") else ""
    if encoder is None:
        return type(feature).__name__, tuple(map(str, feature.shape))
    if not hasattr(encoder, "words_of_ids"):
        return type(feature).__name__, tuple(encoder.labels)
    return kind, tuple(encoder.decode([number]) for number in range(encoder.vocab_size))
