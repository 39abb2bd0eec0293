"""Texts as plain words."""

from __future__ import annotations

import pytest

from t2t_torch.text.plain_words import plain_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's GREAT, isn't it?", ["it's", "great", ",", "isn't", "it", "?"]),
        ("End.<br /><br />New\\line", ["end", ".", "new", "line"]),
        ("'Tis caf\u00e9 10/10", ["'", "tis", "caf\u00e9", "10", "/", "10"]),
        ("", []),
    ],
)
def test_words_are_in_lower_case_and_signs_by_themselves(text, words):
    assert plain_words(text) == words
