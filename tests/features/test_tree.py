from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.features import TreeFeature, WordLabel
from t2t_torch.text.encoder import EOS, ClassLabelEncoder
from t2t_torch.text.tree import TransitionEncoder, parse_tree

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


def test_a_tree_is_written_over_its_words_in_the_brackets_of_its_kind() -> None:
    ids = TREE.encode(TEXT)
    assert TREE.over(ids, "how far home ?".split()) == TEXT
    assert TREE.over(ids[:4], ["a", "b", "c"]) == "[IN:X a b [SL:Y ] c ]"  # repaired
    assert TREE.over([2, EOS], ["a"]) == ""
    phrases = TreeFeature(TransitionEncoder(["S", "NP"]), tags="tags", is_round=True)
    ids = phrases.encode("(S (NP the a) ran)")
    assert phrases.decode(ids) == "(S (NP 0 0) 0)"


def test_given_tags_stand_above_the_words_that_are_written() -> None:
    phrases = TreeFeature(TransitionEncoder(["S", "NP"]), tags="tags", is_round=True)
    ids = phrases.encode("(S (NP a b) c)")
    written = phrases.over(ids, ["the", "(", "ran"], ["DT", "-LRB-", "VBD"])
    assert written == "(S (NP (DT the) (-LRB- -LRB-)) (VBD ran))"
    with pytest.raises(DataError, match="3 words and 1 tags"):
        phrases.over(ids, ["a", "b", "c"], ["DT"])


def test_labels_of_words_that_are_given_are_ids_from_one() -> None:
    labels = WordLabel("inputs", ClassLabelEncoder(["DT", "NN"]))
    assert labels.encode("NN DT NEW") == [2, 1, 0]
    assert labels.encode(["NN"]) == [2] and labels.decode([2, 1, 0]) == ["NN", "DT"]
    assert (labels.vocab_size, labels.source, labels.aligned_to) == (3, "tags", "inputs")
