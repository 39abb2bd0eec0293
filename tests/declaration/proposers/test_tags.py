"""Words with tags, intents and trees, found by lengths and alphabets."""

from __future__ import annotations

import random

from made_tables import best, draws, table, texts

from t2t_torch.declaration.proposal import propose

DRAW = random.Random(3)
SENTENCES = [one.split() for one in texts(1)]
SPANS = [[DRAW.choice(["O", "O", "B-x", "I-x"]) for _ in words] for words in SENTENCES]
PARTS = [[DRAW.choice(["NN", "VB", "DT"]) for _ in words] for words in SENTENCES]


def test_a_list_as_long_as_the_words_are_the_tags():
    made = best(c0=SPANS, c1=SENTENCES)
    assert (made.kind, made.fields) == ("text2tags", {"inputs": "c1", "targets": "c0"})


def test_tags_with_a_scheme_come_before_parts_of_speech():
    made = propose(table(c0=SENTENCES, c1=PARTS, c2=SPANS))
    assert made[0].fields["targets"] == "c2"
    assert "could also be 'c1'" in made[0].doubts[0]


def test_inner_tags_come_after_outer_ones():
    inner = [[tag if n % 9 == 0 else "O" for n, tag in enumerate(tags)] for tags in SPANS]
    assert best(c0=SENTENCES, c1=SPANS, c2=inner).fields["targets"] == "c1"


def test_tags_may_be_written_in_cells():
    joined = best(text=[" ".join(s) for s in SENTENCES], c1=[" ".join(t) for t in SPANS])
    assert (joined.kind, joined.fields["targets"]) == ("text2tags", "c1")
    written = best(c0=list(map(str, SENTENCES)), c1=list(map(str, SPANS)))
    assert written.fields["targets"] == {"column": "c1", "split": "[]"}


def test_lists_of_other_lengths_are_no_tags():
    shifted = [*SPANS[1:], SPANS[0]]
    assert all(one.kind != "text2tags" for one in propose(table(c0=SENTENCES, c1=shifted)))


def test_a_label_beside_tags_is_the_intent_and_a_count_is_not():
    made = best(c0=SENTENCES, c1=SPANS, c2=draws(4, "book", "cancel"))
    assert made.kind == "intentslot"
    assert made.fields == {"inputs": "c0", "intent": "c2", "slots": "c1"}
    assert best(c0=SENTENCES, c1=SPANS, c2=draws(4, 1, 2)).kind == "text2tags"


def test_trees_are_learnt_unless_they_are_parses_of_labelled_texts():
    trees = [f"(S (A {one.split()[0]}) (B {one.split()[1]}))" for one in texts(5)]
    assert best(c0=trees).fields == {"targets": "c0"}
    words = [" ".join(one.split()[:2]) for one in texts(5)]
    made = best(text=words, parse=trees, label=draws(6, "a", "b"))
    assert (made.kind, made.fields["inputs"]) == ("text2class", "text")
