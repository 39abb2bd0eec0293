from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.layers.tree import REDUCE_ID, SHIFT_ID, Structure, structure_of

ROWS = st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=14), min_size=1, max_size=4)


def slow_rows(rows: list[list[int]], words: int):
    """For each transition its height, what it stands on, its vector as nested tuples, words taken.

    By an ordinary stack, one row after another.
    """
    found = {}
    for b, row in enumerate(rows):
        stack: list[tuple[int, object, bool]] = []  # transition, vector, whether it is open
        front = 0
        for t, identity in enumerate(row):
            before = (stack[-1][0] if stack else None, front)
            if identity == SHIFT_ID:
                stack.append((t, ("word", b, min(front, words)), False))
                front += 1
            elif identity == REDUCE_ID:
                start = max((i for i, entry in enumerate(stack) if entry[2]), default=0)
                members = tuple(entry[1] for entry in stack[start:])
                del stack[start:]
                stack.append((t, ("composed", members), False))
            else:
                stack.append((t, ("label", b, t), True))
            below = stack[-2][0] if len(stack) > 1 else None
            found[b, t] = (len(stack), below, stack[-1][1], *before)
    return found


def told(structure: Structure, rows: list[list[int]], length: int, words: int):
    """The same of a structure."""
    vectors: list[object] = [None]
    for source in structure.sources.tolist():
        if source < len(rows) * (words + 1):
            vectors.append(("word", source // (words + 1), source % (words + 1)))
        else:
            at = source - len(rows) * (words + 1)
            vectors.append(("label", at // length, at % length))
    for members in structure.composed:
        made = [("composed", tuple(vectors[i] for i in row if i)) for row in members.tolist()]
        vectors += made
    counts = [height.pushes for height in structure.heights]
    pushes = [(number, place) for number, n in enumerate(counts, 1) for place in range(n)]
    place_of = {}  # (row, transition) of each push, by the tops of what comes after it
    for b, row in enumerate(rows):
        for t in range(len(row)):
            place_of[int(structure.tops[b, t + 1]) - 1] = (b, t)
    found = {}
    for n, (height, place) in enumerate(pushes):
        b, t = place_of[n]
        below = None
        if height > 1:
            parent = sum(counts[: height - 2]) + int(structure.heights[height - 1].parents[place])
            below = place_of[parent][1]
            assert place_of[parent][0] == b
        top = int(structure.tops[b, t]) - 1
        found[b, t] = (
            height,
            below,
            vectors[int(structure.vectors[n])],
            place_of[top][1] if top >= 0 else None,
            int(structure.fronts[b, t]),
        )
    return found


@settings(max_examples=150, deadline=None)
@given(rows=ROWS, words=st.integers(1, 6))
def test_the_structure_is_that_of_an_ordinary_stack_also_of_what_is_no_tree(
    rows: list[list[int]], words: int
) -> None:
    length = max(map(len, rows)) + 1  # with room for an end symbol
    ids = torch.zeros(len(rows), length, dtype=torch.int64)
    for b, row in enumerate(rows):
        ids[b, : len(row) + 1] = torch.tensor([*row, 1])
    found = told(structure_of(ids, words), rows, length, words)
    assert found == slow_rows(rows, words)
