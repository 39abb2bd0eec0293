"""Labels, sets of labels and numbers of texts, found by values."""

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


def test_parts_that_recombine_are_labels_and_a_comma_in_a_label_is_not():
    draw = random.Random(5)
    sets = [",".join(sorted(draw.sample(["a", "b", "c", "d"], draw.randint(1, 3)))) for _ in
            range(ROWS)]  # fmt: skip
    made = best(text=texts(1), c1=sets)
    assert made.kind == "text2multilabel"
    assert made.fields["targets"] == {"column": "c1", "split": ","}
    whole = best(text=texts(1), c1=draws(6, "Toys, Games", "Books", "Garden"))
    assert whole.kind == "text2class"


def test_labels_may_have_blanks_between_them_and_a_label_two_words():
    draw = random.Random(6)
    kinds = ["joy", "anger", "fear", "love"]
    sets = [" ".join(draw.sample(kinds, draw.randint(1, 3))) for _ in range(ROWS)]
    made = best(text=texts(1), labels=sets)
    assert made.fields["targets"] == {"column": "labels", "split": " "}
    two = draws(6, "data loss", "refund request", "other")
    assert best(text=texts(1), labels=two).kind == "text2class"


def test_labels_may_have_doccanos_mark_or_a_list_of_their_own():
    draw = random.Random(7)
    sets = ["#".join(draw.sample(["a", "b", "c"], draw.randint(1, 3))) for _ in range(ROWS)]
    assert best(text=texts(1), c1=sets).fields["targets"] == {"column": "c1", "split": "#"}
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
