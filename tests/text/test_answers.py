"""SQuAD's exact match and F1, by hand."""

from __future__ import annotations

import pytest

from t2t_torch.errors import DataError
from t2t_torch.features import ClassLabel, Features, Span
from t2t_torch.metrics import text_scores
from t2t_torch.metrics.text_scores import answers_of, exact_match, f1, plain_answer
from t2t_torch.text.encoder import ClassLabelEncoder


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Denver Broncos.", "denver broncos"),
        ("an A-10 (the plane)", "a10 plane"),
        ("theatre", "theatre"),
        ("U.S.", "us"),
        ("the", ""),
    ],
)
def test_case_punctuation_articles_and_spaces_do_not_count(text, plain):
    assert plain_answer(text) == plain


@pytest.mark.parametrize(
    ("answer", "references", "match", "overlap"),
    [
        ("the Broncos", ["Denver Broncos", "Broncos"], 1.0, 1.0),
        ("Broncos", ["Denver Broncos"], 0.0, 2 / 3),
        ("very very good", ["very good"], 0.0, 4 / 5),
        ("", [], 1.0, 1.0),
        ("", ["Broncos"], 0.0, 0.0),
        ("Broncos", [], 0.0, 0.0),
    ],
)
def test_the_best_of_several_answers_counts(answer, references, match, overlap):
    assert exact_match(answer, references) == match
    assert f1(answer, references) == pytest.approx(overlap)


def test_a_line_is_a_list_of_answers_or_one():
    assert answers_of('["a", "b"]') == ["a", "b"]
    assert answers_of("[1] a") == ["[1] a"]
    assert answers_of("[1]") == ["[1]"]
    assert answers_of("") == [""]


def test_answers_of_spans_are_scored_as_squad_does():
    features = Features({}, {"targets": Span()})
    names = text_scores.scores_of(features)
    found = text_scores.score(["the cat", "dog"], ['["a cat", "cats"]', "dogs"], names)
    assert {name: each.value for name, each in found.items()} == {
        "squad_exact_match": 0.5,
        "squad_f1": 0.5,
    }
    label = Features({}, {"targets": ClassLabel(ClassLabelEncoder("ab"))})
    assert text_scores.scores_of(label) == ("exact_match",)
    with pytest.raises(DataError):
        text_scores.score(["a"], [], names)
