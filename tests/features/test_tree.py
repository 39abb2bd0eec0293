from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.features import TreeFeature
from t2t_torch.text.encoder import EOS
from t2t_torch.text.transition import TransitionEncoder
from t2t_torch.text.tree import parse_tree

TREE = TreeFeature(TransitionEncoder(["IN:X", "SL:Y"]))
TEXT = "[IN:X how far [SL:Y home ] ? ]"


def test_a_tree_becomes_transitions_and_is_decoded_without_its_words() -> None:
    ids = TREE.encode(TEXT)
    assert ids == [5, 2, 2, 6, 2, 3, 2, 3, EOS]
    assert TREE.decode(np.array([*ids, 0, 0])) == "[IN:X 0 0 [SL:Y 0 ] 0 ]"
    assert TREE.encode_batch([parse_tree(TEXT), "(IN:X a)"]) == [ids, [5, 2, 3, EOS]]
    assert TREE.vocab_size == 7


def test_a_label_of_evaluation_data_alone_is_no_error() -> None:
    assert TREE.decode(TREE.encode("[IN:X [SL:NEW a ] ]")) == "[IN:X [<UNK> 0 ] ]"


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(DataError, match="column 1: the bracket that opens here is never closed"):
        TREE.encode("[IN:X [SL:Y a ]")


@given(st.lists(st.integers(-3, 12)))
def test_any_ids_are_decoded(ids: list[int]) -> None:
    text = TREE.decode(ids)
    if text:
        assert set(parse_tree(text).words) <= {"0"}
        assert TREE.decode(TREE.encode(text)) == text
