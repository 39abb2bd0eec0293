"""Texts cut into words and signs, for classifiers that count words."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GLUED = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_PROBE = "a 1 .\t,\na"  # words, signs and numbers with spaces between them


@dataclass(frozen=True)
class WordCutter:
    r"""Finds the words of a text, each sign by itself; the same in Python and in an exported graph.

    So its expressions are what both know: no lookaround, no reference to a group, nothing that
    matches as little as it can, and in an alternative the longest match is what counts.

    Attributes:
      words: a regular expression of a word, which matches no space of any kind.
      spaces: one of what is taken for a space: HTML's line breaks.  Empty is nothing.
      before_words: a character that is taken for a space where a letter, digit or underscore
        follows: in files of news a backslash stands for a line break.  Empty is none.
      splits_glued: whether a capital begins a new word inside one: "madeEurope" is two.
      lower_case: whether words are in lower case.

    Raises:
      ValueError: an expression is none, has a capturing group, matches nothing at all, or one of
        words a space; or `before_words` is more than one character.
    """

    # An apostrophe inside a word belongs to it: "don't" is one word, "'tis" two.
    words: str = r"\w+(?:'\w+)*|[^\w\s]"
    spaces: str = r"<br\s*/?>"
    before_words: str = "\\"
    splits_glued: bool = False
    lower_case: bool = True

    def __post_init__(self) -> None:
        if len(self.before_words) > 1:
            raise ValueError(f"before_words is {self.before_words!r}; one character was expected.")
        _check("words", self.words)
        if self.spaces:
            _check("spaces", self.spaces)
        if any(re.search(r"\s", word) for word in re.findall(self.words, _PROBE)):
            raise ValueError(
                f"words={self.words!r} takes a space into a word. Leave spaces out: [^\\s...]."
            )

    def __call__(self, text: str) -> str:
        """Returns the words of a text, joined by spaces."""
        if self.spaces:
            text = re.sub(self.spaces, " ", text)
        if self.before_words:
            text = re.sub(rf"{re.escape(self.before_words)}(?=\w)", " ", text)
        if self.splits_glued:
            text = _GLUED.sub(" ", text)
        return " ".join(re.findall(self.words, text.lower() if self.lower_case else text))


def _check(name: str, expression: str) -> None:
    """Checks that an expression can be searched for, and that a match has characters."""
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise ValueError(f"{name}={expression!r} is no regular expression: {error}.") from None
    if compiled.groups:
        raise ValueError(
            f"{name}={expression!r} has a capturing group, and what is in it alone would be found. "
            "Write (?:...)."
        )
    if compiled.match(""):
        raise ValueError(
            f"{name}={expression!r} matches where nothing stands. Let it match one character or "
            "more: + in place of *."
        )
