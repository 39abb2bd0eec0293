r"""Texts as tokens, and tokens as what a subtoken vocabulary is made of.  tensor2tensor's way.

A text is cut where letters and numbers begin or end.  A single space between two tokens is not
kept: it comes back between two tokens of letters.  In the vocabulary a token ends with "_", and
characters that the vocabulary has not are written as their code points, "\8217;".
Source: tensor2tensor's `data_generators/tokenizer.py` and `text_encoder.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

END = "_"
"""What an escaped token ends with, and nothing else holds."""

ESCAPES = frozenset("\\_u;0123456789")
"""The characters that escapes are written with; every vocabulary has them."""

UNKNOWN = "\u3013"
"""What an escape of no character becomes: the sign for a character that cannot be set."""

# The characters of Unicode's classes L and N: what `\w` matches, but "_".  They are those of this
# Python, as tensor2tensor's were of its: Unicode 11.0 in Python 3.7.  Since then 6473 letters and
# numbers have come to Unicode 14.0, most of them rare Chinese ones and old scripts.
_TOKENS = re.compile(r"[^\W_]+|[\W_]+")
_ESCAPE = re.compile(r"\\(?:(u)|(\\)|([0-9]+);)")
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def split(text: str) -> list[str]:
    """Returns the tokens of a text; none is empty."""
    tokens: list[str] = _TOKENS.findall(text)
    if " " not in tokens[1:-1]:
        return tokens
    return [*tokens[:1], *(token for token in tokens[1:-1] if token != " "), *tokens[-1:]]


def join(tokens: Iterable[str]) -> str:
    """Returns the text of tokens; `join(split(text)) == text` for every text."""
    parts: list[str] = []
    after_letters = False
    for token in tokens:
        letters = token[0].isalnum()
        if letters and after_letters:
            parts.append(" ")
        parts.append(token)
        after_letters = letters
    return "".join(parts)


def escape(token: str, alphabet: Collection[str]) -> str:
    r"""Returns a token as a vocabulary with this alphabet writes it; "\n" is in no alphabet."""
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    if not all(map(alphabet.__contains__, token)) or "\n" in token:
        token = "".join(c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in token)
    return token + END


def unescape(escaped: str) -> str:
    """Returns the token that was escaped, or the best for what no token escapes to."""
    return _ESCAPE.sub(_unescaped, escaped.removesuffix(END))


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return "_"
    if match[2]:
        return "\\"
    digits = match[3].lstrip("0")  # no number of many digits is read: it would take its time
    code_point = int(digits or "0") if len(digits) < 8 else _LAST_CODE_POINT + 1
    known = code_point <= _LAST_CODE_POINT and code_point not in _SURROGATES
    return chr(code_point) if known else UNKNOWN
