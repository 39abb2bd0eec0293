"""Single characters as ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_torch.data.staging import staged
from t2t_torch.errors import DataError
from t2t_torch.text.encoder import NUM_RESERVED, TextEncoder

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
