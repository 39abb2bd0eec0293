r"""Tokenizers: words of a text with their character offsets, identical in exported graphs.

A tokenizer is the name of one of `TOKENIZERS` or a regular expression of a word.  Each character
that is not a space belongs to a word: one that the expression does not match is a word by itself.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

IDEOGRAPHS = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
"""Character class of ideographs and kana: written without spaces, so each is a word of its own."""

_JOINERS = "\u200c\u200d"  # occur within words of Persian and Indic scripts
_PLACES_OF_MARKS = (range(0x300, 0x20000), range(0xE0100, 0xE01F0))


class Token(NamedTuple):
    """A word and its position in a text, in characters; `end` is exclusive."""

    text: str
    start: int
    end: int


@functools.cache
def marks() -> str:
    """Returns the combining marks that are part of a word, for use in a character class."""
    characters = map(chr, itertools.chain(*_PLACES_OF_MARKS))
    found = (one for one in characters if unicodedata.category(one).startswith("M"))
    return "".join(_ranges(found)) + _JOINERS


def _ranges(characters: Iterable[str]) -> Iterator[str]:
    """Yields the ranges of ascending characters, such as "a-z"."""
    for _, run in itertools.groupby(enumerate(characters), lambda pair: ord(pair[1]) - pair[0]):
        first, *rest = (character for _, character in run)
        yield f"{first}-{rest[-1]}" if len(rest) > 1 else first + "".join(rest)


TOKENIZERS = ("words", "clitics", "punctuation", "whitespace")
"""Names of tokenizers.

- words: words, numbers and punctuation marks; inner apostrophes and hyphens belong to their word
  (don't, O'Brien, state-of-the-art, 3.5, 12:30, U.S.).
- clitics: like words, but an apostrophe begins a word (Germany 's, I 'm).
- punctuation: each punctuation mark is a word (don ' t).
- whitespace: words are separated by spaces only.
"""


@functools.cache
def word_expression(tokenizer: str) -> str:
    """Returns the regular expression of a tokenizer, which matches at every character but spaces.

    Raises:
      ValueError: the tokenizer is not a name, and its expression is invalid, has a capturing group,
        or matches the empty string or a space.
    """
    if tokenizer == "whitespace":
        return r"\S+"
    if tokenizer not in TOKENIZERS:
        check_word(tokenizer)
        return rf"(?:{tokenizer})|\S"
    letters = rf"(?:[^\W{IDEOGRAPHS}]|[{marks()}])+"
    inner = rf"[.,:/]\d+|-{letters}"
    words = [rf"[{IDEOGRAPHS}][{marks()}]*"]
    if tokenizer == "punctuation":
        words.append(letters)
    else:
        words.append(r"(?:[A-Za-z]\.){2,}")
    if tokenizer == "words":
        words.append(rf"{letters}(?:{inner}|['’]{letters})*")
    elif tokenizer == "clitics":
        words += [rf"{letters}(?:{inner})*", rf"['’]{letters}"]
    return "|".join([*words, rf"[^\w\s][{marks()}]*"])


def check_word(expression: str) -> None:
    """Checks the regular expression of a word.

    Raises:
      ValueError: see `word_expression`.
    """
    if expression.isidentifier():
        names = ", ".join(TOKENIZERS)
        raise ValueError(
            f"there is no tokenizer {expression!r}. There are {names}; or write a regular "
            r"expression of a word, such as '\w+'."
        )
    pattern = check_expression(expression, repr(expression))
    for space in filter(str.isspace, map(chr, range(0x3001))):
        probe = f"a{space}a 1{space}1 .{space}."
        if any(re.search(r"\s", found[0]) for found in pattern.finditer(probe)):
            raise ValueError(
                f"{expression!r} takes the space {space!r} into a word. Leave spaces out: "
                r"[^\s...]."
            )


def check_expression(expression: str, shown: str) -> re.Pattern[str]:
    """Compiles a regular expression that is to find the parts of a text.

    Args:
      expression: the expression.
      shown: what an error calls it.

    Raises:
      ValueError: it is none, has a capturing group, or matches the empty string.
    """
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise ValueError(f"{shown} is no regular expression: {error}.") from None
    if pattern.groups:
        raise ValueError(
            f"{shown} has a capturing group. Write (?:...): what is in a group alone is found."
        )
    if pattern.match(""):
        raise ValueError(
            f"{shown} matches where nothing stands. Let it match one character or more: + in place "
            "of *."
        )
    return pattern


def tokenize(text: str, tokenizer: str) -> list[Token]:
    """Returns the words of a text with their positions.

    Args:
      text: the text.
      tokenizer: expression of a word, from `word_expression`.
    """
    return [Token(match[0], *match.span()) for match in re.finditer(tokenizer, text)]
