"""Text encoders with the interface of tensor2tensor's `data_generators/text_encoder.py`.

Users' files make vocabularies with them.  Data and models use the encoders of this library, which
give the same ids (`encoder_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError, RegistryError
from t2t_torch.files import staged
from t2t_torch.text.encoder import (
    NUM_RESERVED,
    RESERVED_TOKENS,
    ByteEncoder,
    ClassLabelEncoder,
    TokenEncoder,
)
from t2t_torch.text.encoder import TextEncoder as OurTextEncoder
from t2t_torch.text.subword import load_subwords
from t2t_torch.text.tensor2tensor_subword import MAX_LENGTH, SubtokenEncoder, learn, split


class TextEncoder:
    """Base class; encodes numbers that are separated by spaces."""

    def __init__(self, num_reserved_ids: int = NUM_RESERVED) -> None:
        self._num_reserved_ids = num_reserved_ids

    @property
    def num_reserved_ids(self) -> int:
        """The number of reserved ids."""
        return self._num_reserved_ids

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        raise NotImplementedError

    def encode(self, s: str) -> list[int]:
        """Returns the ids of a text."""
        return [int(word) + self._num_reserved_ids for word in s.split()]

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        return " ".join(str(one - self._num_reserved_ids) for one in ids)


class _Wrapped(TextEncoder):
    """An encoder of this library."""

    def __init__(self, ours: OurTextEncoder | ClassLabelEncoder) -> None:
        super().__init__()
        self.ours: Any = ours

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return int(self.ours.vocab_size)

    def encode(self, s: str) -> Any:
        """Returns the ids of a text; of a label its number."""
        return self.ours.encode(s)

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        return str(self.ours.decode(ids))


class ByteTextEncoder(_Wrapped):
    """Bytes of UTF-8."""

    def __init__(self, num_reserved_ids: int = NUM_RESERVED) -> None:
        super().__init__(ByteEncoder())


class ClassLabels(_Wrapped):
    """Labels by their position, `text_encoder.ClassLabelEncoder`."""

    def __init__(
        self, class_labels: Sequence[str] | None = None, class_labels_fname: str | None = None
    ) -> None:
        labels = map(str, class_labels or [])
        super().__init__(
            ClassLabelEncoder(list(labels))
            if class_labels_fname is None
            else ClassLabelEncoder.load(Path(class_labels_fname))
        )


class TokenTextEncoder(_Wrapped):
    """Whole words, of a file or a list."""

    def __init__(
        self,
        vocab_filename: str | None = None,
        reverse: bool = False,
        vocab_list: Sequence[str] | None = None,
        replace_oov: str | None = None,
        num_reserved_ids: int = NUM_RESERVED,
    ) -> None:
        self.replace_oov, self.reverse = replace_oov, reverse
        super().__init__(
            TokenEncoder(list(vocab_list or []), replace_oov=replace_oov, reverse=reverse)
            if vocab_filename is None
            else TokenEncoder.load(Path(vocab_filename), replace_oov=replace_oov, reverse=reverse)
        )

    def store_to_file(self, filename: str) -> None:
        """Writes the words, one a line."""
        with staged(Path(filename)) as temporary:
            temporary.write_text("".join(f"{word}\n" for word in self.ours.tokens), "utf-8")


class SubwordTextEncoder(_Wrapped):
    """Subwords, of a file or learnt."""

    def __init__(self, filename: str | None = None) -> None:
        if filename is None:
            raise RegistryError(
                "SubwordTextEncoder without a file is not in t2t_torch: make one with "
                "SubwordTextEncoder.build_from_generator."
            )
        super().__init__(load_subwords(Path(filename)))

    @classmethod
    def build_from_generator(
        cls,
        generator: Iterable[str],
        target_size: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
    ) -> SubwordTextEncoder:
        """Learns subwords from texts."""
        counts: Counter[str] = Counter()
        for text in generator:
            counts.update(split(text))
        return cls.build_to_target_size(
            target_size, counts, 1, 1000, max_subtoken_length, reserved_tokens
        )

    @classmethod
    def build_to_target_size(
        cls,
        target_size: int,
        token_counts: Mapping[str, int],
        min_val: int,
        max_val: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
        num_iterations: int = 4,
    ) -> SubwordTextEncoder:
        """Learns subwords from the counts of tokens."""
        if not token_counts:
            raise DataError("No text to learn a vocabulary from. Are the raw files empty?")
        made = object.__new__(cls)
        subtokens = learn(
            token_counts,
            target_size,
            reserved=RESERVED_TOKENS if reserved_tokens is None else list(reserved_tokens),
            max_length=max_subtoken_length,
            least_counts=(min_val, max_val),
        )
        _Wrapped.__init__(made, SubtokenEncoder(subtokens))
        return made

    def store_to_file(self, filename: str, add_single_quotes: bool = True) -> None:
        """Writes the file of the vocabulary."""
        self.ours.save(Path(filename))


def get_or_generate_vocab_inner(
    data_dir: str | None,
    vocab_filename: str | None,
    vocab_size: int,
    generator: Iterable[str],
    max_subtoken_length: int | None = MAX_LENGTH,
    reserved_tokens: Sequence[str] | None = None,
) -> SubwordTextEncoder:
    """Returns the vocabulary of a file, which is learnt from texts if it is not there."""
    path = Path(data_dir, vocab_filename) if data_dir and vocab_filename else None
    if path is not None and path.exists():
        return SubwordTextEncoder(str(path))
    made = SubwordTextEncoder.build_from_generator(
        generator, vocab_size, max_subtoken_length, reserved_tokens
    )
    if path is not None:
        made.store_to_file(str(path))
    return made


def encoder_of(user: Any, owner: str) -> OurTextEncoder:
    """Returns the encoder of this library for a user's.

    Args:
      user: what a user's `get_or_create_vocab` has returned.
      owner: name of the problem, for messages.

    Raises:
      RegistryError: it is of a class that is not here.
    """
    if isinstance(user, OurTextEncoder):
        return user
    own = next((c for c in type(user).__mro__ if c.__module__ == __name__), None)
    changed = own is not None and any(
        type(user).__dict__.get(name) for name in ("encode", "decode", "vocab_size")
    )
    if isinstance(user, _Wrapped) and (type(user) is own or not changed):
        encoder: OurTextEncoder = user.ours
        return encoder
    raise RegistryError(
        f"get_or_create_vocab of tensor2tensor problem {owner!r} returns a {type(user).__name__}, "
        "an encoder that is written there. Return a TokenTextEncoder, a SubwordTextEncoder or a "
        "ByteTextEncoder, and change the texts in generate_samples."
    )
