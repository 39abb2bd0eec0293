"""Features of texts and trees, and comparison of their meanings."""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, InputSpec, OutputKind
from t2t_torch.features.real import num_channels, scale
from t2t_torch.text.encoder import EOS, PAD, TextEncoder
from t2t_torch.text.tokenizer import tokenize
from t2t_torch.text.tree import SHIFT, TransitionEncoder, Tree, parse_tree, repair

_BETWEEN_WORDS = re.compile(r"[ \t\r\n]+")


@dataclass(frozen=True)
class Text(Feature):
    """A text, as a sequence of ids.

    Attributes:
      encoder: converts between text and ids.
      add_eos: True to append `EOS` to the ids.
      num_marks: number of ids after those of the encoder, which stand for hidden parts of a text
        and decode to nothing (`denoising.py`).
    """

    is_text: ClassVar[bool] = True
    output_kind: ClassVar[OutputKind] = "text"
    arrow_type: ClassVar[str] = "list<int32>"

    encoder: TextEncoder
    add_eos: bool = True
    num_marks: int = 0

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the encoder, and marks."""
        return self.encoder.vocab_size + self.num_marks

    @property
    def generates(self) -> bool:
        """True if the text ends with `EOS`."""
        return self.add_eos

    def encode(self, value: Any) -> list[int]:
        """Returns the ids of a text, and `EOS` if `add_eos`."""
        return self.encode_batch([value])[0]

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of each text, and `EOS` after each if `add_eos`.

        Raises:
          DataError: a value is not a text, or has no ids.
        """
        for value in values:
            if not isinstance(value, str):
                raise DataError(f"{reprlib.repr(value)} is no text, where one was expected.")
        return self._ended(self.encoder.encode_batch(values))

    def _ended(self, batch: list[list[int]]) -> list[list[int]]:
        return [[*ids, EOS] for ids in batch] if self.add_eos else batch

    def decode(self, ids: Iterable[int]) -> Any:
        """Returns the text before the first `EOS`, `PAD` and marks skipped."""
        if self.num_marks:
            ids = [number for number in ids if number < self.encoder.vocab_size]
        return self.encoder.decode(ids)

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns a text."""
        return InputSpec(name, "text")

    def example(self, *, as_list: bool) -> Any:
        """Returns a text, or a list of two."""
        return ["...", "..."] if as_list else "..."


@dataclass(frozen=True)
class Words(Text):
    """A text given as words; the ids of its words are concatenated.

    In a word vocabulary each word has one id.  With subwords or bytes it may have several, and a
    `WordStarts` feature has the positions of the first.

    Attributes:
      tokenizer: regular expression of a word by which inputs that are texts are split at inference;
        "": at spaces.
    """

    add_eos: bool = False
    tokenizer: str = ""

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of lists of words; DataError if a word is empty or contains a space."""
        return self._ended([list(itertools.chain.from_iterable(w)) for w in self.by_word(values)])

    def by_word(self, values: Sequence[Any]) -> list[list[list[int]]]:
        """Returns the ids, at least one, of each word of each list."""
        return [self.encoder.encode_words(words_of(value)) for value in values]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the words before the first `EOS`, `PAD` skipped."""
        text = self.encoder.decode(ids)
        return text.split(" ") if text else []

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns words."""
        return InputSpec(name, "words", tokenizer=self.tokenizer)


@dataclass(frozen=True)
class Turns(Text):
    """A list of texts, such as the utterances of a dialogue: `EOS` follows each.

    Attributes:
      max_turns: number of last turns to keep; 0 for all.
    """

    max_turns: int = 0

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the concatenated ids of all turns; DataError if a value is not a list."""
        batch = []
        for turns in values:
            if isinstance(turns, str):
                raise DataError(
                    f"{reprlib.repr(turns)} is one text, where a list of texts was expected."
                )
            kept = list_of(turns, "texts")[-self.max_turns :]
            for turn in kept:
                if not isinstance(turn, str):
                    raise DataError(f"{reprlib.repr(turn)} among {reprlib.repr(turns)} is no text.")
            rows = self.encoder.encode_batch(kept)
            batch.append([i for ids in rows for i in (*ids, EOS)])
        return batch

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the texts."""
        turns: list[list[int]] = [[]]
        for identity in map(int, ids):
            if identity == EOS:
                turns.append([])
            elif identity != PAD:
                turns[-1].append(identity)
        return [self.encoder.decode(turn) for turn in turns[:-1]]

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the specification of a list of texts, which graphs do not support."""
        return InputSpec(name, "value")


def check_whole(words: Sequence[str]) -> None:
    """Checks that no word would be split into several words.

    Raises:
      DataError: a word contains a tab or a line end.
    """
    for word in words:
        if _BETWEEN_WORDS.search(word):
            raise _no_word(word, words, "a space, tab or line end ends one")


def words_of(value: Any, tokenizer: str = "") -> Sequence[str]:
    """Returns a value as a list of words; a string is split at spaces, tabs and line ends only.

    No-break spaces and the like are part of a word, as in training files.

    Args:
      value: a text, or a list of words.
      tokenizer: expression of a word by which a text is split instead; see `text.tokenizer`.

    Raises:
      DataError: the value is neither, or a word is not a string, is empty, or contains a space.
    """
    if isinstance(value, str) and tokenizer:
        return [token.text for token in tokenize(value, tokenizer)]
    if isinstance(value, str):
        return [word for word in _BETWEEN_WORDS.split(value) if word]
    words = list_of(value, "words", "no text and ")
    for word in words:
        if not isinstance(word, str):
            raise _no_word(word, words, "a text was expected")
        if not word or " " in word:
            raise _no_word(word, words, "empty, or with a space")
    return words


def _no_word(word: Any, words: Sequence[Any], why: str) -> DataError:
    named = f"{reprlib.repr(word)} among {reprlib.repr(list(words))}"
    return DataError(f"{named} is no word: {why}.")


def list_of(value: Any, what: str, otherwise: str = "") -> list[Any]:
    """Converts a list, a tuple or another iterable to a list.

    Args:
      value: value to convert.
      what: name of the items, for the error.
      otherwise: alternatives to a list, for the error: "no text and ".

    Raises:
      DataError: the value is a text, a mapping, or not iterable.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise DataError(f"{reprlib.repr(value)} is {otherwise}no list of {what}.")
    return list(value)


@dataclass(frozen=True)
class TreeFeature(Text):
    """A bracketed tree, as the ids of the transitions that build it, without its words.

    Attributes:
      of: name of the word feature.
      tags: field with a label for each word that the transitions lack; in output trees it is the
        parent of the word.  Empty if there is none.
      is_round: True for the Penn Treebank's round brackets, False for TOP's square ones.
    """

    output_kind: ClassVar[OutputKind] = "tree"

    encoder: TransitionEncoder
    of: str = "inputs"
    tags: str = ""
    is_round: bool = False

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of trees, given as `Tree` or text; DataError if a tree is invalid."""
        trees = [value if isinstance(value, Tree) else parse_tree(value) for value in values]
        return super().encode_batch([" ".join(tree.transitions()) for tree in trees])

    def decode(self, ids: Iterable[int]) -> str:
        """Returns a tree with 0 for each word, as in "[IN:GET_EVENT 0 ]".

        Invalid sequences, which a model may predict, are repaired.  The
        result is empty if no constituent is opened.
        """
        transitions = repair(self.transitions(ids))
        if not transitions:
            return ""
        tree = Tree.from_transitions(transitions, ["0"] * transitions.count(SHIFT))
        return tree.to_round() if self.is_round else str(tree)

    def transitions(self, ids: Iterable[int]) -> list[str]:
        """Returns the transitions of ids before the first `EOS`, without repair."""
        text = self.encoder.decode(ids)
        return text.split(" ") if text else []

    def over(self, ids: Iterable[int], words: Sequence[str], tags: Sequence[str] = ()) -> str:
        """Returns the bracketed tree that ids build over words.

        Invalid sequences are repaired.  The result is empty if no constituent
        is opened.

        Args:
          ids: ids of transitions.
          words: all words of the sentence.
          tags: tags of the words, if trees have them (`tags`); they may be missing.

        Raises:
          DataError: a word contains characters that are invalid in a tree.
        """
        transitions = repair(self.transitions(ids), len(words))
        if not transitions:
            return ""
        tree = Tree.from_transitions(transitions, words)
        if self.tags:
            if len(tags) != len(words):
                raise DataError(f"{len(words)} words and {len(tags)} {self.tags}: one is for each.")
            tree = tree.with_tags(tags)
        return tree.to_round() if self.is_round else str(tree)

    @property
    def refers_to(self) -> str:
        """The feature of words."""
        return self.of


def meanings(features: Features, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the type of a feature and the meaning of each id.

    For a feature without ids, its shape; for numbers also the mean and the standard deviation of
    their standardization.
    """
    feature: Any = features.all[name]
    encoder = getattr(feature, "encoder", None)
    kind = "text" if feature.generates or hasattr(encoder, "words_of_ids") else ""
    if encoder is None:
        means, deviations = scale(feature)
        standardization = (*means, "/", *deviations) if means else ()
        return type(feature).__name__, tuple(map(str, (*feature.shape, *standardization)))
    if not hasattr(encoder, "words_of_ids"):
        return type(feature).__name__, tuple(encoder.labels)
    return kind, tuple(encoder.decode([number]) for number in range(encoder.vocab_size))


def scale_of(feature: Feature) -> str:
    """Returns the size and scale of numbers for messages; empty for other features."""
    size = num_channels(feature)
    if feature.shape != (size,):
        return ""
    count = f"{size} number{'s' if size > 1 else ''}"
    means, deviations = scale(feature)
    if not means:
        return f"{count}, not standardized"
    pairs = [f"{m:g} and {s:g}" for m, s in zip(means, deviations, strict=True)]
    more = ", ..." if len(pairs) > 3 else ""
    return f"{count}, standardized with mean and deviation {', '.join(pairs[:3])}{more}"
