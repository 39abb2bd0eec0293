"""Sets of labels: parts of cells, lists, and columns of 0 and 1."""

from __future__ import annotations

import random

import pytest
from made_tables import ROWS, best, draws, texts


def sets(seed: int, mark: str, *kinds: str) -> list[str]:
    draw = random.Random(seed)
    drawn = (draw.sample(kinds, draw.randint(1, 3)) for _ in range(ROWS))
    return [mark.join(sorted(one) if mark == "," else one) for one in drawn]


@pytest.mark.parametrize(
    ("name", "several", "mark", "whole"),
    [
        ("c1", sets(5, ",", "a", "b", "c", "d"), ",", draws(6, "Toys, Games", "Books", "Garden")),
        ("labels", sets(6, " ", "joy", "anger", "fear", "love"), " ",
         draws(6, "data loss", "refund request", "other")),
        ("c1", sets(7, "#", "a", "b", "c"), "#", draws(6, "a", "b", "c")),
    ],
)  # fmt: skip
def test_parts_that_recombine_are_labels_and_a_mark_in_a_label_is_not(name, several, mark, whole):
    made = best(text=texts(1), **{name: several})
    assert made.kind == "text2multilabel"
    assert made.fields["targets"] == {"column": name, "split": mark}
    assert best(text=texts(1), **{name: whole}).kind == "text2class"


def test_several_labels_may_be_lists():
    draw = random.Random(7)
    lists = [[draw.choice(["a", "b", "c"])] for _ in range(ROWS)]
    assert best(text=texts(1), c1=lists).fields["targets"] == "c1"


def test_columns_of_0_and_1_are_labels():
    columns = {name: draws(n, 0, 0, 1) for n, name in enumerate(("rude", "spam", "odd"))}
    made = best(text=texts(1), **columns)
    assert made.kind == "text2multilabel"
    assert made.fields["targets"] == {"column": ["rude", "spam", "odd"], "one_hot": True}
    chosen = draws(7, 0, 1, 2)
    one = {name: [int(place == n) for place in chosen] for n, name in enumerate(columns)}
    assert best(text=texts(1), **one).kind == "text2class"
