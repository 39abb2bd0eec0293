"""Trees as sequences of ids: the transitions that build them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import NUM_RESERVED, RESERVED_TOKENS, TextEncoder
from t2t_torch.text.lines import read_lines
from t2t_torch.text.tree import OPEN, REDUCE, SHIFT

UNKNOWN_LABEL = "<UNK>"
"""What opens a constituent whose label is not among the labels, as evaluation data may have."""

INTENT, SLOT = "IN:", "SL:"
"""What labels of requests begin with, in TOP."""

_FIXED = (*RESERVED_TOKENS, SHIFT, REDUCE, OPEN + UNKNOWN_LABEL)


class TransitionEncoder(TextEncoder):
    """Transitions joined by spaces, as `Tree.transitions` gives them.

    PAD and EOS have 0 and 1, `SHIFT` 2, `REDUCE` 3, a constituent of an unknown label 4, the others
    from 5 in the order of the labels.

    Args:
      labels: of constituents.

    Raises:
      DataError: a label is there twice, or is `UNKNOWN_LABEL`, or is empty or has a space.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        counts = Counter([UNKNOWN_LABEL, *self.labels])
        twice = [label for label, count in counts.items() if count > 1]
        wrong = [label for label in self.labels if not label or " " in label]
        if twice or wrong:
            fault = f"{twice[0]!r} twice" if twice else f"{wrong[0]!r}, which is no label"
            raise DataError(f"The labels of trees hold {fault}. Remove it.")
        self._transitions = (*_FIXED, *(OPEN + label for label in self.labels))
        self._ids = {
            transition: identity
            for identity, transition in enumerate(self._transitions)
            if identity >= NUM_RESERVED
        }

    @classmethod
    def load(cls, path: Path) -> TransitionEncoder:
        """Reads a file of labels, one a line.

        Raises:
          DataError: it is missing, not UTF-8, or not of labels.
        """
        try:
            return cls(list(read_lines(path)))
        except DataError as error:
            told = str(error)
            raise DataError(told if str(path) in told else f"{path}: {told}") from None

    @property
    def vocab_size(self) -> int:
        """The number of labels plus 5."""
        return len(self._transitions)

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of a constituent of an unknown label."""
        return frozenset({self._ids[OPEN + UNKNOWN_LABEL]})

    def encode(self, text: str) -> list[int]:
        """Returns one id per transition; DataError if a word of the text is none."""
        unknown = self._ids[OPEN + UNKNOWN_LABEL]
        ids = []
        for transition in text.split(" ") if text else []:
            identity = self._ids.get(transition)
            if identity is None:
                if not transition.startswith(OPEN) or transition == OPEN:
                    raise DataError(
                        f"{transition!r} is no transition: {SHIFT}, {REDUCE} or {OPEN}LABEL."
                    )
                identity = unknown
            ids.append(identity)
        return ids

    def _decode(self, ids: list[int]) -> str:
        known = range(NUM_RESERVED, len(self._transitions))
        return " ".join(self._transitions[i] if i in known else f"ID_{i}" for i in ids)


def are_of_requests(labels: Sequence[str]) -> bool:
    """Returns whether labels are intents and slots, as TOP names them, and nothing else."""
    return bool(labels) and all(label.startswith((INTENT, SLOT)) for label in labels)


def mended(transitions: Iterable[str], words: int | None = None) -> list[str]:
    """Returns the transitions of one tree, from any: what a model gives need not build one.

    What is no transition, comes before a constituent or after the tree has ended is left out;
    constituents that are open at the end are closed.  Without a constituent there is none.

    Args:
      transitions: any.
      words: so many words the tree is over: words that are missing end its root, words there are
        too many of are left out; None is as many as there are.
    """
    kept: list[str] = []
    depth = 0
    left = -1 if words is None else words
    for transition in transitions:
        if transition == SHIFT and depth:
            if not left:
                continue
            left -= 1
        if transition.startswith(OPEN) and transition != OPEN:
            depth += 1
        elif transition not in (SHIFT, REDUCE) or not depth:
            continue
        elif transition == REDUCE:
            depth -= 1
        kept.append(transition)
        if not depth:
            break
    if words is None or not kept:
        return kept + [REDUCE] * depth
    return [*(kept + [REDUCE] * depth)[:-1], *[SHIFT] * left, REDUCE]


def builds_tree(transitions: Sequence[str], words: int) -> bool:
    """Returns whether transitions are those of one tree over so many words, as they stand."""
    return bool(transitions) and mended(transitions, words) == list(transitions)
