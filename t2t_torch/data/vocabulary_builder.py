"""Builders of vocabularies, labels and moments, in one pass over the training samples.

A subword vocabulary is trained by `text/subword.py`; here its training texts are sampled.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from t2t_torch.atomic_files import write_text
from t2t_torch.errors import CheckpointError, DataError
from t2t_torch.features.real import numbers_of
from t2t_torch.files import read_json
from t2t_torch.text.encoder import RESERVED_TOKENS, CharacterEncoder
from t2t_torch.text.subword import SubwordEncoder

if TYPE_CHECKING:
    from t2t_torch.problem import Problem

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Uniform sample of a stream.  Vitter 1985, "Random sampling with a reservoir", R.

    Attributes:
      kept: the sample; all items in their order as long as it is not full.

    Args:
      size: size of the sample; None for all items.
      seed: seed of the draw.
    """

    def __init__(self, size: int | None, *, seed: int) -> None:
        self.kept: list[T] = []
        self._size = size
        self._draw = random.Random(seed)
        self._seen = 0

    def place(self) -> int | None:
        """Returns the index for `put` of the next item; None if it is not kept."""
        self._seen += 1
        if self._size is None or self._seen <= self._size:
            return self._seen - 1
        place = self._draw.randrange(self._seen)
        return place if place < self._size else None

    def put(self, place: int, item: T) -> None:
        """Stores an item at an index."""
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
    """Base class of builders of a file in a data folder.

    Attributes:
      file: name of the file.
      is_optional: True if data of earlier versions may lack the file.  It defines the meaning of
        stored numbers, so a run and its data both have it or neither.
    """

    is_optional: bool = False

    def __init__(self, file: str) -> None:
        self.file = file

    @abstractmethod
    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Yields the samples unchanged; writes the file atomically at their end."""


def optional_vocab_files(problem: Problem) -> list[str]:
    """Returns the `vocab_files` that data of earlier versions may lack."""
    learners = (learner for part in problem.components for learner in part.learners())
    optional = dict.fromkeys(learner.file for learner in learners if learner.is_optional)
    return [file for file in optional if file in problem.vocab_files]


def vocab_files_in(problem: Problem, directory: Path, run: Path | None = None) -> tuple[str, ...]:
    """Returns the vocabulary files of a data folder or a run, without missing optional ones.

    Args:
      problem: the problem.
      directory: the folder.
      run: an existing run directory that must use the same data.

    Raises:
      CheckpointError: one of the two has a file that the other lacks.
    """
    optional = optional_vocab_files(problem)
    absent = {file for file in optional if not (directory / file).exists()}
    if run is not None and (run / "task.json").exists():
        for file in optional:
            if (file in absent) is (run / file).exists():
                there, lacking = (run, directory) if file in absent else (directory, run)
                raise CheckpointError(
                    f"{there} has {file}, the mean and deviation by which its numbers are "
                    f"standardized, and {lacking} has not: the run was trained on numbers of "
                    "another scale than those of the data. Train in another --output_dir, or "
                    "point --data_dir to the data that this run began with."
                )
    return tuple(file for file in problem.vocab_files if file not in absent)


def learn(
    learners: Sequence[VocabularyBuilder], samples: Iterator[Sample], directory: Path
) -> None:
    """Runs all builders in one pass over the samples, and writes their files.

    Raises:
      DataError: there are no samples, or a builder cannot use them.
    """
    for learner in learners:
        samples = learner.learn(samples, directory / learner.file)
    for _ in samples:
        pass


class StringsBuilder(VocabularyBuilder):
    """Base class of builders that learn from strings of the samples.

    Args:
      file: name of the file.
      values: returns the strings of a sample.
    """

    def __init__(self, file: str, values: Values) -> None:
        super().__init__(file)
        self._values = values


class SubwordVocabularyBuilder(StringsBuilder):
    """Builder of a subword vocabulary: a sentencepiece model.

    Args:
      file: name of the file.
      values: returns the texts of a sample.
      vocab_size: target size.
      max_samples: number of samples, drawn uniformly, to train on; None for all.
      seed: seed of the draw.
    """

    def __init__(
        self, file: str, values: Values, vocab_size: int, max_samples: int | None, seed: int
    ) -> None:
        super().__init__(file, values)
        self._vocab_size = vocab_size
        self._max_samples = max_samples
        self._seed = seed

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Samples the texts; yields all samples."""
        drawn: Reservoir[tuple[str, ...]] = Reservoir(self._max_samples, seed=self._seed)
        for sample in samples:
            if (place := drawn.place()) is not None:
                drawn.put(place, tuple(self._values(sample)))
            yield sample
        self.train(list(itertools.chain.from_iterable(drawn.kept)), self._vocab_size, path)

    def train(self, texts: Sequence[str], vocab_size: int, path: Path) -> None:
        """Trains the vocabulary and writes its file."""
        SubwordEncoder.train(texts, vocab_size, path)


class WordVocabularyBuilder(StringsBuilder):
    r"""Builder of a word vocabulary: the most frequent words, ties in alphabetical order.

    Words that do not fit in a line of the file are omitted: with a line break, or "\r" at the end.

    Args:
      file: name of the file.
      values: returns the words of a sample.
      vocab_size: target size, including the two reserved ids and the unknown word.
      min_count: minimum number of occurrences of a word.
    """

    def __init__(self, file: str, values: Values, vocab_size: int, min_count: int = 1) -> None:
        super().__init__(file, values)
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
        words = [
            word
            for word, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
            if count >= self._min_count and word not in reserved and _fits_a_line(word)
        ]
        _write_lines(path, [*reserved, *words[: self._vocab_size - len(reserved)]])


class CharacterVocabularyBuilder(StringsBuilder):
    """Builder of a character vocabulary: all characters of the samples."""

    def learn(self, samples: Iterator[Sample], path: Path) -> Iterator[Sample]:
        """Collects the characters."""
        alphabet: set[str] = set()
        for sample in samples:
            for text in self._values(sample):
                alphabet.update(text)
            yield sample
        CharacterEncoder.save(sorted(alphabet), path)


class LabelVocabularyBuilder(StringsBuilder):
    """Builder of a label vocabulary: all labels of the samples, in alphabetical order."""

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
    """Builder of the mean and the standard deviation of numbers over all samples.

    The deviation is that of the population; 0 is replaced by 1, as in PyText.

    Args:
      file: name of the file.
      field: field of a sample: a list of numbers, of the same length in all samples.
    """

    is_optional = True

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
        write_text(path, json.dumps({"mean": mean, "std": std}) + "\n")


def load_moments(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Reads the file of a `MomentsBuilder`: means and standard deviations.

    Raises:
      DataError: there is no such file.
    """
    try:
        moments = read_json(path)
        return tuple(moments["mean"]), tuple(moments["std"])
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}. Run t2t-datagen again.") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} holds no means and deviations. Run t2t-datagen again.") from None


def _fits_a_line(text: str) -> bool:
    """Returns True if the text can be stored as a line of a text file."""
    if "\n" in text or text.endswith("\r"):
        return False
    return not any("\ud800" <= character <= "\udfff" for character in text)  # not in UTF-8


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))
