"""tensor2tensor's pieces of words as ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.data.staging import staged
from t2t_torch.errors import DataError
from t2t_torch.text import subtoken_learner, tokenizer
from t2t_torch.text.encoder import RESERVED_TOKENS, TextEncoder, check_unicode

# Words repeat: looking one up is 5 times as fast as cutting it.
_MAX_CACHED = 1 << 18
_MAX_CACHED_LENGTH = 64


class SubtokenEncoder(TextEncoder):
    """Pieces of tokens (`tokenizer.split`), each the longest that the vocabulary has.

    `decode(encode(text)) == text` for every Unicode text, also with characters that the vocabulary
    has not.  No piece spans a space.  The names of the reserved ids are texts like any other.  Ids
    outside the vocabulary decode to nothing.
    Source: tensor2tensor's `SubwordTextEncoder`: the same files, ids and texts.

    Args:
      subtokens: the vocabulary; an entry's place is its id, and the last of equal ones counts.

    Raises:
      DataError: it does not start with tensor2tensor's reserved tokens.
    """

    def __init__(self, subtokens: Sequence[str]) -> None:
        self._subtokens = list(subtokens)
        expected = [name + tokenizer.END for name in RESERVED_TOKENS]
        if self._subtokens[: len(expected)] != expected:
            raise DataError(
                f"A subtoken vocabulary starts with {' and '.join(expected)}; this one starts with "
                f"{self._subtokens[: len(expected)]}."
            )
        self._ids = {piece: i for i, piece in enumerate(self._subtokens) if piece}
        self._longest = subtoken_learner.longest_by_start(self._ids)
        self._alphabet = {c for piece in self._subtokens for c in piece} | tokenizer.ESCAPES
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def load(cls, path: Path) -> SubtokenEncoder:
        r"""Reads a vocabulary file of tensor2tensor: an entry a line, in quotes or not.

        Only "\n" ends a line, and "\r" is dropped wherever it is: an entry may hold U+2028 and the
        like.

        Raises:
          DataError: the file is missing, not UTF-8, or no such vocabulary.
        """
        try:
            text = path.read_bytes().decode()
            return cls(_entries(text))
        except OSError as error:
            raise DataError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is no subtoken vocabulary: its byte {error.start + 1} is not UTF-8. "
                "Copy the file from tensor2tensor's data folder again."
            ) from None
        except DataError as error:
            raise DataError(
                f"{path}: {error} Copy the file from tensor2tensor's data folder again."
            ) from None

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, path: Path) -> SubtokenEncoder:
        """Learns a vocabulary as tensor2tensor does and writes its file.

        Args:
          texts: read once; the counts of their tokens have to fit in memory.
          vocab_size: about how many ids; the alphabet of the texts alone may need more.
          path: where the file is written, whole or not at all.

        Raises:
          DataError: there is no text.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            check_unicode(text)
            counts.update(tokenizer.split(text))
        if not counts:
            raise DataError("No text to learn a vocabulary from. Are the raw files empty?")
        encoder = cls(subtoken_learner.learn(counts, vocab_size))
        encoder.save(path)
        return encoder

    def save(self, path: Path) -> None:
        """Writes the vocabulary as tensor2tensor stores it, whole or not at all."""
        text = "".join(f"'{piece}'\n" for piece in self._subtokens)
        with staged(path) as temporary:
            temporary.write_bytes(text.encode())

    @property
    def vocab_size(self) -> int:
        """The number of entries."""
        return len(self._subtokens)

    @property
    def subtokens(self) -> list[str]:
        """The entries, as in the file."""
        return list(self._subtokens)

    @property
    def alphabet(self) -> frozenset[str]:
        """The characters that are not written by number, but for a line's end."""
        return frozenset(self._alphabet)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text.

        Raises:
          DataError: it holds a lone surrogate, or the vocabulary lacks a character of the escapes.
        """
        tokens = tokenizer.split(text)
        found = [self._cache.get(token) for token in tokens]
        if None in found:
            check_unicode(text)
        ids: list[int] = []
        for token, known in zip(tokens, found, strict=True):
            ids += self._look_up(token) if known is None else known
        return ids

    def encode_without_tokenizing(self, text: str) -> list[int]:
        """Returns the ids of a text taken as one token, whose pieces may span spaces.

        The names of the reserved ids become those ids, as in tensor2tensor.
        """
        check_unicode(text)
        return list(self._look_up(text))

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word: with the space before it, where decoding adds none."""
        batch = []
        after_letters = False
        for index, word in enumerate(words):
            given = index == 0 or (after_letters and word[:1].isalnum())
            batch.append(self.encode(word if given else f" {word}"))
            after_letters = word[-1:].isalnum()
        return batch

    def _decode(self, ids: list[int]) -> str:
        known = range(len(self._subtokens))
        escaped = "".join(self._subtokens[i] for i in ids if i in known)
        tokens = (tokenizer.unescape(part) for part in escaped.split(tokenizer.END))
        return tokenizer.join(token for token in tokens if token)

    def _look_up(self, token: str) -> list[int]:
        escaped = tokenizer.escape(token, self._alphabet)
        ids = [self._ids[p] for p in subtoken_learner.cut(escaped, self._ids, self._longest)]
        if len(token) <= _MAX_CACHED_LENGTH:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[token] = ids
        return ids

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the vocabulary alone."""
        return SubtokenEncoder, (self._subtokens,)


def holds_subtokens(path: Path) -> bool:
    """Whether a file starts as tensor2tensor's subtoken vocabularies do."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise DataError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None
    return head.lstrip(b"'\"").startswith(RESERVED_TOKENS[0].encode())


def _entries(text: str) -> list[str]:
    lines = text.replace("\r", "").removesuffix("\n").split("\n")
    return [_unquoted(line.rstrip()) for line in lines]


def _unquoted(line: str) -> str:
    quoted = line[:1] in ("'", '"') and line[:1] == line[-1:]
    return line[1:-1] if quoted else line
