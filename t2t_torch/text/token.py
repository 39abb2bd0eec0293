"""Whole words as ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import NUM_RESERVED, RESERVED_TOKENS, TextEncoder
from t2t_torch.text.lines import read_lines


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
