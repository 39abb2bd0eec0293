"""What two trees over the same words have in common: labelled brackets, whole subtrees, frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_torch.errors import DataError
from t2t_torch.text.tree import REDUCE, SHIFT, Tree, parse_tree


class Bracket(NamedTuple):
    """A constituent.

    Attributes:
      label: its name.
      first: its first word, from 0.
      end: the word after its last one.
      below: the transitions of all that is in it.
      depth: how many constituents it is in.
    """

    label: str
    first: int
    end: int
    below: tuple[str, ...]
    depth: int


class TreeCounts(NamedTuple):
    """Counts of trees that were found against those that are right; they add up.

    Attributes:
      right: brackets of both: label, first and last word are the same.
      found: brackets that were found.
      there: brackets that are right.
      right_trees: brackets of both whose constituents are the same too, down to the words.
      exact: trees that are the same.
      frames: trees whose outermost label is the same, and the brackets right in it.
      malformed: outputs that are no tree over the words.
      trees: all.
    """

    right: int
    found: int
    there: int
    right_trees: int
    exact: int
    frames: int
    malformed: int
    trees: int

    def plus(self, other: TreeCounts) -> TreeCounts:
        """Returns the sums."""
        return TreeCounts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def precision(self) -> float:
        """The share of the brackets found that are right; 0 of none."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of the right brackets that are found; 0 of none."""
        return self.right / self.there if self.there else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _f1(self.right, self.found, self.there)

    @property
    def tree_f1(self) -> float:
        """F1 of brackets that count as right only with all that is in them.  Gupta et al. 2018."""
        return _f1(self.right_trees, self.found, self.there)


NO_TREES = TreeCounts(0, 0, 0, 0, 0, 0, 0, 0)
"""The sum over nothing."""


def brackets_of(transitions: Iterable[str], *, tags: bool = False) -> list[Bracket]:
    """Returns the constituents of a tree, each where it ends.

    Args:
      transitions: of one tree.
      tags: whether a constituent that consists of one word and nothing else is left out, as evalb
        leaves out parts of speech.
    """
    found: list[Bracket] = []
    opened: list[tuple[int, int]] = []  # where: among the transitions, among the words
    taken: list[str] = []
    words = 0
    for transition in transitions:
        taken.append(transition)
        if transition == SHIFT:
            words += 1
        elif transition == REDUCE:
            place, first = opened.pop()
            inside = tuple(taken[place:])
            if not tags or inside[1:] != (SHIFT, REDUCE):
                found.append(Bracket(inside[0][1:], first, words, inside[1:-1], len(opened)))
        else:
            opened.append((len(taken) - 1, words))
    return found


def compare(ours: Sequence[str], theirs: Sequence[str], *, tags: bool = False) -> TreeCounts:
    """Returns the counts of one tree.  Equal brackets count as often as both trees have them.

    The outermost bracket counts like any other, and so do brackets over punctuation.

    Args:
      ours: transitions of the tree found; empty where there is none.
      theirs: transitions of the right tree.
      tags: see `brackets_of`.
    """
    found, there = (brackets_of(tree, tags=tags) for tree in (ours, theirs))
    return TreeCounts(
        right=(_spans(found) & _spans(there)).total(),
        found=len(found),
        there=len(there),
        right_trees=(_subtrees(found) & _subtrees(there)).total(),
        exact=int(list(ours) == list(theirs)),
        frames=int(bool(found) and _frame(found) == _frame(there)),
        malformed=int(not ours),
        trees=1,
    )


def compare_texts(output: str, reference: str) -> TreeCounts:
    """Returns the counts of a tree that is written in brackets.

    In round brackets what consists of one word and nothing else is a part of speech, and no
    bracket.  An output that is no tree, or one over other words, has no brackets and is malformed.

    Raises:
      DataError: the reference is no tree.
    """
    right = parse_tree(reference)
    try:
        ours: Tree | None = parse_tree(output)
    except DataError:
        ours = None
    if ours is not None and ours.words != right.words:
        ours = None
    steps = [] if ours is None else ours.transitions()
    return compare(steps, right.transitions(), tags=reference.lstrip().startswith("("))


def _spans(brackets: Iterable[Bracket]) -> Counter[tuple[object, ...]]:
    return Counter(bracket[:3] for bracket in brackets)


def _subtrees(brackets: Iterable[Bracket]) -> Counter[tuple[object, ...]]:
    return Counter(bracket[:4] for bracket in brackets)


def _frame(brackets: Iterable[Bracket]) -> list[tuple[object, ...]]:
    return [bracket[:3] for bracket in brackets if bracket.depth < 2]


def _f1(right: int, found: int, there: int) -> float:
    return 2 * right / (found + there) if right else 0.0
