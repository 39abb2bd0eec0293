from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.text.tree import Tree, TreeSyntaxError, parse_tree

TOP = "[IN:GET_EVENT What 's on ( near me ) [SL:DATE_TIME tonight ] ? ]"
PTB = "(S (NP-SBJ-1 (-NONE- *)) (VP (VBZ flies) (NP=2 (NN -LRB-) (-NONE- *T*-1) (NN x))) (. .))"

_LABEL = st.text(st.sampled_from("SNPV:-_$|."), min_size=1)
_WORD = st.text(st.characters(codec="utf-8", exclude_characters=" \t\r\n"), min_size=1) | (
    st.sampled_from(["[", "]", "(", ")", "[a", "]]", "[IN:X", "a]", "()", "SHIFT"])
)
_TREES = st.recursive(
    st.builds(lambda label, words: Tree(label, tuple(words)), _LABEL, st.lists(_WORD, max_size=2)),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        _LABEL,
        st.lists(inner | _WORD, max_size=3),
    ),
    max_leaves=8,
).filter(lambda tree: not any("SB-" in word or "RB-" in word for word in tree.words))


@given(_TREES)
def test_trees_are_read_as_they_were_written(tree: Tree) -> None:
    assert parse_tree(str(tree)) == tree
    assert parse_tree(tree.to_round()) == tree
    assert hash(parse_tree(str(tree))) == hash(tree)


@given(_TREES)
def test_transitions_build_the_tree_again(tree: Tree) -> None:
    transitions = tree.transitions()
    assert Tree.from_transitions(transitions, tree.words) == tree
    assert transitions.count("SHIFT") == len(tree.words)
    assert [t[1:] for t in transitions if t.startswith("(")] == tree.labels


def test_trees_of_requests_have_words_that_look_like_brackets() -> None:
    tree = parse_tree(TOP)
    assert tree == Tree(
        "IN:GET_EVENT",
        ("What", "'s", "on", "(", "near", "me", ")", Tree("SL:DATE_TIME", ("tonight",)), "?"),
    )
    assert str(tree) == TOP
    assert tree.words == "What 's on ( near me ) tonight ?".split()
    assert tree.to_round() == (
        "(IN:GET_EVENT What 's on -LRB- near me -RRB- (SL:DATE_TIME tonight) ?)"
    )
    assert parse_tree("[X [ a[b -LSB-c -RSB- ]] ]").words == ["[", "a[b", "[c", "]", "]]"]


def test_trees_of_sentences_have_brackets_by_name() -> None:
    tree = parse_tree(PTB)
    assert tree.words == ["*", "flies", "(", "*T*-1", "x", "."]
    assert tree.to_round() == PTB
    assert str(parse_tree("(X (-LRB- -LCB-) (Y a\\/b))")) == "[X [-LRB- -LCB- ] [Y a\\/b ] ]"


def test_transitions_are_in_the_order_of_the_text() -> None:
    assert parse_tree("(S (NP a) b)").transitions() == ("(S (NP SHIFT REDUCE SHIFT REDUCE".split())


def test_traces_and_what_holds_nothing_else_are_taken_out() -> None:
    spoken = parse_tree(PTB).without_traces()
    assert spoken.to_round() == "(S (VP (VBZ flies) (NP=2 (NN -LRB-) (NN x))) (. .))"
    with pytest.raises(DataError, match="has no words"):
        parse_tree("(S (NP (-NONE- *)) (VP))").without_traces()


def test_functions_and_indices_are_taken_off_labels() -> None:
    bare = parse_tree(PTB).without_functions()
    assert bare.labels == ["S", "NP", "-NONE-", "VP", "VBZ", "NP", "NN", "-NONE-", "NN", "."]
    assert parse_tree("(PRP$ (-LRB- a) (= b))").without_functions().labels == ["PRP$", "-LRB-", "="]


@pytest.mark.parametrize(
    "text", ["( (S a) )", "((S a))", " (S\n\ta ) \n", "( S a)", "(S(a))"[:0] + "(S a)"]
)
def test_layout_and_an_outer_bracket_mean_nothing(text: str) -> None:
    assert parse_tree(text) == Tree("S", ("a",))


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("", 1, "a tree begins with"),
        ("  a", 3, "a tree begins with"),
        (")", 1, "a tree begins with"),
        ("(S (NP a)", 1, "never closed"),
        ("(S a) b", 7, "something follows"),
        ("(S a))", 6, "something follows"),
        ("(S a) (S b)", 7, "something follows"),
        ("(S (() a))", 4, "without a label"),
        ("()", 1, "holds no single tree"),
        ("( (S a) (S b))", 1, "holds no single tree"),
        ("( (S a) b)", 1, "holds no single tree"),
        ("(", 1, "never closed"),
        ("[ a ]", 1, "a lone [ opens nothing"),
        ("[IN:X a]", 1, "blanks on both sides"),
        ("[IN:X [SL:Y] a ]", 7, "'SL:Y]' is no label"),
        ("[IN:X a ] ]", 11, "something follows"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_column(text: str, column: int, why: str) -> None:
    with pytest.raises(TreeSyntaxError) as caught:
        parse_tree(text)
    assert caught.value.position == column - 1
    assert str(caught.value).startswith(f"column {column}: ")
    assert why in caught.value.why


@given(st.text(st.sampled_from("()[] \nab")))
def test_any_text_is_a_tree_or_refused(text: str) -> None:
    try:
        tree = parse_tree(text)
    except TreeSyntaxError:
        return
    assert parse_tree(str(tree)) == tree


@pytest.mark.parametrize(
    ("transitions", "words", "why"),
    [
        ("(S SHIFT REDUCE", [], "take 1 words, and there are 0"),
        ("(S REDUCE", ["a"], "take 0 words, and there are 1"),
        ("(S SHIFT", ["a"], "one that does not end"),
        ("SHIFT", ["a"], "outside it"),
        ("REDUCE", [], "outside it"),
        ("(S REDUCE (S REDUCE", [], "more than one"),
        ("", [], "build no tree: none"),
        ("shift", [], "'shift' is no transition"),
        ("( REDUCE", [], "'' is no label"),
    ],
)
def test_transitions_that_build_no_tree_are_refused(
    transitions: str, words: list[str], why: str
) -> None:
    with pytest.raises(DataError, match=why):
        Tree.from_transitions(transitions.split(), words)


@pytest.mark.parametrize("label", ["", "a b", "a(", "[a", "a\n"])
def test_labels_have_no_brackets_and_no_blanks(label: str) -> None:
    with pytest.raises(DataError, match="is no label"):
        Tree(label, ("a",))


@pytest.mark.parametrize("word", ["", "a b", "a\t"])
def test_words_have_no_blanks(word: str) -> None:
    with pytest.raises(DataError, match="is no word"):
        Tree("S", (word,))


@pytest.mark.slow
def test_depth_has_no_bound() -> None:
    depth = 20_000
    tree = parse_tree("(S x " * depth + ")" * depth)
    assert tree.words == ["x"] * depth
    assert tree == parse_tree(str(tree)) == parse_tree(tree.to_round())
    assert hash(tree) == hash(tree.without_traces()) == hash(tree.without_functions())
    assert Tree.from_transitions(tree.transitions(), tree.words) == tree
    assert repr(tree).startswith("parse_tree('[S x [S x ")
    with pytest.raises(TreeSyntaxError, match="never closed"):
        parse_tree("[S " * depth)


def test_tags_are_taken_off_and_put_back() -> None:
    tree = parse_tree("(S (NP (DT the) (NN board)) (VP (VBD met)) (. .))")
    bare, tags = tree.without_tags()
    assert bare.to_round() == "(S (NP the board) (VP met) .)"
    assert tags == ["DT", "NN", "VBD", "."]
    assert bare.with_tags(tags) == tree


@pytest.mark.parametrize(
    "text", ["(S time)", "(NP (NN time) flies)", "(S (NP (DT the) a))", "(NN x)"]
)
def test_a_word_without_a_tag_of_its_own_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="has no tag of its own"):
        parse_tree(text).without_tags()


def test_there_is_one_tag_for_each_word() -> None:
    with pytest.raises(DataError, match="1 tags, where 2 words have one each"):
        parse_tree("(S time flies)").with_tags(["NN"])
