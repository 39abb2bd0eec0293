from __future__ import annotations

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.features import Features, Text
from t2t_torch.text.encoder import EOS, ByteEncoder, IntegerEncoder

BYTES, DIGITS = Text(ByteEncoder()), Text(IntegerEncoder(10))


def test_a_text_ends_with_eos_and_decodes_without_it() -> None:
    assert DIGITS.encode("3 4") == [5, 6, EOS]
    assert DIGITS.encode_batch(["3", ""]) == [[5, EOS], [EOS]]
    assert DIGITS.decode([5, EOS, 0, 0]) == "3"
    assert Text(DIGITS.encoder, add_eos=False).encode("3 4") == [5, 6]
    assert DIGITS.vocab_size == 12


def test_reversing_exchanges_features_and_reads_the_other_column() -> None:
    features = Features({"inputs": BYTES, "context": BYTES}, {"targets": DIGITS}).reversed()
    assert features.inputs == {"inputs": DIGITS, "context": BYTES}
    assert features.targets == {"targets": BYTES}
    assert features.columns == {"inputs": "targets", "context": "context", "targets": "inputs"}


def test_reversing_twice_changes_nothing() -> None:
    features = Features({"inputs": BYTES}, {"targets": DIGITS})
    twice = features.reversed().reversed()
    assert (twice.all, twice.columns) == (features.all, features.columns)


def test_copying_makes_the_inputs_the_targets_too() -> None:
    features = Features({"inputs": BYTES}, {"targets": DIGITS})
    assert features.copied().all == {"inputs": BYTES, "targets": BYTES}
    assert features.copied().columns == {"inputs": "inputs", "targets": "inputs"}
    assert features.reversed().copied().columns == {"inputs": "targets", "targets": "targets"}


def test_a_language_model_has_no_inputs_and_cannot_be_reversed_or_copied() -> None:
    features = Features({}, {"targets": BYTES})
    assert not features.has_inputs
    assert list(features.all) == ["targets"]
    with pytest.raises(UsageError, match="without the suffix"):
        features.reversed()
    with pytest.raises(UsageError, match="without the suffix"):
        features.copied()
