"""Questions about a text: its words, its windows, its answers."""

from __future__ import annotations

import pytest

from t2t_torch.errors import DataError
from t2t_torch.problem_types.words import SpanQAProblem, tokens_of
from t2t_torch.runtime.prediction import Prediction


class Asked(SpanQAProblem):
    """Windows of four words."""

    name = "asked"
    max_context = 4
    context_stride = 3

    def generate_samples(self, tmp_dir, split):
        yield from ()


CONTEXT = "one  two, four five six (seven)"
SAMPLE = {"question": "which?", "context": CONTEXT}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs and the virama are marks
        ("می‌روم خانه", ["می‌روم", "خانه"]),  # with a ZWNJ
        ("東京は大きい。", ["東", "京", "は", "大", "き", "い", "。"]),
        ("iPhone手机8", ["iPhone", "手", "机", "8"]),
        ("cafe\u0301 e\u0301t\u00e9", ["cafe\u0301", "e\u0301t\u00e9"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("が か\u3099", ["が", "か\u3099"]),
        ("Don't pay $3", ["Don", "'", "t", "pay", "$", "3"]),
    ],
)
def test_words_of_all_scripts(text, words):
    tokens = tokens_of(text)
    assert [token.text for token in tokens] == words
    assert all(text[token.start : token.end] == token.text for token in tokens)


def test_a_long_context_is_asked_in_windows_that_cover_it():
    windows = Asked().inputs_of(SAMPLE)
    assert [" ".join(window["context"]) for window in windows] == [
        "one two , four",
        "four five six (",
        "( seven )",
    ]
    stored = list(Asked().examples_of({**SAMPLE, "answers": []}))
    assert [one["context"] for one in stored] == [window["context"] for window in windows]
    assert len(Asked().inputs_of({**SAMPLE, "context": "a b c d"})) == 1


def _part(value, probability):
    return Prediction.of_value("targets", value, probability)


def test_the_most_probable_answer_of_all_windows_is_given_as_it_is_spelt():
    found = [_part((0, 2), 0.3), _part(None, 0.9), _part((0, 1), 0.6)]
    assert Asked().answer_of("targets", found, SAMPLE) == Prediction.of_value(
        "targets", "(seven", 0.6
    )
    found[2] = _part(None, 0.6)
    assert Asked().answer_of("targets", found, SAMPLE) == Prediction.of_value(
        "targets", "one  two,", 0.3
    )


def test_there_is_no_answer_only_if_no_window_has_one():
    found = [_part(None, 0.9), _part(None, 0.4), _part(None, 0.8)]
    assert Asked().answer_of("targets", found, SAMPLE) == _part("", 0.4)


def test_a_context_without_a_word_is_refused():
    with pytest.raises(DataError, match="without a word"):
        Asked().inputs_of({"question": "which?", "context": " "})
