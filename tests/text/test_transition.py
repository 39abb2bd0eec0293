from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.text.tree import TransitionEncoder, Tree, are_of_requests, builds_tree, repair

TRANSITIONS = "(NP SHIFT (VP SHIFT REDUCE REDUCE"


def test_ids_are_reserved_ones_then_labels_in_their_order() -> None:
    encoder = TransitionEncoder(["NP", "VP"])
    assert encoder.vocab_size == 7
    assert encoder.encode(TRANSITIONS) == [5, 2, 6, 2, 3, 3]
    assert encoder.decode([5, 2, 6, 2, 3, PAD, 3, EOS, 2]) == TRANSITIONS
    assert encoder.encode("") == []
    assert encoder.encode_batch([TRANSITIONS, "REDUCE"]) == [[5, 2, 6, 2, 3, 3], [3]]


def test_a_label_that_training_does_not_know_has_an_id_of_its_own() -> None:
    encoder = TransitionEncoder(["NP"])
    assert encoder.encode("(NP (ODD SHIFT REDUCE REDUCE") == [5, 4, 2, 3, 3]
    assert encoder.decode([5, 4, 2, 3, 3]) == "(NP (<UNK> SHIFT REDUCE REDUCE"


def test_labels_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    path.write_text("IN:X\nSL:Y\n")
    encoder = TransitionEncoder.load(path)
    assert encoder.labels == ("IN:X", "SL:Y")
    assert encoder.encode("(SL:Y") == [6]
    path.write_text("NP\nNP\n")
    with pytest.raises(DataError, match=r"labels: The labels of trees hold 'NP' twice"):
        TransitionEncoder.load(path)
    with pytest.raises(DataError, match="absent"):
        TransitionEncoder.load(tmp_path / "absent")


@pytest.mark.parametrize("labels", [["a", "a"], ["<UNK>"], [""], ["a b"]])
def test_labels_that_cannot_be_told_apart_are_refused(labels: list[str]) -> None:
    with pytest.raises(DataError, match="The labels of trees hold"):
        TransitionEncoder(labels)


@pytest.mark.parametrize("text", ["shift", "NP", "(", "SHIFT  SHIFT", "<pad>"])
def test_what_is_no_transition_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="is no transition"):
        TransitionEncoder(["NP"]).encode(text)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (TRANSITIONS, TRANSITIONS),
        ("SHIFT REDUCE (NP SHIFT REDUCE REDUCE SHIFT (VP", "(NP SHIFT REDUCE"),
        ("(NP SHIFT (VP SHIFT", TRANSITIONS),
        ("(NP ID_77 ( SHIFT REDUCE", "(NP SHIFT REDUCE"),
        ("SHIFT REDUCE", ""),
        ("", ""),
    ],
)
def test_transitions_are_mended_to_those_of_one_tree(given: str, kept: str) -> None:
    assert repair(given.split()) == kept.split()


@given(st.lists(st.sampled_from(["SHIFT", "REDUCE", "(NP", "(VP", "?", "("])))
def test_what_is_mended_builds_a_tree_or_is_nothing(transitions: list[str]) -> None:
    kept = repair(transitions)
    assert repair(kept) == kept
    if kept:
        words = ["w"] * kept.count("SHIFT")
        assert Tree.from_transitions(kept, words).transitions() == kept
    else:
        assert not {"(NP", "(VP"} & set(transitions)


@pytest.mark.parametrize(
    ("given", "words", "kept"),
    [
        ("(S SHIFT REDUCE", 1, "(S SHIFT REDUCE"),
        ("(S (NP SHIFT REDUCE REDUCE", 2, "(S (NP SHIFT REDUCE SHIFT REDUCE"),
        ("(S (NP SHIFT", 2, "(S (NP SHIFT REDUCE SHIFT REDUCE"),
        ("(S SHIFT SHIFT SHIFT REDUCE", 1, "(S SHIFT REDUCE"),
        ("SHIFT SHIFT", 2, ""),
    ],
)
def test_what_is_mended_is_over_all_words(given: str, words: int, kept: str) -> None:
    assert repair(given.split(), words) == kept.split()
    assert builds_tree(given.split(), words) == (given == kept)


def test_requests_are_told_by_their_labels() -> None:
    assert are_of_requests(["IN:A", "SL:B"]) and are_of_requests(["IN:A"])
    assert not are_of_requests(["IN:A", "SL:B", "S"]) and not are_of_requests([])
