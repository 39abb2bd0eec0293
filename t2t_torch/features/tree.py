"""Trees over the words of another feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_torch.errors import DataError
from t2t_torch.features.text import Text
from t2t_torch.text.transition import mended
from t2t_torch.text.tree import SHIFT, Tree, parse_tree


@dataclass(frozen=True)
class TreeFeature(Text):
    """A bracketed tree, as the ids of the transitions that build it; its words are not in it.

    The encoder is a `TransitionEncoder`.

    Attributes:
      of: the feature of words.
      tags: the field with a label for each word, where the trees are without those: it stands right
        above the word in the trees that are written.  Empty where there is none.
      is_round: whether trees are written in the Penn Treebank's round brackets, else in TOP's
        square ones.
    """

    of: str = "inputs"
    tags: str = ""
    is_round: bool = False

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of trees, given as `Tree` or as text; DataError if one is no tree."""
        trees = [value if isinstance(value, Tree) else parse_tree(value) for value in values]
        return super().encode_batch([" ".join(tree.transitions()) for tree in trees])

    def decode(self, ids: Iterable[int]) -> str:
        """Returns a tree with 0 for each word, as in "[IN:GET_EVENT 0 ]".

        Ids that build no tree, as a model may give, are mended (`transition.mended`); it is empty
        where nothing opens a constituent.
        """
        transitions = mended(self.transitions(ids))
        if not transitions:
            return ""
        tree = Tree.from_transitions(transitions, ["0"] * transitions.count(SHIFT))
        return tree.to_round() if self.is_round else str(tree)

    def transitions(self, ids: Iterable[int]) -> list[str]:
        """Returns the transitions of ids before the first `EOS`, mended or not."""
        text = self.encoder.decode(ids)
        return text.split(" ") if text else []

    def over(self, ids: Iterable[int], words: Sequence[str], tags: Sequence[str] = ()) -> str:
        """Returns the tree that ids build over words, as a user reads it.

        Ids that build no tree over these words are mended (`transition.mended`); it is empty where
        nothing opens a constituent.

        Args:
          ids: of transitions.
          words: all words of the sentence.
          tags: of each word, where trees have them (`tags`); a word without one stands alone.

        Raises:
          DataError: a word cannot stand in a tree.
        """
        transitions = mended(self.transitions(ids), len(words))
        if not transitions:
            return ""
        tree = Tree.from_transitions(transitions, words)
        if self.tags:
            if len(tags) != len(words):
                raise DataError(f"{len(words)} words and {len(tags)} {self.tags}: one is for each.")
            tree = tree.with_tags(tags)
        return tree.to_round() if self.is_round else str(tree)
