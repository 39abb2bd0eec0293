"""What is learnt from the training samples, in one pass: vocabularies, labels, moments."""

from __future__ import annotations

import itertools
import json
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from t2t_torch.errors import DataError
from t2t_torch.features.real import numbers_of
from t2t_torch.files import staged
from t2t_torch.text.encoder import RESERVED_TOKENS, CharacterEncoder
from t2t_torch.text.subword import SubwordEncoder

# So many of a stream of unknown length, each as likely as any other.


T = TypeVar("T")


class Reservoir(Generic[T]):
    """Takes a stream, keeps a sample.  Vitter 1985, "Random sampling with a reservoir", R.

    Attributes:
      kept: the sample; all that came, in its order, as long as it is not full.

    Args:
      size: how many are kept; None for all.
      seed: of the drawing.
    """

    def __init__(self, size: int | None, *, seed: int) -> None:
        self.kept: list[T] = []
        self._size = size
        self._draw = random.Random(seed)
        self._seen = 0

    def place(self) -> int | None:
        """Returns where the next of the stream is to be put with `put`; None: it is not kept."""
        self._seen += 1
        if self._size is None or self._seen <= self._size:
            return self._seen - 1
        place = self._draw.randrange(self._seen)
        return place if place < self._size else None

    def put(self, place: int, item: T) -> None:
        """Keeps an item at its place."""
        if place == len(self.kept):
            self.kept.append(item)
        else:
            self.kept[place] = item


Sample = Mapping[str, Any]
Values = Callable[[Sample], Iterable[str]]
"""The strings of a sample that something is learnt from."""

UNKNOWN_WORD = "<UNK>"
"""What stands for words that a learnt vocabulary of words does not hold."""


class VocabularyBuilder(ABC):
    """Learns one file of a data folder.

    Attributes:
      file: its name.
    """

    def __init__(self, file: str) -> None:
        self.file = file

    @abstractmethod
    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Passes the samples on; when they end, the file is written, whole or not at all."""


def learn(
    learners: Sequence[VocabularyBuilder], samples: Iterator[Sample], directory: Path
) -> None:
    """Lets all learners see all samples, once, and write their files.

    Raises:
      DataError: there is no sample, or one of the learners cannot make anything of them.
    """
    for learner in learners:
        samples = learner.learn(samples, directory / learner.file)
    for _ in samples:
        pass


class SubwordVocabularyBuilder(VocabularyBuilder):
    """Learns subwords: a sentencepiece model.

    Args:
      file: its name.
      values: the texts of a sample.
      vocab_size: ids wanted.
      max_samples: it is learnt from so many samples, drawn evenly from all; None for all.
      seed: of the drawing.
    """

    def __init__(
        self, file: str, values: Values, vocab_size: int, max_samples: int | None, seed: int
    ) -> None:
        super().__init__(file)
        self._values = values
        self._vocab_size = vocab_size
        self._max_samples = max_samples
        self._seed = seed

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Keeps what is drawn and passes all on."""
        drawn: Reservoir[tuple[str, ...]] = Reservoir(self._max_samples, seed=self._seed)
        for sample in samples:
            place = drawn.place()
            if place is not None:
                drawn.put(place, tuple(self._values(sample)))
            yield sample
        SubwordEncoder.train(itertools.chain.from_iterable(drawn.kept), self._vocab_size, path)


class WordVocabularyBuilder(VocabularyBuilder):
    r"""Learns words: the most frequent ones, those of equal frequency by the alphabet.

    Words that a line of the file cannot hold are left out: with a line break, or "\r" at the end.

    Args:
      file: its name.
      values: the words of a sample.
      vocab_size: ids wanted, the two reserved ones and that of unknown words counted.
      min_count: words that are seen more seldom are left out.
    """

    def __init__(self, file: str, values: Values, vocab_size: int, min_count: int = 1) -> None:
        super().__init__(file)
        self._values = values
        self._vocab_size = vocab_size
        self._min_count = min_count

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Counts the words."""
        counts: Counter[str] = Counter()
        for sample in samples:
            counts.update(self._values(sample))
            yield sample
        if not counts:
            raise DataError("No words to learn a vocabulary from. Are the raw files empty?")
        reserved = (*RESERVED_TOKENS, UNKNOWN_WORD)
        ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        words = [
            word
            for word, count in ranked
            if count >= self._min_count and word not in reserved and _fits_a_line(word)
        ]
        lines = [*reserved, *words[: self._vocab_size - len(reserved)]]
        _write_lines(path, lines)


class CharacterVocabularyBuilder(VocabularyBuilder):
    """Learns an alphabet: every character there is.

    Args:
      file: its name.
      values: the texts of a sample.
    """

    def __init__(self, file: str, values: Values) -> None:
        super().__init__(file)
        self._values = values

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Collects the characters."""
        alphabet: set[str] = set()
        for sample in samples:
            for text in self._values(sample):
                alphabet.update(text)
            yield sample
        CharacterEncoder.save(sorted(alphabet), path)


class LabelVocabularyBuilder(VocabularyBuilder):
    """Learns labels: every one there is, by the alphabet.

    Args:
      file: its name.
      values: the labels of a sample.
    """

    def __init__(self, file: str, values: Values) -> None:
        super().__init__(file)
        self._values = values

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Collects the labels."""
        labels: set[str] = set()
        for sample in samples:
            labels.update(self._values(sample))
            yield sample
        if not labels:
            raise DataError(f"No label for {self.file}. Are the raw files empty?")
        for label in labels:
            if not _fits_a_line(label):
                raise DataError(
                    f"The label {label!r} holds a line break, or no Unicode text. Take it out."
                )
        _write_lines(path, sorted(labels))


class MomentsBuilder(VocabularyBuilder):
    """Learns the mean and the standard deviation of numbers, each over all samples.

    The deviation is that of the population; where it is 0 it is written as 1, as PyText has it.

    Args:
      file: its name.
      field: of a sample: a list of numbers, of the same length in all.
    """

    def __init__(self, file: str, field: str) -> None:
        super().__init__(file)
        self._field = field

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Adds up the numbers.  Welford 1962, "Note on a method for calculating ..."."""
        count = 0
        mean: list[float] = []
        squares: list[float] = []
        for sample in samples:
            numbers = numbers_of(sample[self._field])
            if not count:
                mean, squares = [0.0] * len(numbers), [0.0] * len(numbers)
            if len(numbers) != len(mean):
                raise DataError(f"{self._field}: {len(numbers)} numbers after {len(mean)}.")
            count += 1
            for place, number in enumerate(numbers):
                before = number - mean[place]
                mean[place] += before / count
                squares[place] += before * (number - mean[place])
            yield sample
        if not count:
            raise DataError(f"No sample to learn {self.file} from. Are the raw files empty?")
        std = [math.sqrt(square / count) or 1.0 for square in squares]
        with staged(path) as temporary:
            temporary.write_text(json.dumps({"mean": mean, "std": std}) + "\n", encoding="utf-8")


def load_moments(path: Path) -> tuple[list[float], list[float]]:
    """Reads what a `MomentsBuilder` wrote: means and standard deviations.

    Raises:
      DataError: there is no such file.
    """
    try:
        moments = json.loads(path.read_text(encoding="utf-8"))
        return moments["mean"], moments["std"]
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}. Run t2t-datagen again.") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} holds no means and deviations. Run t2t-datagen again.") from None


def _fits_a_line(text: str) -> bool:
    """Whether `text.lines.read_lines` reads the text back from a line of its own."""
    if "\n" in text or text.endswith("\r"):
        return False
    return not any("\ud800" <= character <= "\udfff" for character in text)  # not in UTF-8


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with staged(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
