from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.features import TreeFeature
from t2t_torch.layers.tree import ValidTransitions
from t2t_torch.text.encoder import EOS
from t2t_torch.text.tree import TransitionEncoder, Tree, builds_tree, parse_tree

REQUESTS = TreeFeature(TransitionEncoder(["IN:A", "IN:B", "SL:C", "SL:D"]))
PHRASES = TreeFeature(TransitionEncoder(["S", "NP", "VP"]))
CPU = torch.device("cpu")


def drawn(feature: TreeFeature, words: list[int], max_open: int, room: int, seed: int):
    """Rows of transitions drawn evenly from the valid ones, until the end symbol."""
    rules = ValidTransitions(feature, max_open, CPU)
    generator = torch.Generator().manual_seed(seed)
    progress = rules.start(torch.tensor(words), torch.full((len(words),), room))
    rows: list[list[int]] = [[] for _ in words]
    while any(not row or row[-1] != EOS for row in rows):
        valid = rules.valid(progress).double()
        ids = torch.multinomial(valid, 1, generator=generator)[:, 0]
        for row, identity in zip(rows, ids.tolist(), strict=True):
            if not row or row[-1] != EOS:
                row.append(identity)
        progress = rules.after(ids, progress)
    return rows


@settings(max_examples=40, deadline=None)
@given(
    words=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    max_open=st.integers(1, 5),
    more=st.integers(0, 20),
    seed=st.integers(0, 10**6),
    of_requests=st.booleans(),
)
def test_whatever_is_valid_builds_one_tree_over_all_words_in_the_room(
    words: list[int], max_open: int, more: int, seed: int, of_requests: bool
) -> None:
    feature = REQUESTS if of_requests else PHRASES
    room = max(words) + 3 + more
    for row, count in zip(drawn(feature, words, max_open, room, seed), words, strict=True):
        steps = feature.transitions(row)
        assert builds_tree(steps, count) and len(row) <= room
        assert deepest(steps) <= max_open
        if of_requests:
            for label, above in parents(Tree.from_transitions(steps, ["w"] * count)):
                assert "<UNK>" in (label, above) or label[:3] != above[:3]


def deepest(steps: list[str]) -> int:
    depth = most = 0
    for step in steps:
        depth += {"SHIFT": 0, "REDUCE": -1}.get(step, 1)
        most = max(most, depth)
    return most


def parents(tree: Tree, above: str = "SL:") -> Iterator[tuple[str, str]]:
    """Each label with that of the constituent it is in; the outermost is as if in a slot."""
    yield tree.label, above
    for child in tree.children:
        if isinstance(child, Tree):
            yield from parents(child, tree.label)


TREES = (
    "[IN:A [SL:C [IN:B [SL:D x ] y ] ] z ]",
    "[IN:A x ]",
    "[IN:B [SL:D x ] [SL:C y z ] ]",
    "[IN:A [SL:NEW [IN:B x ] ] ]",
)


def test_every_right_transition_is_valid() -> None:
    for text in TREES:
        check_tree(REQUESTS, parse_tree(text), 4)
    check_tree(PHRASES, parse_tree("(S (S (S (NP x) y)) (VP (VP z)))"), 4)


def check_tree(feature: TreeFeature, tree: Tree, max_open: int) -> None:
    """Checks that all transitions of a tree, and the end symbol after them, are valid."""
    rules = ValidTransitions(feature, max_open, CPU)
    ids = feature.encode(tree)
    progress = rules.start(torch.tensor([len(tree.words)]), torch.tensor([len(ids)]))
    for identity in ids:
        assert rules.valid(progress)[0, identity], (str(tree), identity)
        progress = rules.after(torch.tensor([identity]), progress)


@pytest.mark.parametrize(
    ("before", "valid"),
    [
        ([], {"(IN:A", "(IN:B", "(<UNK>"}),
        (["(IN:A"], {"SHIFT", "(SL:C", "(SL:D", "(<UNK>"}),
        (["(IN:A", "(SL:C"], {"SHIFT", "(IN:A", "(IN:B", "(<UNK>"}),
        (["(IN:A", "SHIFT"], {"SHIFT", "(SL:C", "(SL:D", "(<UNK>"}),  # words are left
        (["(IN:A", "(SL:C", "SHIFT"], {"SHIFT", "REDUCE", "(IN:A", "(IN:B", "(<UNK>"}),
        (["(IN:A", "SHIFT", "SHIFT"], {"REDUCE"}),
        (["(IN:A", "SHIFT", "SHIFT", "REDUCE"], {"<EOS>"}),
    ],
)
def test_what_may_follow_is_what_the_rules_say(before: list[str], valid: set[str]) -> None:
    encoder = REQUESTS.encoder
    rules = ValidTransitions(REQUESTS, 5, CPU)
    progress = rules.start(torch.tensor([2]))
    for step in before:
        progress = rules.after(torch.tensor(encoder.encode(step)), progress)
    found = rules.valid(progress)[0].nonzero().flatten().tolist()
    names = {"<EOS>" if i == EOS else encoder.decode([i]) for i in found}
    assert names == valid


def test_what_broke_the_rules_may_end_and_never_nothing() -> None:
    rules = ValidTransitions(PHRASES, 2, CPU)
    for ids in ([3, 3, 2], [1, 0, 5, 5, 5, 5, 3], [2, 2, 2, 2, 2]):
        progress = rules.start(torch.tensor([2]), torch.tensor([9]))
        for identity in ids:
            progress = rules.after(torch.tensor([identity]), progress)
            assert rules.valid(progress).any()
