"""Texts cut into words."""

from __future__ import annotations

import pytest

from t2t_torch.text.encoder import WordCutter


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
    assert WordCutter()(text) == " ".join(words)


def test_a_capital_inside_a_word_begins_another_where_that_is_asked_for():
    text = "madeEurope, iPHONE and McDonald<BR>"
    assert WordCutter(splits_glued=True)(text) == "made europe , iphone and mc donald < br >"
    assert WordCutter()("madeEurope") == "madeeurope"


def test_what_is_a_space_and_how_words_are_written_can_be_said():
    cut = WordCutter(words=r"[^\s]+", spaces="-+", before_words="", lower_case=False)
    assert cut("A--b \\n-") == "A b \\n"


def test_one_character_at_most_is_a_space_before_words():
    with pytest.raises(ValueError, match="one character was expected"):
        WordCutter(before_words="--")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"words": "("}, r"words='\(' is no regular expression: missing \)"),
        ({"spaces": "["}, r"spaces='\[' is no regular expression"),
        ({"words": r"(\w)+"}, "has a capturing group"),
        ({"words": r"\w*"}, "matches where nothing stands"),
        ({"spaces": "-*"}, "matches where nothing stands"),
        ({"words": "[^,]+"}, "takes a space into a word"),
    ],
)
def test_an_expression_that_finds_no_words_is_told_when_the_cutter_is_made(given, told):
    with pytest.raises(ValueError, match=told):
        WordCutter(**given)
