"""Reader of bracketed trees, on one or several lines each."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.readers.head import SURE, Head, Match
from t2t_torch.readers.text_file import BadRecords, Place, Record, TextFile
from t2t_torch.registry import register_reader
from t2t_torch.text.tree import TreeSyntaxError, parse_tree

MAX_LINES = 10_000
"""Maximum number of lines of a tree; a longer one is treated as an error."""

_BLANKS = " \t\r\n"
_BRACKETS = {
    "(": re.compile(r"[()]"),
    "[": re.compile(r"(?<![^ \t\r\n])(?:\[(?=[^ \t\r\n])|\](?![^ \t\r\n]))"),
}


_OPENS = re.compile(r"\s*(\(\s*\(?\S|\[(IN|SL):)")


def _match_trees(head: Head) -> Match | None:
    lines = [line for line in head.full_lines if line[0] not in _BLANKS] or head.full_lines
    opening = sum(bool(_OPENS.match(line)) for line in lines)
    if not opening or opening < SURE * len(lines) or (opening < len(lines) and "\t" in lines[0]):
        return None
    balanced = head.text.count("(") + head.text.count("[")
    closed = head.text.count(")") + head.text.count("]")
    return Match(0.95 if closed * 2 > balanced else 0.3)


@register_reader("trees", matches=_match_trees, endings=(".mrg", ".ptb", ".trees", ".tree"))
def read_trees(
    path: Path, bad: BadRecords, *, traces: bool = True, functions: bool = True
) -> Iterator[Record]:
    """Yields {"tree": text on one line, "words": list} for each tree, round or square.

    `text.tree.parse_tree` defines the syntax; "tree" has the brackets of the file.  A tree may span
    several lines, and a line may contain several trees.  Continuation lines are indented more than
    the first line: an opening bracket without such indentation starts another tree, so a missing
    bracket affects one tree and not the rest of the file.  Trees without words, and trees open
    after `MAX_LINES`, are also bad.  After a surplus bracket, reading continues at the next line
    that is not indented more than the last tree.

    Args:
      path: the file, gzip-compressed or not.
      bad: policy for bad trees.
      traces: keep unspoken elements, labelled -NONE- in the Penn Treebank; otherwise they and
        constituents that hold nothing else are removed.
      functions: keep function tags and indices: NP-SBJ-1, otherwise NP.

    Raises:
      DataError: the file cannot be read.
    """
    return _TreeFile(path, bad, traces=traces, functions=functions).records()


class _TreeFile:
    """The trees of a file, read in one pass."""

    def __init__(self, path: Path, bad: BadRecords, *, traces: bool, functions: bool) -> None:
        self._path = path
        self._bad = bad
        self._traces = traces
        self._functions = functions
        self._indent = sys.maxsize  # of the first line of the last tree
        self._skipping = False  # whether the next lines belong to a tree already reported
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
            if (start := _after_blanks(line, 0)) < len(line) and self._begins(line, start):
                yield from self._read(number, line, start)
        self._give_up("the bracket that opens here is not closed before the file ends")

    def _begins(self, line: str, start: int) -> bool:
        """Returns whether to read a line; closes the open tree if the line begins another one."""
        opens = line[start] in _BRACKETS and start <= self._indent
        if self._opened is not None and opens:
            bracket = self._brackets.match(line, start)
            if bracket is not None and bracket[0] in _BRACKETS:
                self._give_up(
                    "the bracket that opens here is not closed before another tree begins, in a "
                    "line that is not indented more"
                )
        self._skipping = self._skipping and not opens
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
        """Returns the end position of the open tree in a line, or 0."""
        for bracket in self._brackets.finditer(line, position):
            self._depth += 1 if bracket[0] in _BRACKETS else -1
            if self._depth <= 0:
                return bracket.end()
        # A lone [ opens nothing, so nothing is open.
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
        """Skips the open tree, if any; reports it unless already reported."""
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
