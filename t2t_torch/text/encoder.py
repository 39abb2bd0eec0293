"""The contract between text and ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from t2t_torch.errors import DataError

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
