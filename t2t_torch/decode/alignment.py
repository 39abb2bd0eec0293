"""Whether what is given of words has an entry for each of them."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.features import Feature
from t2t_torch.features.text import words_of
from t2t_torch.pipeline.lengths import numbers_per_position


def check_aligned(
    features: Mapping[str, Feature], sample: Mapping[str, Any], row: Mapping[str, Sequence[Any]]
) -> None:
    """Checks that fields with an entry for each word have as many as there are words.

    Args:
      features: that an input is encoded by.
      sample: the input's fields.
      row: by feature, what they are encoded as.

    Raises:
      DataError: a field has more or fewer.
    """
    for name, feature in features.items():
        of = feature.aligned_to
        if of is None or of not in features:
            continue
        field, words_field = feature.source or name, features[of].source or of
        if field == words_field:
            continue
        words = words_of(sample[words_field])
        entries = len(row[name]) // numbers_per_position(feature)
        if entries != len(words):
            raise DataError(
                f"{len(words)} words and {entries} {field}, where one for each word was expected: "
                f"{list(words)!r}, {reprlib.repr(sample[field])}."
            )
