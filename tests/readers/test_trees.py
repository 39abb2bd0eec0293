from __future__ import annotations

from typing import Any

import pytest

from t2t_torch.text.tree import parse_tree


def test_places_are_where_trees_start_and_outer_brackets_are_left_out(read: Any) -> None:
    records, _ = read("( (S\n   (NN a) (NN b)) )\n\n((X c)) (Y d)\n", "trees")
    assert [(r.place.line, r.values["tree"]) for r in records] == [
        (1, "(S (NN a) (NN b))"), (4, "(X c)"), (4, "(Y d)"),
    ]  # fmt: skip


def test_deep_trees_are_read(read: Any) -> None:
    deep = "(S " * 10_000 + "a" + ")" * 10_000
    (record,), _ = read(deep, "trees")
    assert record.values == {"tree": deep, "words": ["a"]}
    assert parse_tree(record.values["tree"]).words == ["a"]


_PENN = "( (S (NP-SBJ-1 (-NONE- *)) (VP (VB go) (NP=2 (-NONE- *T*-1)) (ADVP-DIR (RB home)))) )\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"traces": False}, "(S (VP (VB go) (ADVP-DIR (RB home))))"),
        (
            {"functions": False},
            "(S (NP (-NONE- *)) (VP (VB go) (NP (-NONE- *T*-1)) (ADVP (RB home))))",
        ),
        ({"traces": False, "functions": False}, "(S (VP (VB go) (ADVP (RB home))))"),
    ],
)
def test_traces_and_functions_are_left_out_if_asked(
    read: Any, options: dict[str, bool], expected: str | None
) -> None:
    (record,), bad = read(_PENN, "trees", **options)
    tree = parse_tree(_PENN.strip() if expected is None else expected)
    assert record.values == {"tree": tree.to_round(), "words": tree.words}
    assert not bad.listed


def test_a_tree_of_traces_alone_is_bad_where_they_are_left_out(read: Any) -> None:
    records, bad = read("(S (NP (-NONE- *)))\n(X b)\n", "trees", traces=False)
    assert [record.values["words"] for record in records] == [["b"]]
    assert "line 1, column 1: a tree without words but traces" in bad.listed[0]
