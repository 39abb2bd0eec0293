"""Pieces of words as ids, by sentencepiece."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from t2t_torch.errors import DataError
from t2t_torch.files import staged
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD, TextEncoder, check_unicode
from t2t_torch.text.subtoken import SubtokenEncoder, holds_subtokens

_UNKNOWN = NUM_RESERVED  # sentencepiece wants one; with byte fallback no text encodes to it

# sentencepiece writes a space as U+2581 and reads it back as a space, so a U+2581 of the text would
# come back as a space.  It is written as SUBSTITUTE and a digit, and so is SUBSTITUTE.
_META_SPACE = "\u2581"
_ESCAPE = "\x1a"
ESCAPES = {_ESCAPE: f"{_ESCAPE}0", _META_SPACE: f"{_ESCAPE}1"}
"""By character, how it is written to sentencepiece; in this order."""
_UNESCAPED = {escaped: character for character, escaped in ESCAPES.items()}
_ESCAPED = re.compile(f"{_ESCAPE}[01]")

# Sentences that hold one of these are skipped by sentencepiece's trainer, so they are cut there:
# its own mark for unknown characters, and NUL.
_UNTRAINABLE = re.compile("[\u2585\x00]")
_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")
_MAX_SENTENCE_CHARACTERS = 4096
_MAX_BYTES_PER_CHARACTER = 4  # of UTF-8

# Of a language's running text, all but a few in a hundred words are among so many; some 30 MB.
_MAX_REMEMBERED = 1 << 17
_MAX_REMEMBERED_CHARACTERS = 32

_TRAINING: dict[str, Any] = {
    # BPE and not unigram: 8192 pieces of Multi30k's 58,000 sentences in 0.2 s and not 1.3 s, 3 %
    # fewer tokens, and the same model for any number of threads.
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "pad_id": PAD,
    "eos_id": EOS,
    "unk_id": _UNKNOWN,
    "bos_id": -1,
    # One character in ten thousand goes by its bytes, so that a stray alphabet does not fill the
    # vocabulary.
    "character_coverage": 0.9999,
    "hard_vocab_limit": False,
    "max_sentence_length": _MAX_SENTENCE_CHARACTERS * _MAX_BYTES_PER_CHARACTER,
    "num_threads": 1,
    "minloglevel": 2,  # errors only
}


class SubwordEncoder(TextEncoder):
    """Pieces of words, learnt from text; characters without a piece go by their UTF-8 bytes.

    `decode(encode(text)) == text` for every Unicode text: nothing is normalized, no space is added
    or removed, nothing is out of vocabulary.  Ids outside the vocabulary decode to nothing.

    Args:
      model: a sentencepiece model as `train` makes it.

    Raises:
      DataError: the bytes are no such model.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._pieces = sentencepiece.SentencePieceProcessor()
        try:
            self._pieces.LoadFromSerializedProto(model)
        except RuntimeError:
            raise DataError("This is no sentencepiece model.") from None
        reserved = (self._pieces.pad_id(), self._pieces.eos_id(), self._pieces.unk_id())
        if reserved != (PAD, EOS, _UNKNOWN):
            raise DataError(
                f"This sentencepiece model has the ids {reserved} for padding, end and unknown; "
                f"{(PAD, EOS, _UNKNOWN)} were expected."
            )
        pieces = map(self._pieces.id_to_piece, range(self.vocab_size))
        within_words = not any(_META_SPACE in piece[1:] for piece in pieces)
        self._words = _Words(self._pieces) if within_words else None

    @classmethod
    def load(cls, path: Path) -> SubwordEncoder:
        """Reads a model that `train` has written; DataError if there is none."""
        try:
            return cls(path.read_bytes())
        except DataError as error:
            raise DataError(
                f"{path}: {error} Vocabularies of subwords that t2t-datagen made, here or in "
                "tensor2tensor, can be read; remove the file and run t2t-datagen again."
            ) from None
        except OSError as error:
            raise DataError(f"Cannot read the vocabulary {path}: {error.strerror}.") from None

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, path: Path) -> SubwordEncoder:
        """Learns a vocabulary and writes it; the same texts in the same order give the same bytes.

        Args:
          texts: read once; what sentencepiece makes of them has to fit in memory.
          vocab_size: the number of ids wanted; a small corpus gives fewer.
          path: where the model is written, whole or not at all.

        Raises:
          DataError: there is no text, or its alphabet alone needs more ids than `vocab_size`.
        """
        sentences = _Sentences(texts)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=model,
                vocab_size=vocab_size,
                **_TRAINING,
            )
        except Exception as error:
            fault = sentences.fault(error, vocab_size)
            raise fault from fault.__cause__
        with staged(path) as temporary:
            temporary.write_bytes(model.getvalue())
        return cls(model.getvalue())

    @property
    def vocab_size(self) -> int:
        """The number of ids the model has, which may be less than was asked for."""
        return int(self._pieces.get_piece_size())

    @property
    def model(self) -> bytes:
        """The sentencepiece model, as in its file."""
        return self._model

    @property
    def pieces(self) -> list[str]:
        """What sentencepiece calls each id."""
        return [self._pieces.id_to_piece(i) for i in range(self.vocab_size)]

    @property
    def unknown_ids(self) -> frozenset[int]:
        """The ids of single bytes, which characters without a piece go by."""
        return frozenset(i for i in range(self.vocab_size) if self._pieces.is_byte(i))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text; DataError if it holds a lone surrogate."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        try:
            # One thread: those who encode much do it in one process per core.
            if self._words is not None:
                return [self._words.encode(_escape(text)) for text in texts]
            ids: list[list[int]] = self._pieces.encode([_escape(t) for t in texts], num_threads=1)
        except (RuntimeError, TypeError):
            for text in texts:
                check_unicode(text)
            raise
        return ids

    def _decode(self, ids: list[int]) -> str:
        known = range(_UNKNOWN + 1, self.vocab_size)
        text: str = self._pieces.decode([i for i in ids if i in known])
        return _ESCAPED.sub(lambda match: _UNESCAPED[match[0]], text) if _ESCAPE in text else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the model alone."""
        return SubwordEncoder, (self._model,)


class _Words:
    """Encodes texts word by word, and remembers the words: 2.5 times as fast as sentencepiece.

    As no piece goes from one word into the next, a text's ids are those of its words.  A word but
    the first has the space before it.
    """

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor) -> None:
        self._first = _Remembered(pieces, "")
        self._others = _Remembered(pieces, " ")

    def encode(self, text: str) -> list[int]:
        first, *others = text.split(" ")
        ids = self._first[first].copy()
        for piece_ids in map(self._others.__getitem__, others):
            ids += piece_ids
        return ids


class _Remembered(dict[str, list[int]]):
    """The ids of words; the memory it takes is bounded."""

    def __init__(self, pieces: sentencepiece.SentencePieceProcessor, before: str) -> None:
        self._pieces = pieces
        self._before = before

    def __missing__(self, word: str) -> list[int]:
        ids: list[int] = self._pieces.encode(self._before + word)
        if len(word) <= _MAX_REMEMBERED_CHARACTERS:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[word] = ids
        return ids


def _escape(text: str) -> str:
    for character, escaped in ESCAPES.items():
        if character in text:
            text = text.replace(character, escaped)
    return text


class SmallVocabularyError(DataError):
    """There are to be fewer subwords than there must be.

    Attributes:
      why: how many there must be, and why.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"{why} Set a larger approx_vocab_size.")
        self.why = why


class _Sentences:
    """What the trainer is fed, and what went wrong while it was."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self._count = 0
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for text in self._texts:
                check_unicode(text)
                for part in _UNTRAINABLE.split(_escape(text)):
                    for start in range(0, len(part), _MAX_SENTENCE_CHARACTERS):
                        self._count += 1
                        yield part[start : start + _MAX_SENTENCE_CHARACTERS]
        except Exception as error:  # the trainer would hide it behind one of its own
            self._error = error
            raise

    def fault(self, error: Exception, vocab_size: int) -> Exception:
        """Returns what to raise when training ended with `error`."""
        if self._error is not None:
            return self._error
        if not self._count:
            return DataError("No text to learn a vocabulary from. Are the raw files empty?")
        if needed := _TOO_SMALL.search(str(error)):
            return SmallVocabularyError(
                f"A vocabulary of {vocab_size} subwords is too small: 256 bytes, 3 reserved ids "
                f"and the alphabet of the texts need {needed[1]}."
            )
        return error


# Vocabulary files of pieces of words, whoever made them.


def load_subwords(path: Path) -> TextEncoder:
    """Reads a `vocab.NAME.SIZE.subwords`: tensor2tensor's subtokens, or a sentencepiece model.

    Both have the same name; what is in the file tells them apart.

    Raises:
      DataError: there is no such file, or it is neither.
    """
    return SubtokenEncoder.load(path) if holds_subtokens(path) else SubwordEncoder.load(path)
