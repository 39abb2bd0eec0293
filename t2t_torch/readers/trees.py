"""Bracketed trees, on one line each or on several."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.readers.text_file import BadRecords, Place, Record, TextFile
from t2t_torch.text.tree import TreeSyntaxError, parse_tree

MAX_LINES = 10_000
"""A tree that is still open after so many lines is taken for a mistake."""

_BLANKS = " \t\r\n"
_BRACKETS = {
    "(": re.compile(r"[()]"),
    "[": re.compile(r"(?<![^ \t\r\n])(?:\[(?=[^ \t\r\n])|\](?![^ \t\r\n]))"),
}


def read_trees(
    path: Path, bad: BadRecords, *, traces: bool = True, functions: bool = True
) -> Iterator[Record]:
    """Yields {"tree": text on one line, "words": list} of each tree, round or square.

    `text.tree.parse_tree` says what a tree is; "tree" is in the form of the file, round or square.
    A tree may run over several lines, and a line may hold several trees.  The later lines of a tree
    are indented more than its first: a line with an opening bracket that is not begins another
    tree, so a bracket that is missing spoils one tree and not the rest of the file.  Bad are also a
    tree without words, and one that is open after `MAX_LINES`.  After one bracket too many the next
    line that is not indented more than the last tree is read.

    Args:
      path: the file, packed with gzip or not.
      bad: what becomes of bad trees.
      traces: whether what is not spoken is kept, which the Penn Treebank labels -NONE-; without it
        goes what holds nothing else.
      functions: whether labels keep functions and numbers: NP-SBJ-1, or else NP.

    Raises:
      DataError: the file cannot be read.
    """
    return _Trees(path, bad, traces=traces, functions=functions).records()


class _Trees:
    """The trees of one file, in one pass."""

    def __init__(self, path: Path, bad: BadRecords, *, traces: bool, functions: bool) -> None:
        self._path = path
        self._bad = bad
        self._traces = traces
        self._functions = functions
        self._indent = sys.maxsize  # of the line that began the last tree
        self._skipping = False  # whether what follows belongs to a tree that was reported
        self._opened: Place | None = None
        self._brackets = _BRACKETS["("]
        self._depth = 0
        self._parts: list[str] = []

    def records(self) -> Iterator[Record]:
        """Yields the trees."""
        for number, line in TextFile(self._path, self._bad):
            if line is None:
                self._give_up("")
                continue
            start = _after_blanks(line, 0)
            if start < len(line) and self._begins(line, start):
                yield from self._read(number, line, start)
        self._give_up("the bracket that opens here is not closed before the file ends")

    def _begins(self, line: str, start: int) -> bool:
        """Whether a line is to be read; closes what is open if the line begins another tree."""
        opens = line[start] in _BRACKETS and start <= self._indent
        if self._opened is not None and opens:
            bracket = self._brackets.match(line, start)
            if bracket is not None and bracket[0] in _BRACKETS:
                self._give_up(
                    "the bracket that opens here is not closed before another tree begins, in a "
                    "line that is not indented more"
                )
        if self._skipping and opens:
            self._skipping = False
        return not self._skipping

    def _read(self, number: int, line: str, start: int) -> Iterator[Record]:
        position = start if self._opened is None else 0
        while position < len(line):
            if self._opened is None:
                if line[position] not in _BRACKETS:
                    place = Place(self._path, number, position + 1)
                    self._bad.report(place, "a tree begins with ( or [")
                    self._skipping = True
                    return
                self._indent = start if position == start else self._indent
                self._opened = Place(self._path, number, position + 1)
                self._brackets = _BRACKETS[line[position]]
            end = self._end(line, position)
            self._parts.append(line[position : end or len(line)])
            if not end:
                if len(self._parts) >= MAX_LINES:
                    self._give_up(f"the bracket that opens here is open after {MAX_LINES:,} lines")
                return
            yield from self._record()
            position = _after_blanks(line, end)

    def _end(self, line: str, position: int) -> int:
        """Returns where the open tree ends in a line, or 0."""
        for bracket in self._brackets.finditer(line, position):
            self._depth += 1 if bracket[0] in _BRACKETS else -1
            if self._depth <= 0:
                return bracket.end()
        # A lone [ opens nothing, and so nothing is open.
        return 0 if self._depth else len(line)

    def _record(self) -> Iterator[Record]:
        place, text = self._opened, "".join(self._parts)
        assert place is not None
        self._close()
        try:
            tree = parse_tree(text)
            tree = tree if self._traces else tree.without_traces()
            tree = tree if self._functions else tree.without_functions()
            if words := tree.words:
                written = tree.to_round() if text.startswith("(") else str(tree)
                yield Record(place._replace(column=None), {"tree": written, "words": words})
            else:
                self._bad.report(place, "a tree without words")
        except TreeSyntaxError as error:
            before = text[: error.position].split("\n")
            column = len(before[-1]) + (place.column or 1 if len(before) == 1 else 1)
            self._bad.report(Place(self._path, place.line + len(before) - 1, column), error.why)
        except DataError:
            self._bad.report(place, "a tree without words but traces")

    def _close(self) -> None:
        self._opened = None
        self._parts = []
        self._depth = 0

    def _give_up(self, why: str) -> None:
        """Leaves the open tree out, if there is one; reports it unless that has been done."""
        if self._opened is not None:
            place = self._opened
            self._close()
            self._skipping = True
            if why:
                self._bad.report(place, why)


def _after_blanks(line: str, position: int) -> int:
    while position < len(line) and line[position] in _BLANKS:
        position += 1
    return position
