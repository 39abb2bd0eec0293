"""Texts that are generated, and language models."""

from __future__ import annotations

from made_tables import best, draws, table, texts

from t2t_torch.declaration.proposal import propose


def test_two_languages_are_translated_in_the_order_of_the_columns():
    other = [" ".join(word[::-1] for word in one.split()) for one in texts(1)]
    made = propose(table(c0=texts(1), c1=other))
    assert (made[0].kind, made[0].fields) == ("text2text", {"inputs": "c0", "targets": "c1"})
    assert made[1].fields == {"inputs": "c1", "targets": "c0"}


def test_notes_of_the_same_words_are_no_text():
    notes = [f"CC-BY 2.0 by the project number {n}" for n in range(120)]
    other = [one.upper() for one in texts(1)]
    assert best(c0=texts(1), c1=other, c2=notes).columns == {"c0", "c1"}


def test_names_say_the_direction():
    made = best(target=texts(1), source=texts(2))
    assert made.fields == {"inputs": "source", "targets": "target"}


def test_several_sources_are_joined():
    made = best(instruction=texts(1), input=texts(2), output=texts(3))
    assert made.fields == {"inputs": ["instruction", "input"], "targets": "output"}


def test_one_text_is_a_language_model_unless_there_are_labels():
    assert best(text=texts(1)).kind == "text2self"
    assert best(text=texts(1), c1=draws(2, "a", "b")).kind == "text2class"
