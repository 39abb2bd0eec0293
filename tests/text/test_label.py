from __future__ import annotations

import pytest

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import ClassLabelEncoder


def test_classes_start_at_zero_and_none_is_taken_for_padding_or_end() -> None:
    encoder = ClassLabelEncoder(["neg", "pos"])
    assert [encoder.encode(label) for label in ("neg", "pos")] == [0, 1]
    assert [encoder.decode(i) for i in (0, 1)] == ["neg", "pos"]


def test_unknown_labels_and_classes_are_refused() -> None:
    encoder = ClassLabelEncoder(["neg", "pos"])
    with pytest.raises(DataError, match=r"'nope' is no label; the labels are \['neg', 'pos'\]"):
        encoder.encode("nope")
    for identity in (-1, 2):
        with pytest.raises(DataError, match="the classes are 0 to 1"):
            encoder.decode(identity)
    with pytest.raises(DataError, match="'a' is there twice"):
        ClassLabelEncoder(["a", "b", "a"])
