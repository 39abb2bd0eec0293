"""Labels and numbers of texts, found by values."""

from __future__ import annotations

import random

from made_tables import ROWS, best, draws, table, texts

from t2t_torch.declaration.proposal import CLOSE, margin, propose


def test_the_label_is_the_column_that_repeats():
    made = best(c0=texts(1), c1=draws(2, "up", "down"), c2=list(range(ROWS)))
    assert (made.kind, made.fields) == ("text2class", {"inputs": "c0", "targets": "c1"})
    assert any("2 labels" in reason for reason in made.reasons)


def test_two_labels_are_as_likely_and_a_name_decides():
    columns = {"a": texts(1), "b": draws(2, "up", "down"), "c": draws(3, "x", "y", "z")}
    assert margin(propose(table(**columns))) < CLOSE
    named = propose(table(a=columns["a"], sentiment=columns["b"], c=columns["c"]))
    assert named[0].fields["targets"] == "sentiment"


def test_classes_that_differ_by_case_are_said():
    made = best(text=texts(1), label=draws(2, "Bug", "bug", "wish"))
    assert any("differ only by case" in doubt for doubt in made.doubts)


def test_a_number_with_many_values_is_predicted():
    draw = random.Random(4)
    made = best(text=texts(1), c1=[f"{draw.random():.3f}" for _ in range(ROWS)])
    assert (made.kind, made.fields["targets"]) == ("text2real", "c1")


def test_the_numbers_of_named_classes_are_not_the_target():
    names = draws(8, "good", "bad", "fair")
    numbers = [["good", "bad", "fair"].index(name) for name in names]
    made = propose(table(text=texts(1), label=numbers, label_text=names))
    assert made[0].fields["targets"] == "label_text"
    assert margin(made) > CLOSE


def test_a_list_of_utterances_is_a_dialogue():
    turns = [[a, b] for a, b in zip(texts(1), texts(2), strict=True)]
    made = best(turns=turns, end=draws(3, "won", "lost"))
    assert (made.kind, made.fields["inputs"]) == ("multiturn2class", "turns")
