"""Words of texts and their positions, and expressions that are refused."""

from __future__ import annotations

import pytest

from t2t_torch.text.tokenizer import TOKENIZERS, tokenize, word_expression

TEXT = "O'Brien's state-of-the-art U.S. car: 3.5 km at 12:30, (yes)..."
SPLIT = {
    "words": "O'Brien's|state-of-the-art|U.S.|car|:|3.5|km|at|12:30|,|(|yes|)|.|.|.",
    "clitics": "O|'Brien|'s|state-of-the-art|U.S.|car|:|3.5|km|at|12:30|,|(|yes|)|.|.|.",
    "punctuation": "O|'|Brien|'|s|state|-|of|-|the|-|art|U|.|S|.|car|:|3|.|5|km|at|12|:|30|,|(|yes"
    "|)|.|.|.",
    "whitespace": "O'Brien's|state-of-the-art|U.S.|car:|3.5|km|at|12:30,|(yes)...",
}


def words(text: str, tokenizer: str) -> list[str]:
    return [token.text for token in tokenize(text, word_expression(tokenizer))]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_each_tokenizer_splits_as_its_documentation_says(name: str) -> None:
    assert words(TEXT, name) == SPLIT[name].split("|")


@pytest.mark.parametrize("name", [*TOKENIZERS, "[a-z]+"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\n\u00a0",
        "?!",
        "\u0301",
        "a\tb\r\nc\x0bd",
        "e\u0301te\u0301 👩\u200d👩\u200d👧 ❤️",
        "x" * 10_000,
    ],
)
def test_every_character_but_spaces_is_in_one_word(name: str, text: str) -> None:
    tokens = tokenize(text, word_expression(name))
    assert all(text[token.start : token.end] == token.text for token in tokens)
    assert "".join(token.text for token in tokens) == "".join(text.split())


def test_combining_marks_and_ideographs() -> None:
    assert words("e\u0301te\u0301 हिन्दी, 東京!", "words") == [
        "e\u0301te\u0301",
        "हिन्दी",
        ",",
        "東",
        "京",
        "!",
    ]
    assert words("❤\ufe0f\ufe0f ok", "words") == ["❤\ufe0f\ufe0f", "ok"]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("wrods", r"no tokenizer 'wrods'. There are words, clitics"),
        (r"\w+|(", "is no regular expression"),
        (r"(\w)+", r"capturing group. Write \(\?:"),
        (r"\w*", "matches where nothing stands"),
        ("[^.]+", "takes the space"),
        (r"[^ \t\n]+", "takes the space"),
    ],
)
def test_an_unusable_expression_is_refused(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        word_expression(expression)
