from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.text.tree import (
    NO_TREES,
    Bracket,
    Tree,
    brackets_of,
    compare,
    compare_texts,
    parse_tree,
    repair,
)

STEPS = st.lists(st.sampled_from(["(A", "(B", "SHIFT", "REDUCE"]), min_size=1, max_size=25)


def slow_brackets(tree: Tree, first: int = 0, depth: int = 0) -> list[Bracket]:
    """The constituents by going down the tree, each after those in it."""
    found: list[Bracket] = []
    end = first
    for child in tree.children:
        if isinstance(child, str):
            end += 1
        else:
            found += slow_brackets(child, end, depth + 1)
            end += len(child.words)
    below = tuple(tree.transitions()[1:-1])
    return [*found, Bracket(tree.label, first, end, below, depth)]


@given(STEPS)
def test_brackets_are_those_of_going_down_the_tree(steps: Sequence[str]) -> None:
    transitions = repair(["(S", *steps])
    tree = Tree.from_transitions(transitions, ["w"] * transitions.count("SHIFT"))
    assert brackets_of(transitions) == slow_brackets(tree)


def test_counts_are_those_counted_by_hand() -> None:
    right = "[IN:GO go [SL:TO to [IN:AT the park ] ] [SL:WHEN now ] ]"
    found = compare_texts("[IN:GO go [SL:TO to the park ] [SL:WHEN now ] ]", right)
    assert found[:4] == (3, 3, 4, 1)  # GO, TO and WHEN are where they are; only WHEN is whole
    assert (found.exact, found.frames, found.malformed, found.trees) == (0, 1, 0, 1)
    assert found.precision == 1 and found.recall == 0.75
    assert found.f1 == pytest.approx(6 / 7)
    assert found.tree_f1 == pytest.approx(2 / 7)


def test_a_bracket_counts_as_often_as_both_trees_have_it() -> None:
    found = compare_texts("[A [B [B x ] ] ]", "[A [B x ] ]")
    assert (found.right, found.predicted, found.expected) == (2, 3, 2)


def test_parts_of_speech_are_no_brackets_in_round_trees_alone() -> None:
    found = compare_texts(
        "(S (NP (NN time)) (VP (NN flies)))", "(S (NP (NN time)) (VP (VB flies)))"
    )
    assert (found.right, found.predicted, found.expected, found.exact) == (3, 3, 3, 0)
    assert compare_texts("[IN:A [SL:B x ] ]", "[IN:A [SL:B x ] ]").expected == 2


@pytest.mark.parametrize("output", ["", "[A x", "[A y ]", "[A x x ]", "nonsense"])
def test_what_is_no_tree_over_the_words_is_malformed_and_misses_all(output: str) -> None:
    found = compare_texts(output, "[A x ]")
    assert (found.right, found.predicted, found.expected, found.malformed) == (0, 0, 1, 1)
    assert (found.exact, found.frames) == (0, 0)


def test_a_reference_that_is_no_tree_is_an_error() -> None:
    with pytest.raises(DataError, match="a tree begins with"):
        compare_texts("[A x ]", "x")


def test_counts_add_up_and_nothing_is_nought() -> None:
    steps = ["(A", "SHIFT", "REDUCE"]
    one = compare(steps, steps)
    assert NO_TREES.plus(one).plus(one) == (2, 2, 2, 2, 2, 2, 0, 2)
    assert NO_TREES.f1 == NO_TREES.precision == NO_TREES.recall == NO_TREES.tree_f1 == 0


def test_a_right_tree_has_everything_right() -> None:
    steps = parse_tree("(S (NP time) (VP flies (NP an arrow)))").transitions()
    found = compare(steps, steps)
    assert found.f1 == found.tree_f1 == 1 and found.exact == found.frames == 1
