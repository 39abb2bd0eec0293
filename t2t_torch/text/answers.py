"""How well an answer agrees with those that people gave: SQuAD's exact match and F1.

Rajpurkar et al. 2016, arXiv:1606.05250, section 5, and 2018, arXiv:1806.03822, for questions that
have no answer; spellings are made alike as their `evaluate-v1.1.py` and `evaluate-v2.0.py` do.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain_answer(text: str) -> str:
    """Returns an answer in lower case, without ASCII punctuation, articles and more spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """Returns 1 if an answer is one of those given, all made plain, else 0.

    Args:
      answer: "" is none.
      references: those that count as right; an empty list says that there is no answer.
    """
    return max(float(plain_answer(answer) == plain_answer(one)) for one in references or [""])


def f1(answer: str, references: Sequence[str]) -> float:
    """Returns the greatest F1 of an answer's words and those of one given, as multisets.

    Where one of the two is nothing it is 1 if both are.

    Args:
      answer: "" is none.
      references: as in `exact_match`.
    """
    return max(_f1(plain_answer(answer), plain_answer(one)) for one in references or [""])


def _f1(answer: str, reference: str) -> float:
    ours, theirs = Counter(answer.split()), Counter(reference.split())
    if not ours or not theirs:
        return float(ours == theirs)
    return 2.0 * (ours & theirs).total() / (ours.total() + theirs.total())


def answers_of(line: str) -> list[str]:
    """Returns the answers that a line of a reference file gives: a JSON list, or its text."""
    if line.startswith("["):
        try:
            given = json.loads(line)
        except ValueError:
            return [line]
        if isinstance(given, list) and all(isinstance(answer, str) for answer in given):
            return given
    return [line]
