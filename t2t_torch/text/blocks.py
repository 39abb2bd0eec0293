"""Lines joined to long texts, for language models that read across line ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

BLOCK_CHARACTERS = 1 << 16
"""How long a text is at least, the last one aside; what is chopped from it is much shorter."""


def blocks(lines: Iterable[str], *, characters: int = BLOCK_CHARACTERS) -> Iterator[str]:
    r"""Joins consecutive lines with "\n" to texts of at least so many characters."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size >= characters:
            yield "\n".join(held)
            held, size = [], 0
    if held:
        yield "\n".join(held)
