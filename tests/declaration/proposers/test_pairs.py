"""Pairs of texts, queries with documents, and rankings, found by values."""

from __future__ import annotations

from made_tables import ROWS, best, draws, texts


def test_texts_that_share_words_are_a_pair():
    first = texts(1)
    second = [" ".join([*one.split()[:-2], "again"]) for one in first]
    made = best(c0=first, c1=second, c2=draws(2, "yes", "no"))
    assert made.kind == "textpair2class"
    assert made.fields == {"first": "c0", "second": "c1", "targets": "c2"}


def test_names_that_differ_by_a_number_are_a_pair():
    made = best(text_a=texts(1), text_b=texts(2), score=[n / 7 for n in range(ROWS)])
    assert made.kind == "textpair2real"


def test_a_heading_is_joined_to_its_text():
    made = best(title=texts(1, 3), body=texts(2, 20), queue=draws(3, "a", "b"))
    assert (made.kind, made.fields["inputs"]) == ("text2class", ["title", "body"])


def test_a_text_that_repeats_is_a_query():
    made = best(c0=texts(1, count=12) * (ROWS // 12), c1=texts(2), c2=draws(3, 0, 1))
    assert made.kind == "queryrelevance"
    assert made.fields == {"query": "c0", "document": "c1", "targets": "c2"}


def test_a_chosen_and_a_rejected_text_are_ranked():
    made = best(prompt=texts(1), chosen=texts(2), rejected=texts(3))
    assert made.kind == "pairranking"
    assert made.fields == {"query": "prompt", "positive": "chosen", "negative": "rejected"}
