"""Text encoder interface, and encoders for bytes, characters, integers, labels and words."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from t2t_torch.atomic_files import write_text
from t2t_torch.errors import DataError
from t2t_torch.files import MAX_VOCABULARY, read_entries, read_json
from t2t_torch.text.tokenizer import check_expression

# Reserved ids of tensor2tensor, data_generators/text_encoder.py.
PAD = 0
EOS = 1
NUM_RESERVED = 2
RESERVED_TOKENS = ("<pad>", "<EOS>")


class TextEncoder(ABC):
    """Encodes text into ids in [2, vocab_size) and decodes ids into text.

    `PAD` and `EOS` mark sequences; no text encodes to them.

    Attributes:
      add_eos: True if the ids of a text of the data end with `EOS`.
      is_lossless: True if every text decodes to itself, but for its spaces.
    """

    add_eos: bool = True
    is_lossless: bool = True

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of ids, including the two reserved ones."""

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The ids that encode unknown content: unknown words, bytes of rare characters."""
        return frozenset()

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """The name of each id, by which vocabularies are compared: its text, unless overridden."""
        return tuple(self._decode([number]) for number in range(self.vocab_size))

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without `EOS`.

        Raises:
          DataError: the text cannot be encoded.
        """

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, as `encode` does; faster if the encoder can batch."""
        return [self.encode(text) for text in texts]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word of a text whose words are joined by single spaces.

        The concatenated ids decode to that text, so each word after the first includes the space
        before it.
        """
        return self.encode_batch([word if i == 0 else f" {word}" for i, word in enumerate(words)])

    def words_of_ids(self) -> list[float]:
        """Returns the number of words that end with each id, for perplexity per word: [vocab_size].

        A space ends a word; a line break ends one and counts as another; so does `EOS`.
        """
        texts = [self._decode([identity]) for identity in range(self.vocab_size)]
        ends = [float(text.count(" ") + 2 * text.count("\n")) for text in texts]
        ends[PAD], ends[EOS] = 0.0, 2.0
        return ends

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of a sequence up to the first `EOS`, if any, ignoring `PAD`."""
        return self._decode(content(ids))

    @abstractmethod
    def _decode(self, ids: list[int]) -> str:
        """Returns the text of ids that contain neither `PAD` nor `EOS`."""


def content(ids: Iterable[int]) -> list[int]:
    """Returns the ids before the first `EOS`, without `PAD`, as Python integers."""
    tokens = []
    for identity in ids:
        number = int(identity)
        if number == EOS:
            break
        if number != PAD:
            tokens.append(number)
    return tokens


def check_unicode(text: str) -> None:
    """Checks that a string is valid Unicode text.

    Raises:
      DataError: the string holds a lone surrogate, which UTF-8 cannot encode.
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


@contextlib.contextmanager
def vocabulary_errors(path: Path, hint: str = "", kind: str = "") -> Iterator[None]:
    """Names the file in the errors of reading a vocabulary.

    Args:
      path: file of the vocabulary.
      hint: a sentence about what to do with a malformed file.
      kind: what the file is; "": the body raises no other errors than these.

    Raises:
      DataError: the file cannot be read, or the body raises a DataError, or with `kind` one of the
        errors of JSON that is something else.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None
    except DataError as error:
        message = str(error)
        raise DataError(message if str(path) in message else f"{path}: {message}{hint}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        if not kind:
            raise
        raise DataError(f"{path} is no {kind}.{hint}") from None


class ByteEncoder(TextEncoder):
    """Encodes each UTF-8 byte as its value plus 2.  No text is unknown; needs no training.

    Invalid UTF-8 decodes to U+FFFD.  Ids outside the byte range are ignored.
    Source: tensor2tensor's `ByteTextEncoder`.
    """

    vocab_size: ClassVar[int] = 256 + NUM_RESERVED

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


_UNKNOWN = NUM_RESERVED
_REPLACEMENT = "\ufffd"  # decoded form of an unknown character


class CharacterEncoder(TextEncoder):
    """Encodes each Unicode character by its position in an alphabet; unknown characters get id 2.

    Args:
      characters: the alphabet.

    Raises:
      DataError: an entry is a duplicate or not a single character.
    """

    unknown_ids: ClassVar[frozenset[int]] = frozenset({_UNKNOWN})
    is_lossless = False

    def __init__(self, characters: Sequence[str]) -> None:
        self._characters = tuple(characters)
        first = _UNKNOWN + 1
        self._ids = {character: first + i for i, character in enumerate(self._characters)}
        if len(self._ids) != len(self._characters) or any(len(c) != 1 for c in self._characters):
            raise DataError("An alphabet is a list of single characters, each of them once.")

    @classmethod
    def load(cls, path: Path) -> CharacterEncoder:
        """Reads an alphabet from a JSON list; DataError if it is missing or malformed."""
        with vocabulary_errors(path, kind="JSON list of characters"):
            return cls(read_json(path, max_bytes=MAX_VOCABULARY))

    @staticmethod
    def save(characters: Iterable[str], path: Path) -> None:
        """Writes an alphabet atomically."""
        write_text(path, json.dumps(list(characters)) + "\n")

    @property
    def vocab_size(self) -> int:
        """The number of characters plus 3."""
        return _UNKNOWN + 1 + len(self._characters)

    @property
    def characters(self) -> tuple[str, ...]:
        """The alphabet; its first character has the id 3."""
        return self._characters

    def encode(self, text: str) -> list[int]:
        """Returns one id per character."""
        return [self._ids.get(character, _UNKNOWN) for character in text]

    def _decode(self, ids: list[int]) -> str:
        first = _UNKNOWN + 1
        known = range(first, self.vocab_size)
        return "".join(self._characters[i - first] if i in known else _REPLACEMENT for i in ids)


class IntegerEncoder(TextEncoder):
    """Encodes whitespace-separated integers, each as its value plus 2: "0 3" is [2, 5].

    Source: tensor2tensor's base `TextEncoder`.

    Args:
      num_symbols: integers must be in [0, num_symbols).
    """

    def __init__(self, num_symbols: int) -> None:
        self._num_symbols = num_symbols

    @property
    def vocab_size(self) -> int:
        """The number of symbols plus 2."""
        return self._num_symbols + NUM_RESERVED

    def encode(self, text: str) -> list[int]:
        """Returns one id per integer; DataError for a word that is not an integer in range."""
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


class ClassLabelEncoder:
    """Encodes class labels by their position in a list, from 0.  No ids are reserved.

    Source: tensor2tensor's `ClassLabelEncoder`, whose decoding treated 0 and 1 as PAD and EOS.

    Args:
      labels: the names of the classes.

    Raises:
      DataError: a label is duplicated.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self._ids = {label: i for i, label in enumerate(self.labels)}
        if len(self._ids) != len(self.labels):
            twice = Counter(labels).most_common(1)[0][0]
            raise DataError(f"The label {twice!r} is there twice. Remove one of them.")

    @classmethod
    def load(cls, path: Path) -> ClassLabelEncoder:
        """Reads a label file with one label per line; DataError if it is missing or not UTF-8."""
        return cls(read_entries(path))

    @property
    def vocab_size(self) -> int:
        """The number of classes."""
        return len(self.labels)

    def encode(self, label: str, *, allow_unknown: bool = False) -> int:
        """Returns the id of a label, in [0, vocab_size).

        Args:
          label: the label's name.
          allow_unknown: return -1 for unknown labels.

        Raises:
          DataError: the label is unknown.
        """
        identity = self._ids.get(label, -1)
        if identity < 0 and not allow_unknown:
            raise DataError(f"{label!r} is no label; the labels are {list(self.labels)}.")
        return identity

    def decode(self, identity: int) -> str:
        """Returns the label of an id; DataError if the id is out of range."""
        if not 0 <= identity < len(self.labels):
            raise DataError(f"{identity} is no class; the classes are 0 to {len(self.labels) - 1}.")
        return self.labels[identity]


class TokenEncoder(TextEncoder):
    """Encodes whitespace-separated words by their position in a vocabulary.

    The names of the reserved ids are ordinary words in a text: they never encode to `PAD` or
    `EOS`.  An id outside the vocabulary decodes to "ID_<number>".
    Source: tensor2tensor's `TokenTextEncoder`.

    Args:
      tokens: the vocabulary, with or without the reserved tokens; its first word has id 2.
      replace_oov: the vocabulary word that replaces unknown words.
      reverse: encode texts from the last word to the first.
      lower_case: look words up in lower case.

    Attributes:
      reverse: same as the argument.
      lower_case: same as the argument.

    Raises:
      DataError: a word is duplicated, or `replace_oov` is not in the vocabulary.
    """

    is_lossless = False

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
        """Reads a vocabulary file with one word per line, starting with `<pad>` and `<EOS>`.

        Raises:
          DataError: the file is missing, not UTF-8, or does not start with the reserved tokens.
        """
        tokens = read_entries(path)
        if tuple(tokens[: len(RESERVED_TOKENS)]) != RESERVED_TOKENS:
            raise DataError(
                f"{path}: lines 1 and 2 are not {' and '.join(RESERVED_TOKENS)}, with which a "
                "token vocabulary starts. Put them there."
            )
        with vocabulary_errors(path):
            return cls(tokens, replace_oov=replace_oov, reverse=reverse, lower_case=lower_case)

    def save(self, path: Path) -> None:
        """Writes the vocabulary file atomically."""
        write_text(path, "".join(f"{word}\n" for word in self._tokens))

    @property
    def vocab_size(self) -> int:
        """The number of words plus 2."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words in id order, including the reserved tokens."""
        return tuple(self._tokens)

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The id of `replace_oov`, if set."""
        return (
            frozenset() if self._replace_oov is None else frozenset({self._ids[self._replace_oov]})
        )

    def encode(self, text: str) -> list[int]:
        """Returns one id per word; DataError for an unknown word without `replace_oov`."""
        return self._lookup(text.split(), text)[:: self._step]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns one id per word, in the order of the words even with `reverse`."""
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


_GLUED = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_PROBE = "a 1 .\t,\na"  # words, signs and numbers with spaces between them


@dataclass(frozen=True)
class WordCutter:
    r"""Splits a text into words and punctuation marks, identically in Python and exported graphs.

    The expressions are limited to syntax that both support: no lookaround, no backreferences, no
    lazy quantifiers; of several alternatives the longest match must win.

    Attributes:
      words: regular expression of a word; must not match whitespace.
      spaces: regular expression of text treated as a space, such as HTML line breaks.  Empty
        disables it.
      before_words: a character treated as a space before a letter, digit or underscore.  In news
        data a backslash stands for a line break.  Empty disables it.
      splits_glued: split a word at inner capitals: "madeEurope" becomes two words.
      lower_case: convert words to lower case.

    Raises:
      ValueError: an expression is invalid, has a capturing group, matches the empty string, or
        `words` matches a space; or `before_words` is longer than one character.
    """

    # An apostrophe inside a word is part of it: "don't" is one word, "'tis" two.
    words: str = r"\w+(?:'\w+)*|[^\w\s]"
    spaces: str = r"<br\s*/?>"
    before_words: str = "\\"
    splits_glued: bool = False
    lower_case: bool = True

    def __post_init__(self) -> None:
        if len(self.before_words) > 1:
            raise ValueError(f"before_words is {self.before_words!r}; one character was expected.")
        check_expression(self.words, f"words={self.words!r}")
        if self.spaces:
            check_expression(self.spaces, f"spaces={self.spaces!r}")
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
