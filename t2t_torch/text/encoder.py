"""The contract between text and ids."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.files import read_lines, staged

# tensor2tensor's reserved ids, data_generators/text_encoder.py.
PAD = 0
EOS = 1
NUM_RESERVED = 2
RESERVED_TOKENS = ("<pad>", "<EOS>")


class TextEncoder(ABC):
    """Turns text into ids in [2, vocab_size) and ids back into text.

    `PAD` and `EOS` belong to sequences, not to text: no text encodes to them.
    """

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of ids, the two reserved ones counted."""

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The ids of what has none of its own: of unknown words, of rare characters' bytes."""
        return frozenset()

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without `EOS`.

        Raises:
          DataError: the encoder has no ids for this text.
        """

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does; faster where that is possible."""
        return [self.encode(text) for text in texts]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word of a text whose words are joined by single spaces.

        Concatenated they decode to that text; so a word but the first takes the space before it.
        """
        return self.encode_batch([word if i == 0 else f" {word}" for i, word in enumerate(words)])

    def words_of_ids(self) -> list[float]:
        """Returns how many words end with each id, for a perplexity of words: [vocab_size].

        A space ends a word; a line break ends one and counts as one more; so does `EOS`.
        """
        ends = [_ends(self._decode([identity])) for identity in range(self.vocab_size)]
        ends[PAD], ends[EOS] = 0.0, 2.0
        return ends

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of a sequence: up to the first `EOS`, if there is one, `PAD` skipped."""
        return self._decode(content(ids))

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """Returns the text of ids that hold neither `PAD` nor `EOS`."""


def _ends(text: str) -> float:
    return float(text.count(" ") + 2 * text.count("\n"))


def content(ids: Iterable[int]) -> list[int]:
    """Returns the ids before the first `EOS`, without `PAD`, as Python integers."""
    kept = []
    for identity in ids:
        number = int(identity)
        if number == EOS:
            break
        if number != PAD:
            kept.append(number)
    return kept


def check_unicode(text: str) -> None:
    """Refuses a string that is no Unicode text.

    Raises:
      DataError: the string holds a lone surrogate, which UTF-8 cannot write.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code_point = f"U+{ord(text[error.start]):04X}"
        raise DataError(
            f"Character {error.start} of {text!r} is the lone surrogate {code_point}, which is no "
            "Unicode text. Read the text as UTF-8 without errors='surrogateescape', or "
            "replace that character."
        ) from None


# Bytes as ids.


class ByteEncoder(TextEncoder):
    """The UTF-8 bytes of a text, each plus 2.  Nothing is out of vocabulary, and nothing to learn.

    Ids that are not valid UTF-8 decode to U+FFFD, ids that are no byte to nothing.
    Source: tensor2tensor's `ByteTextEncoder`.
    """

    @property
    def vocab_size(self) -> int:
        """258."""
        return 256 + NUM_RESERVED

    def encode(self, text: str) -> list[int]:
        """Returns one id per UTF-8 byte."""
        try:
            return [byte + NUM_RESERVED for byte in text.encode()]
        except UnicodeEncodeError:
            check_unicode(text)
            raise

    def _decode(self, ids: list[int]) -> str:
        byte_ids = range(NUM_RESERVED, self.vocab_size)
        return bytes(i - NUM_RESERVED for i in ids if i in byte_ids).decode(errors="replace")


# Single characters as ids.


_UNKNOWN = NUM_RESERVED
_REPLACEMENT = "\ufffd"  # what an unknown character decodes to


class CharacterEncoder(TextEncoder):
    """Unicode characters by their place in a list; one that is not there has the id 2.

    Args:
      characters: the alphabet.

    Raises:
      DataError: one is there twice, or is no single character.
    """

    def __init__(self, characters: Sequence[str]) -> None:
        self._characters = tuple(characters)
        first = _UNKNOWN + 1
        self._ids = {character: first + i for i, character in enumerate(self._characters)}
        if len(self._ids) != len(self._characters) or any(len(c) != 1 for c in self._characters):
            raise DataError("An alphabet is a list of single characters, each of them once.")

    @classmethod
    def load(cls, path: Path) -> CharacterEncoder:
        """Reads a JSON list of characters; DataError if there is none."""
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise DataError(f"Cannot read the alphabet {path}: {error.strerror}.") from None
        except (ValueError, TypeError):
            raise DataError(f"{path} is no JSON list of characters.") from None
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    @staticmethod
    def save(characters: Iterable[str], path: Path) -> None:
        """Writes an alphabet, whole or not at all."""
        with staged(path) as temporary:
            temporary.write_text(json.dumps(list(characters)) + "\n", encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """The number of characters plus 3."""
        return _UNKNOWN + 1 + len(self._characters)

    @property
    def characters(self) -> tuple[str, ...]:
        """The alphabet; its first character has the id 3."""
        return self._characters

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of all other characters."""
        return frozenset({_UNKNOWN})

    def encode(self, text: str) -> list[int]:
        """Returns one id per character."""
        return [self._ids.get(character, _UNKNOWN) for character in text]

    def _decode(self, ids: list[int]) -> str:
        first = _UNKNOWN + 1
        known = range(first, self.vocab_size)
        return "".join(self._characters[i - first] if i in known else _REPLACEMENT for i in ids)


# Numbers between spaces as ids.


class IntegerEncoder(TextEncoder):
    """Integers separated by whitespace, each plus 2: "0 3" is [2, 5].

    Source: tensor2tensor's base `TextEncoder`.

    Args:
      num_symbols: the integers are in [0, num_symbols).
    """

    def __init__(self, num_symbols: int) -> None:
        self._num_symbols = num_symbols

    @property
    def vocab_size(self) -> int:
        """The number of symbols plus 2."""
        return self._num_symbols + NUM_RESERVED

    def encode(self, text: str) -> list[int]:
        """Returns one id per integer; DataError if a word is not an integer in range."""
        return [self._number(word) + NUM_RESERVED for word in text.split()]

    def _number(self, word: str) -> int:
        try:
            number = int(word)
        except ValueError:
            number = -1
        if not 0 <= number < self._num_symbols:
            raise DataError(
                f"{word!r} is not an integer from 0 to {self._num_symbols - 1}. "
                "Write such integers, separated by spaces."
            )
        return number

    def _decode(self, ids: list[int]) -> str:
        return " ".join(str(i - NUM_RESERVED) for i in ids)


# Class labels as ids.


class ClassLabelEncoder:
    """Labels by their place in a list, from 0: a class is no sequence, so no id is reserved.

    Source: tensor2tensor's `ClassLabelEncoder`, whose decoding took 0 and 1 for PAD and EOS.

    Args:
      labels: the names of the classes.

    Raises:
      DataError: a label is there twice.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._ids = {label: i for i, label in enumerate(self.labels)}
        if len(self._ids) != len(self.labels):
            twice = Counter(labels).most_common(1)[0][0]
            raise DataError(f"The label {twice!r} is there twice. Remove one of them.")

    @classmethod
    def load(cls, path: Path) -> ClassLabelEncoder:
        """Reads a file of labels, one a line; DataError if it is missing or not UTF-8."""
        return cls(list(read_lines(path)))

    @property
    def vocab_size(self) -> int:
        """The number of classes."""
        return len(self.labels)

    def encode(self, label: str, *, allow_unknown: bool = False) -> int:
        """Returns the id of a label, in [0, vocab_size).

        Args:
          label: its name.
          allow_unknown: whether -1 is the id of all other labels.

        Raises:
          DataError: there is no such label.
        """
        identity = self._ids.get(label, -1)
        if identity < 0 and not allow_unknown:
            raise DataError(f"{label!r} is no label; the labels are {list(self.labels)}.")
        return identity

    def decode(self, identity: int) -> str:
        """Returns the label of an id; DataError if there is no such class."""
        if not 0 <= identity < len(self.labels):
            raise DataError(f"{identity} is no class; the classes are 0 to {len(self.labels) - 1}.")
        return self.labels[identity]


# Whole words as ids.


class TokenEncoder(TextEncoder):
    """Words separated by whitespace, by their place in a list.

    The names of the reserved ids are words like any other in a text: they never encode to `PAD` or
    `EOS`.  An id outside the vocabulary decodes to "ID_<number>".
    Source: tensor2tensor's `TokenTextEncoder`.

    Args:
      tokens: the vocabulary, the reserved tokens in it or not; its first word has id 2.
      replace_oov: the word, itself in the vocabulary, that stands for any word that is not.
      reverse: whether the ids of a text are in the order from its last word to its first.
      lower_case: whether words are looked up in lower case.

    Attributes:
      reverse: as given.
      lower_case: as given.

    Raises:
      DataError: a word is there twice, or `replace_oov` is not there.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        *,
        replace_oov: str | None = None,
        reverse: bool = False,
        lower_case: bool = False,
    ) -> None:
        words = [token for token in tokens if token not in RESERVED_TOKENS]
        self._tokens = [*RESERVED_TOKENS, *words]
        self._ids = {word: i for i, word in enumerate(words, start=NUM_RESERVED)}
        if len(self._ids) != len(words):
            twice = Counter(words).most_common(1)[0][0]
            raise DataError(f"The vocabulary holds {twice!r} twice. Remove one of them.")
        if replace_oov is not None and replace_oov not in self._ids:
            raise DataError(
                f"The word for unknown words, {replace_oov!r}, is not in the vocabulary. Add it, "
                "or name one that is."
            )
        self._replace_oov = replace_oov
        self.reverse = reverse
        self.lower_case = lower_case
        self._step = -1 if reverse else 1

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        replace_oov: str | None = None,
        reverse: bool = False,
        lower_case: bool = False,
    ) -> TokenEncoder:
        """Reads a vocabulary file: one word a line, the first two lines `<pad>` and `<EOS>`.

        Raises:
          DataError: the file is missing, not UTF-8, or does not start with the reserved tokens.
        """
        tokens = list(read_lines(path))
        if tuple(tokens[: len(RESERVED_TOKENS)]) != RESERVED_TOKENS:
            raise DataError(
                f"{path} starts with {tokens[:2]}; a token vocabulary starts with the lines "
                f"{' and '.join(RESERVED_TOKENS)}. Put them there."
            )
        try:
            return cls(
                tokens[len(RESERVED_TOKENS) :],
                replace_oov=replace_oov,
                reverse=reverse,
                lower_case=lower_case,
            )
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    @property
    def vocab_size(self) -> int:
        """The number of words plus 2."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words in the order of their ids, the reserved tokens first."""
        return tuple(self._tokens)

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of `replace_oov`, if there is one."""
        return (
            frozenset() if self._replace_oov is None else frozenset({self._ids[self._replace_oov]})
        )

    def encode(self, text: str) -> list[int]:
        """Returns one id per word; DataError if a word is unknown and there is no `replace_oov`."""
        return self._lookup(text.split(), text)[:: self._step]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the one id of each word, in the words' order also with `reverse`."""
        return [[identity] for identity in self._lookup(words, " ".join(words))]

    def words_of_ids(self) -> list[float]:
        """Returns 1 for each word and for `EOS`, 0 for `PAD`."""
        return [0.0, *[1.0] * (self.vocab_size - 1)]

    def _lookup(self, words: Sequence[str], text: str) -> list[int]:
        if self.lower_case:
            words = [word.lower() for word in words]
        if self._replace_oov is not None:
            unknown = self._ids[self._replace_oov]
            return [self._ids.get(word, unknown) for word in words]
        try:
            return [self._ids[word] for word in words]
        except KeyError as error:
            raise DataError(
                f"The vocabulary has no {error.args[0]!r}, which is in {text!r}. Add it to the "
                "vocabulary, or name a word for unknown words (`oov_token` of the problem)."
            ) from None

    def _decode(self, ids: list[int]) -> str:
        known = range(len(self._tokens))
        words = [self._tokens[i] if i in known else f"ID_{i}" for i in ids]
        return " ".join(words[:: self._step])


# Texts cut into words and signs, for classifiers that count words.


_GLUED = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_PROBE = "a 1 .\t,\na"  # words, signs and numbers with spaces between them


@dataclass(frozen=True)
class WordCutter:
    r"""Finds the words of a text, each sign by itself; the same in Python and in an exported graph.

    So its expressions are what both know: no lookaround, no reference to a group, nothing that
    matches as little as it can, and in an alternative the longest match is what counts.

    Attributes:
      words: a regular expression of a word, which matches no space of any kind.
      spaces: one of what is taken for a space: HTML's line breaks.  Empty is nothing.
      before_words: a character that is taken for a space where a letter, digit or underscore
        follows: in files of news a backslash stands for a line break.  Empty is none.
      splits_glued: whether a capital begins a new word inside one: "madeEurope" is two.
      lower_case: whether words are in lower case.

    Raises:
      ValueError: an expression is none, has a capturing group, matches nothing at all, or one of
        words a space; or `before_words` is more than one character.
    """

    # An apostrophe inside a word belongs to it: "don't" is one word, "'tis" two.
    words: str = r"\w+(?:'\w+)*|[^\w\s]"
    spaces: str = r"<br\s*/?>"
    before_words: str = "\\"
    splits_glued: bool = False
    lower_case: bool = True

    def __post_init__(self) -> None:
        if len(self.before_words) > 1:
            raise ValueError(f"before_words is {self.before_words!r}; one character was expected.")
        _check("words", self.words)
        if self.spaces:
            _check("spaces", self.spaces)
        if any(re.search(r"\s", word) for word in re.findall(self.words, _PROBE)):
            raise ValueError(
                f"words={self.words!r} takes a space into a word. Leave spaces out: [^\\s...]."
            )

    def __call__(self, text: str) -> str:
        """Returns the words of a text, joined by spaces."""
        if self.spaces:
            text = re.sub(self.spaces, " ", text)
        if self.before_words:
            text = re.sub(rf"{re.escape(self.before_words)}(?=\w)", " ", text)
        if self.splits_glued:
            text = _GLUED.sub(" ", text)
        return " ".join(re.findall(self.words, text.lower() if self.lower_case else text))


def _check(name: str, expression: str) -> None:
    """Checks that an expression can be searched for, and that a match has characters."""
    try:
        compiled = re.compile(expression)
    except re.error as error:
        raise ValueError(f"{name}={expression!r} is no regular expression: {error}.") from None
    if compiled.groups:
        raise ValueError(
            f"{name}={expression!r} has a capturing group, and what is in it alone would be found. "
            "Write (?:...)."
        )
    if compiled.match(""):
        raise ValueError(
            f"{name}={expression!r} matches where nothing stands. Let it match one character or "
            "more: + in place of *."
        )
