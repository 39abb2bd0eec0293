"""Numbers between spaces as ids."""

from __future__ import annotations

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import NUM_RESERVED, TextEncoder


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
