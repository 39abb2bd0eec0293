"""Trees over the words of another feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_torch.features.text import Text
from t2t_torch.text.transition import mended
from t2t_torch.text.tree import SHIFT, Tree, parse_tree


@dataclass(frozen=True)
class TreeFeature(Text):
    """A bracketed tree, as the ids of the transitions that build it; its words are not in it.

    The encoder is a `TransitionEncoder`.
    """

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of trees, given as `Tree` or as text; DataError if one is no tree."""
        trees = [value if isinstance(value, Tree) else parse_tree(value) for value in values]
        return super().encode_batch([" ".join(tree.transitions()) for tree in trees])

    def decode(self, ids: Iterable[int]) -> str:
        """Returns a tree in TOP's form with 0 for each word, as in "[IN:GET_EVENT 0 ]".

        Ids that build no tree, as a model may give, are mended (`transition.mended`); it is empty
        where nothing opens a constituent.
        """
        transitions = mended(self.encoder.decode(ids).split(" "))
        if not transitions:
            return ""
        return str(Tree.from_transitions(transitions, ["0"] * transitions.count(SHIFT)))
