"""Bracketed trees over words: parsing, transition sequences and comparison."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from t2t_torch.errors import DataError
from t2t_torch.files import read_entries
from t2t_torch.text.encoder import NUM_RESERVED, RESERVED_TOKENS, TextEncoder, vocabulary_errors

SHIFT, REDUCE = "SHIFT", "REDUCE"
OPEN = "("
"""Prefix of a transition that opens a constituent; the label follows."""

TRACE = "-NONE-"
"""The Penn Treebank's label of unspoken elements (traces)."""

_BLANKS = " \t\r\n"
_ROUND_TOKEN = re.compile(r"\([ \t\r\n]*([^() \t\r\n]*)|\)|[^() \t\r\n]+")
_SQUARE_TOKEN = re.compile(r"[^ \t\r\n]+")
_NAME = re.compile(r"[^()\[\] \t\r\n]+")
_WORD = re.compile(r"[^ \t\r\n]+")
_FUNCTION = re.compile(r"^([^-=]+)[-=].*")  # labels such as -LRB- and -NONE- begin with a hyphen

_Step = tuple[str, str]  # ("(", label), ("", word) or (")", "")


class TreeSyntaxError(DataError):
    """The text is not a valid tree.

    Attributes:
      why: the reason.
      position: character offset in the text, from 0.
    """

    def __init__(self, why: str, position: int, text: str) -> None:
        shortened = text if len(text) <= 80 else f"{text[:77]}..."
        super().__init__(f"column {position + 1}: {why}, in {shortened!r}")
        self.why = why
        self.position = position


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """A constituent with its children, of any depth.

    Two trees are equal if they have the same labels, words and structure.

    Attributes:
      label: the constituent's label, without brackets or whitespace.
      children: constituents and words; words contain no whitespace.

    Raises:
      DataError: a label or a word is empty or contains invalid characters.
    """

    label: str
    children: tuple[Tree | str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.label):
            raise DataError(f"{self.label!r} is no label: empty, or with a bracket or a blank.")
        for child in self.children:
            if isinstance(child, str) and not _WORD.fullmatch(child):
                raise DataError(f"{child!r} is no word: empty, or with a blank.")

    @property
    def words(self) -> list[str]:
        """The words, from left to right."""
        return [word for kind, word in self._steps() if not kind]

    @property
    def labels(self) -> list[str]:
        """The labels of all constituents, in preorder."""
        return [label for kind, label in self._steps() if kind == "("]

    def transitions(self) -> list[str]:
        """Returns the transitions that build the tree from its words.  Dyer et al. 2016.

        "(NP" opens a constituent, `SHIFT` consumes the next word, `REDUCE` closes the most recently
        opened constituent.
        """
        names = {"(": OPEN, ")": REDUCE, "": SHIFT}
        return [names[kind] + (label if kind == "(" else "") for kind, label in self._steps()]

    @classmethod
    def from_transitions(cls, transitions: Iterable[str], words: Sequence[str]) -> Tree:
        """Returns the tree that transitions build from words.

        Raises:
          DataError: the transitions do not form a tree or do not consume exactly these words.
        """
        steps: list[_Step] = []
        taken = 0
        for transition in transitions:
            if transition == SHIFT:
                steps.append(("", words[taken] if taken < len(words) else "?"))
                taken += 1
            elif transition == REDUCE:
                steps.append((")", ""))
            elif transition.startswith(OPEN):
                steps.append(("(", transition.removeprefix(OPEN)))
            else:
                raise DataError(f"{transition!r} is no transition: {SHIFT}, {REDUCE} or (LABEL.")
        if taken != len(words):
            raise DataError(f"The transitions take {taken} words, and there are {len(words)}.")
        return _built(steps)

    def without_traces(self) -> Tree:
        """Returns the tree without `TRACE` elements and constituents that hold nothing else.

        Raises:
          DataError: nothing is left.
        """
        steps: list[_Step] = []
        empty: list[int] = []  # starts of the open constituents that have no words yet
        for kind, name in self._steps():
            if kind == "(":
                empty.append(len(steps))
            elif not kind:
                if steps[-1] == ("(", TRACE):
                    continue
                for depth in range(len(empty) - 1, -1, -1):
                    if empty[depth] < 0:
                        break
                    empty[depth] = -1
            elif (start := empty.pop()) >= 0:
                del steps[start:]
                continue
            steps.append((kind, name))
        if not steps:
            raise DataError(f"{_short(self)} has no words.")
        return _built(steps)

    def without_functions(self) -> Tree:
        """Returns the tree with bare categories: NP-SBJ-1 and NP=2 become NP."""
        return _built((kind, _FUNCTION.sub(r"\1", name) if kind == "(" else name)
                      for kind, name in self._steps())  # fmt: skip

    def without_tags(self) -> tuple[Tree, list[str]]:
        """Returns the tree without the constituents directly above its words, and their labels.

        (S (NP (DT the) (NN board)) (VP (VBD met))) becomes (S (NP the board) (VP met)), with DT, NN
        and VBD.

        Raises:
          DataError: a word has no constituent of its own, or that constituent is the whole tree.
        """
        result: list[_Step] = []
        tags: list[str] = []
        steps = self._steps()
        for kind, name in steps:
            if not kind:
                if len(result) < 2 or result[-1][0] != "(" or next(steps)[0] != ")":
                    raise DataError(f"the word {name!r} of {_short(self)} has no tag of its own.")
                tags.append(result.pop()[1])
            result.append((kind, name))
        return _built(result), tags

    def with_tags(self, tags: Sequence[str]) -> Tree:
        """Returns the tree with a tag constituent above each word; the inverse of `without_tags`.

        Raises:
          DataError: the number of tags differs from the number of words.
        """
        words = self.words
        if len(words) != len(tags):
            raise DataError(f"{len(tags)} tags, where {len(words)} words have one each.")
        of_words = iter(tags)
        steps: list[_Step] = []
        for kind, name in self._steps():
            steps += [(kind, name)] if kind else [("(", next(of_words)), ("", name), (")", "")]
        return _built(steps)

    def to_round(self) -> str:
        """Returns the tree in Penn Treebank format on one line: (NP (DT the) (NN board)).

        Round brackets in words are written -LRB- and -RRB-.
        """
        pieces: list[str] = []
        for kind, name in self._steps():
            if kind == ")":
                pieces.append(")")
            else:
                name = name if kind else name.replace("(", "-LRB-").replace(")", "-RRB-")
                pieces.append(f"{' ' if pieces else ''}{kind}{name}")
        return "".join(pieces)

    def __str__(self) -> str:
        """Returns the tree in TOP format: [IN:GET_EVENT concerts [SL:DATE_TIME tonight ] ].

        Words that would be read as brackets are written with -LSB- or -RSB-.
        """
        pieces = []
        for kind, name in self._steps():
            if kind == "(":
                pieces.append(f"[{name}")
            elif kind == ")":
                pieces.append("]")
            else:
                is_open = name.startswith("[") and len(name) > 1
                pieces.append(f"-LSB-{name[1:]}" if is_open else "-RSB-" if name == "]" else name)
        return " ".join(pieces)

    def __repr__(self) -> str:
        return f"parse_tree({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and list(self._steps()) == list(other._steps())

    def __hash__(self) -> int:
        return hash(tuple(self._steps()))

    def _steps(self) -> Iterator[_Step]:
        yield "(", self.label
        pending = [iter(self.children)]
        while pending:
            for child in pending[-1]:
                if isinstance(child, str):
                    yield "", child
                else:
                    yield "(", child.label
                    pending.append(iter(child.children))
                    break
            else:
                pending.pop()
                yield ")", ""


def parse_tree(text: str) -> Tree:
    """Parses a tree in one of two formats, detected from the first character.

    Round, as in the Penn Treebank: "(S (NP (NN time)) (VP (VBZ flies)))", over any number of lines.
    Whitespace around brackets is optional, and an outer bracket without a label is removed.  In
    words -LRB- and -RRB- are round brackets, -LSB- and -RSB- square ones.

    Square, as in TOP: "[IN:GET_EVENT concerts [SL:DATE_TIME tonight ] ]".  A whitespace-separated
    token that begins with "[" and continues opens a constituent, "]" closes one, and all others are
    words.  At the start of a word -LSB- is "[", and the word -RSB- is "]".

    Raises:
      TreeSyntaxError: the text does not contain exactly one tree.
    """
    start = len(text) - len(text.lstrip(_BLANKS))
    first = text[start : start + 1]
    if first not in ("(", "["):
        raise TreeSyntaxError("a tree begins with ( or [", start, text)
    tokens = _round_steps(text) if first == "(" else _square_steps(text)
    steps: list[_Step] = []
    open_at: list[int] = []
    for position, kind, name in tokens:
        if not steps and kind != "(":
            raise TreeSyntaxError("a lone [ opens nothing", position, text)
        if steps and not open_at:
            raise TreeSyntaxError("the tree has ended, and something follows", position, text)
        if kind == "(":
            if not _NAME.fullmatch(name) and (name or steps):
                why = f"{name!r} is no label" if name else "a bracket without a label"
                raise TreeSyntaxError(why, position, text)
            open_at.append(position)
        elif kind:
            open_at.pop()
        steps.append((kind, name))
    if open_at:
        why = "the bracket that opens here is never closed"
        if first == "[":
            why += " (] is one only with blanks on both sides)"
        raise TreeSyntaxError(why, open_at[-1], text)
    return _built(_without_outer(steps, start, text))


def _without_outer(steps: list[_Step], start: int, text: str) -> list[_Step]:
    """Removes an outer bracket without a label, which must contain one tree."""
    if steps[0] != ("(", ""):
        return steps
    depth = 0
    for i, (kind, _) in enumerate(steps[1:-1], 1):
        depth += {"(": 1, ")": -1, "": 0}[kind]
        if depth == 0 and (not kind or i < len(steps) - 2):
            break
    else:
        if len(steps) > 2:
            return steps[1:-1]
    raise TreeSyntaxError("a bracket without a label that holds no single tree", start, text)


def _round_steps(text: str) -> Iterator[tuple[int, str, str]]:
    for token in _ROUND_TOKEN.finditer(text):
        piece, position = token[0], token.start()
        if piece[0] == "(":
            yield position, "(", token[1]
        elif piece == ")":
            yield position, ")", ""
        else:
            for name, bracket in _ESCAPED:
                piece = piece.replace(name, bracket)
            yield position, "", piece


_ESCAPED = (("-LRB-", "("), ("-RRB-", ")"), ("-LSB-", "["), ("-RSB-", "]"))


def _square_steps(text: str) -> Iterator[tuple[int, str, str]]:
    for token in _SQUARE_TOKEN.finditer(text):
        piece, position = token[0], token.start()
        if piece == "]":
            yield position, ")", ""
        elif piece.startswith("[") and len(piece) > 1:
            yield position, "(", piece[1:]
        elif piece.startswith("-LSB-"):
            yield position, "", "[" + piece.removeprefix("-LSB-")
        else:
            yield position, "", "]" if piece == "-RSB-" else piece


def _built(steps: Iterable[_Step]) -> Tree:
    pending: list[tuple[str, list[Tree | str]]] = []
    root: Tree | None = None
    for kind, name in steps:
        if root is not None or (kind != "(" and not pending):
            raise DataError("The steps build no tree: more than one, or a word or end outside it.")
        if kind == "(":
            pending.append((name, []))
        elif not kind:
            pending[-1][1].append(name)
        else:
            label, children = pending.pop()
            tree = Tree(label, tuple(children))
            if pending:
                pending[-1][1].append(tree)
            else:
                root = tree
    if root is None:
        raise DataError("The steps build no tree: none, or one that does not end.")
    return root


def _short(tree: Tree) -> str:
    text = str(tree)
    return text if len(text) <= 80 else f"{text[:77]}..."


UNKNOWN_LABEL = "<UNK>"
"""Opens a constituent with an unknown label, as in evaluation data."""

INTENT, SLOT = "IN:", "SL:"
"""The label prefixes of intents and slots in TOP."""

_FIXED = (*RESERVED_TOKENS, SHIFT, REDUCE, OPEN + UNKNOWN_LABEL)


class TransitionEncoder(TextEncoder):
    """Encodes space-separated transitions, as returned by `Tree.transitions`.

    Ids: PAD 0, EOS 1, `SHIFT` 2, `REDUCE` 3, a constituent with an unknown label 4, and the labels
    from 5 in their order.

    Args:
      labels: the labels of constituents.

    Raises:
      DataError: a label is duplicated, equal to `UNKNOWN_LABEL`, empty or contains a space.
    """

    is_lossless = False

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
        """Reads a label file with one label per line.

        Raises:
          DataError: the file is missing, not UTF-8, or has invalid labels.
        """
        with vocabulary_errors(path):
            return cls(read_entries(path))

    @property
    def vocab_size(self) -> int:
        """The number of labels plus 5."""
        return len(self._transitions)

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of a constituent of an unknown label."""
        return frozenset({self._ids[OPEN + UNKNOWN_LABEL]})

    def encode(self, text: str) -> list[int]:
        """Returns one id per transition; DataError for a word that is not a transition."""
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
    """Returns whether all labels are intents and slots as named in TOP."""
    return bool(labels) and all(label.startswith((INTENT, SLOT)) for label in labels)


def repair(transitions: Iterable[str], words: int | None = None) -> list[str]:
    """Returns a valid transition sequence of one tree, repaired from any model output.

    Drops invalid transitions and those before the first constituent or after the end of the tree;
    closes constituents that are still open.  Returns an empty list if no constituent is opened.

    Args:
      transitions: any strings.
      words: the number of words of the tree: missing words are added at the end of the root,
        surplus words are dropped; None keeps the words as they are.
    """
    tokens: list[str] = []
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
        tokens.append(transition)
        if not depth:
            break
    if words is None or not tokens:
        return tokens + [REDUCE] * depth
    return [*(tokens + [REDUCE] * depth)[:-1], *[SHIFT] * left, REDUCE]


def builds_tree(transitions: Sequence[str], words: int) -> bool:
    """Returns whether transitions form, unmodified, one tree over this number of words."""
    return bool(transitions) and repair(transitions, words) == list(transitions)


class Bracket(NamedTuple):
    """A constituent.

    Attributes:
      label: the constituent's label.
      first: index of its first word, from 0.
      end: index after its last word.
      below: the transitions of its content.
      depth: the number of enclosing constituents.
    """

    label: str
    first: int
    end: int
    below: tuple[str, ...]
    depth: int


class TreeCounts(NamedTuple):
    """Additive counts of predicted trees compared with reference trees.

    Attributes:
      right: brackets with the same label, first and last word in both trees.
      predicted: predicted brackets.
      expected: reference brackets.
      right_trees: brackets of both trees whose content is the same too, down to the words.
      exact: trees that match completely.
      frames: trees whose outermost label matches, and the brackets directly inside it.
      malformed: outputs that are not a tree over the words.
      trees: all trees.
    """

    right: int
    predicted: int
    expected: int
    right_trees: int
    exact: int
    frames: int
    malformed: int
    trees: int

    def plus(self, other: TreeCounts) -> TreeCounts:
        """Returns the element-wise sum."""
        return TreeCounts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def precision(self) -> float:
        """Fraction of the predicted brackets that are correct; 0 if there are none."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Fraction of the reference brackets that are predicted; 0 if there are none."""
        return self.right / self.expected if self.expected else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _f1(self.right, self.predicted, self.expected)

    @property
    def tree_f1(self) -> float:
        """F1 of brackets that only count as correct with identical content.  Gupta et al. 2018."""
        return _f1(self.right_trees, self.predicted, self.expected)


NO_TREES = TreeCounts(0, 0, 0, 0, 0, 0, 0, 0)
"""The counts of no trees."""


def brackets_of(transitions: Iterable[str], *, tags: bool = False) -> list[Bracket]:
    """Returns the constituents of a tree in the order in which they end.

    Args:
      transitions: of one tree.
      tags: leave out constituents that consist of a single word, as evalb leaves out parts of
        speech.
    """
    brackets: list[Bracket] = []
    opened: list[tuple[int, int]] = []  # start positions: (in the transitions, in the words)
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
                brackets.append(Bracket(inside[0][1:], first, words, inside[1:-1], len(opened)))
        else:
            opened.append((len(taken) - 1, words))
    return brackets


def compare(ours: Sequence[str], theirs: Sequence[str], *, tags: bool = False) -> TreeCounts:
    """Returns the counts of one tree.  Duplicate brackets match as often as both trees have them.

    The outermost bracket and brackets over punctuation count like any other.

    Args:
      ours: transitions of the predicted tree; empty if there is none.
      theirs: transitions of the reference tree.
      tags: see `brackets_of`.
    """
    predicted, expected = (brackets_of(tree, tags=tags) for tree in (ours, theirs))
    return TreeCounts(
        right=(_spans(predicted) & _spans(expected)).total(),
        predicted=len(predicted),
        expected=len(expected),
        right_trees=(_subtrees(predicted) & _subtrees(expected)).total(),
        exact=int(list(ours) == list(theirs)),
        frames=int(bool(predicted) and _frame(predicted) == _frame(expected)),
        malformed=int(not ours),
        trees=1,
    )


def compare_texts(output: str, reference: str) -> TreeCounts:
    """Returns the counts of a tree in bracket notation.

    In round brackets a constituent of a single word is a part of speech and not counted.  An output
    that is not a tree, or a tree over other words, has no brackets and counts as malformed.

    Raises:
      DataError: the reference is not a tree.
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


def _f1(right: int, predicted: int, expected: int) -> float:
    return 2 * right / (predicted + expected) if right else 0.0
