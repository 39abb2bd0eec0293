"""Texts as lower-case words and signs, for classifiers that count words."""

from __future__ import annotations

import re

# An apostrophe inside a word belongs to it: "don't" is one word, "'tis" two.
_WORDS = re.compile(r"\w+(?:'\w+)*|[^\w\s]")
_LINE_BREAKS = re.compile(r"<br\s*/?>|\\(?=\w)")


def plain_words(text: str) -> list[str]:
    r"""Returns the words of a text in lower case, each sign by itself.

    HTML's line breaks, and a backslash before a word, which stands for one in files of news, are
    spaces.
    """
    return _WORDS.findall(_LINE_BREAKS.sub(" ", text).lower())
