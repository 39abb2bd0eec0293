from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.readers import trees as reader
from t2t_torch.text.tree import Tree, parse_tree

_LABEL = st.text(st.sampled_from("SNPV:-_$|."), min_size=1)
_WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0 \t\r\n"), min_size=1).filter(
    lambda word: "-LSB-" not in word and "-RSB-" not in word and "RB-" not in word
)
_TREES = st.recursive(
    st.builds(lambda label, word: Tree(label, (word,)), _LABEL, _WORD),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        _LABEL,
        st.lists(inner | _WORD, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(_TREES, min_size=1), st.sampled_from(["\n", "\n\n", " ", "\r\n"]))
def test_trees_are_read_back(read: Any, trees: list[Tree], between: str) -> None:
    for form in (Tree.__str__, Tree.to_round):
        records, bad = read(between.join(map(form, trees)), "trees")
        assert not bad.listed
        assert [record.values for record in records] == [
            {"tree": form(tree), "words": tree.words} for tree in trees
        ]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(_TREES, min_size=1), st.sampled_from(["\n ", "\n\t", "\r\n  ", "\n\n "]))
def test_trees_over_several_lines_are_read_back(read: Any, trees: list[Tree], between: str) -> None:
    text = "\n".join(tree.to_round().replace(" ", between) for tree in trees)
    records, bad = read(text, "trees")
    assert not bad.listed
    assert [record.values["tree"] for record in records] == [tree.to_round() for tree in trees]


def test_places_are_where_trees_start_and_outer_brackets_are_left_out(read: Any) -> None:
    records, _ = read("( (S\n   (NN a) (NN b)) )\n\n((X c)) (Y d)\n", "trees")
    assert [(r.place.line, r.values["tree"]) for r in records] == [
        (1, "(S (NN a) (NN b))"), (4, "(X c)"), (4, "(Y d)"),
    ]  # fmt: skip


GOOD = "(S\n  (NN good))\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(S\n  (NN a)\n", "line 3, column 1: the bracket that opens here is not closed before an"),
        ("(S\n  (NN a)))\n  (NN b))\n", "line 4, column 10: a tree begins with ( or ["),
        ("(S (NN a)))\n", "line 3, column 11: a tree begins"),
        ("hello\n  (NN a)\n", "line 3, column 1: a tree begins"),
        ("(S\n  ((a) (b)))\n", "line 4, column 3: a bracket without a label"),
        ("(S\n  (NN))\n", "line 3, column 1: a tree without words"),
        ("(S\n (N[N a))\n", "line 4, column 2: 'N[N' is no label"),
        ("[S\n  [IN:X] a ]\n", "line 3, column 1: the bracket that opens here is not closed"),
        ("[S\n  [IN:X( a ] ]\n", "line 4, column 3: 'IN:X(' is no label"),
        ("[ S a ]\n", "line 3, column 1: a lone [ opens nothing"),
    ],
)
def test_a_bad_tree_is_reported_where_it_goes_wrong_and_spoils_no_other(
    read: Any, text: str, told: str
) -> None:
    good = "[S\n  [NN good ] ]\n" if text.startswith("[") else GOOD
    records, bad = read(f"{good}{text}{good}", "trees")
    assert [r.values["words"] for r in records if r.values["words"] != ["a"]] == [["good"]] * 2
    assert bad.count == 1
    assert told in bad.listed[0]


def test_a_tree_that_the_file_leaves_open_is_reported(read: Any) -> None:
    records, bad = read(f"{GOOD}  (S (NN a)\n     (NN b)\n", "trees")
    assert len(records) == 1
    assert bad.listed[0].endswith(
        "line 3, column 3: the bracket that opens here is not closed before the file ends"
    )


def test_a_tree_that_is_open_for_too_long_is_reported(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_LINES", 5)
    records, bad = read("(S\n" + "  (NN a)\n" * 20 + GOOD, "trees")
    assert [r.values["words"] for r in records] == [["good"]]
    assert bad.count == 1
    assert "open after 5 lines" in bad.listed[0]


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
