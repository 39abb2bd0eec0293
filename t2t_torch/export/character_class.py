"""Classes of characters as Python knows them, for the regular expressions of a graph.

What is a letter or a space to RE2, onnxruntime's regular expressions, is so in ASCII alone, or in
another version of Unicode; so the characters themselves are written out.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Callable

from t2t_torch.errors import ExportError

SPACE, LINE_SPACE = r"\s", r"[ \t\r\n]"
"""What `str.split` cuts at, and what `features.text.words_of` does."""

_TESTS: dict[str, Callable[[str], bool]] = {
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
    "d": str.isdecimal,
}
_SAME = "nrtfv"  # escapes that mean the same to both

# Groups but (?:...), repetitions that take little or give nothing back, POSIX classes.
_REFUSED = re.compile(r"\((?!\?:)|[*+?}][+?]|\[:")
_PARTS = re.compile(r"\\(?P<escape>.)|(?P<opens>\[\^?\]?)|(?P<closes>\])|[\^$]", re.DOTALL)


@functools.cache
def characters() -> tuple[str, ...]:
    """Returns all of Unicode: every code point but the surrogates."""
    points = itertools.chain(range(0xD800), range(0xE000, sys.maxunicode + 1))
    return tuple(map(chr, points))


@functools.cache
def ranges(test: Callable[[str], bool], *, others: bool = False) -> str:
    """Returns the characters that pass a test, as RE2 writes them between brackets.

    Args:
      test: of a character.
      others: whether it is those that do not pass it.
    """
    parts = []
    points = (ord(character) for character in characters() if test(character) is not others)
    for _, run in itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0]):
        first, *rest = (point for _, point in run)
        parts.append(f"\\x{{{first:X}}}" + (f"-\\x{{{rest[-1]:X}}}" if rest else ""))
    return "".join(parts)


def re2(expression: str) -> str:
    r"""Returns a regular expression of Python's as RE2 writes it, \w, \s and \d in full.

    Raises:
      ExportError: it holds something that RE2 does not know, or knows as something else.
    """
    if _REFUSED.search(re.sub(r"\\.", "", expression, flags=re.DOTALL)):
        _refuse(expression)
    parts, inside, end = [], False, 0
    for match in _PARTS.finditer(expression):
        parts.append(expression[end : match.start()])
        end = match.end()
        escape, opens, closes = match["escape"], match["opens"], match["closes"]
        if escape:
            parts.append(_escaped(expression, escape, inside=inside))
        elif inside and not closes:
            parts.append(match[0].replace("[", r"\["))
        elif opens or closes:
            parts.append(match[0].replace("]]", r"]\]"))
            inside = bool(opens)
        else:
            _refuse(expression)
    return "".join(parts) + expression[end:]


def _escaped(expression: str, letter: str, *, inside: bool) -> str:
    """Returns what a backslash and a character are to RE2, in a class or outside one."""
    test = _TESTS.get(letter.lower())
    if test is None:
        if letter.isalnum() and letter not in _SAME:
            _refuse(expression)
        return f"\\{letter}" if letter in _SAME else f"\\x{{{ord(letter):X}}}"
    if inside:
        return ranges(test, others=letter.isupper())
    return f"[{'^' * letter.isupper()}{ranges(test)}]"


def _refuse(expression: str) -> None:
    raise ExportError(
        f"the regular expression {expression!r} cannot stand in a graph: no lookaround, no groups "
        "but (?:...), no anchors, no repetition that takes as little as it can, no POSIX class, of "
        r"the escapes \w, \s, \d, \n, \r, \t, \f, \v and signs. Write it without."
    )
