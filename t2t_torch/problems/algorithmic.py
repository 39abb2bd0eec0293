"""Synthetic tasks on symbol sequences.  Source: tensor2tensor's algorithmic.py."""

from __future__ import annotations

import functools
import itertools
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import IntegerEncoder


class AlgorithmicProblem(Problem):
    """Maps integers to integers, separated by spaces.

    Subclasses implement `case`.  Evaluation uses longer sequences than training.

    Attributes:
      num_symbols: integers are in [0, num_symbols).
      train_length: maximum sequence length in training.
      dev_length: maximum sequence length in evaluation.
      train_size: number of training samples.
      dev_size: number of evaluation samples.
    """

    batch_size_means_tokens = True
    input_space_id = 13  # tensor2tensor's SpaceID.DIGIT_0
    target_space_id = 14  # SpaceID.DIGIT_1
    num_symbols: ClassVar[int] = 2
    train_length: ClassVar[int] = 40
    dev_length: ClassVar[int] = 400
    train_size: ClassVar[int] = 100_000
    dev_size: ClassVar[int] = 10_000
    setting_names: ClassVar[tuple[str, ...]] = (
        "num_symbols",
        "train_length",
        "dev_length",
        "train_size",
        "dev_size",
    )

    @abstractmethod
    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns the inputs and targets of one sample."""

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields samples; `tmp_dir` is unused."""
        train = split is Split.TRAIN
        max_length = self.train_length if train else self.dev_length
        draw = random.Random(f"{self.name} {split.value}")
        for _ in range(self.train_size if train else self.dev_size):
            inputs, targets = self.case(draw, max_length)
            yield {"inputs": " ".join(map(str, inputs)), "targets": " ".join(map(str, targets))}

    def stored_features(self, directory: Path) -> Features:
        """Returns the features; there is no vocabulary file."""
        text = Text(IntegerEncoder(self.num_symbols))
        return Features({"inputs": text}, {"targets": text})


def _symbols(draw: random.Random, num_symbols: int, max_length: int) -> list[int]:
    """Returns 1 to max_length random symbols."""
    return draw.choices(range(num_symbols), k=1 + draw.randrange(max_length))


@register_problem
class AlgorithmicIdentityBinary40(AlgorithmicProblem):
    """Copy a sequence of two symbols."""

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns identical inputs and targets."""
        inputs = _symbols(draw, self.num_symbols, max_length)
        return inputs, inputs


@register_problem
class AlgorithmicIdentityDecimal40(AlgorithmicIdentityBinary40):
    """Copy a sequence of digits."""

    num_symbols = 10


@register_problem
class AlgorithmicIdentityVocab95Train20Eval30(AlgorithmicIdentityBinary40):
    """Copy a sequence of 95 symbols, as many as ASCII has printable ones."""

    num_symbols = 95
    train_length = 20
    dev_length = 30
    train_size = 1_000_000


@register_problem
class TinyAlgo(AlgorithmicIdentityBinary40):
    """The same task with one hundred samples, for tests."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    train_size = 100
    dev_size = 100


@register_problem
class AlgorithmicReverseBinary40(AlgorithmicProblem):
    """Reverse a sequence of two symbols."""

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns inputs and reversed inputs."""
        inputs = _symbols(draw, self.num_symbols, max_length)
        return inputs, inputs[::-1]


@register_problem
class AlgorithmicReverseDecimal40(AlgorithmicReverseBinary40):
    """Reverse a sequence of digits."""

    num_symbols = 10


@register_problem
class AlgorithmicReverseNlplike8k(AlgorithmicReverseBinary40):
    """Reverse a sequence of symbols with frequencies as those of words, by Zipf's law.

    Attributes:
      exponent: exponent of Zipf's law.
    """

    num_symbols = 8000
    train_length = 70
    dev_length = 70
    exponent: ClassVar[float] = 1.3
    setting_names = (*AlgorithmicProblem.setting_names, "exponent")

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns inputs and reversed inputs; lengths are normal about half the maximum."""
        length = int(abs(draw.gauss(max_length / 2, max_length / 10)) + 1)
        inputs = draw.choices(range(self.num_symbols), cum_weights=self._weights, k=length)
        return inputs, inputs[::-1]

    @functools.cached_property
    def _weights(self) -> list[float]:
        ranks = range(1, self.num_symbols + 1)
        return list(itertools.accumulate(rank**-self.exponent for rank in ranks))


@register_problem
class AlgorithmicReverseNlplike32k(AlgorithmicReverseNlplike8k):
    """The same with 32,000 symbols."""

    num_symbols = 32000
    exponent = 1.05


@register_problem
class AlgorithmicReverseBinary40Test(AlgorithmicReverseBinary40):
    """The same task with few short samples, for tests."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    train_length = 10
    dev_length = 10
    train_size = 1000
    dev_size = 100


@register_problem
class AlgorithmicShiftDecimal40(AlgorithmicProblem):
    """Add ten to each of a sequence of digits."""

    num_symbols = 20  # ten for the inputs, ten for the targets
    dev_length = 80

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns inputs and inputs plus ten."""
        shift = self.num_symbols // 2
        inputs = _symbols(draw, self.num_symbols - shift, max_length)
        return inputs, [symbol + shift for symbol in inputs]


@register_problem
class AlgorithmicAdditionBinary40(AlgorithmicProblem):
    """Add two binary numbers, written lowest digit first and separated by a 2.

    tensor2tensor has two symbols, so its separator is outside the vocabulary; here it is included.
    """

    num_symbols = 3  # two digits and the separator
    base: ClassVar[int] = 2

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns two numbers and their sum."""
        first_length = 1 + draw.randrange(max_length // 2)
        first = self._number(draw, first_length)
        second = self._number(draw, 1 + draw.randrange(max_length - first_length - 1))
        result = self.operation(self._value(first), self._value(second))
        return [*first, self.base, *second], self._digits(result)

    def operation(self, first: int, second: int) -> int:
        """Returns the sum."""
        return first + second

    def _value(self, digits: list[int]) -> int:
        return sum(digit * self.base**i for i, digit in enumerate(digits))

    def _number(self, draw: random.Random, length: int) -> list[int]:
        """Returns a number with this many digits; the highest is 0 only for a single digit."""
        if length == 1:
            return [draw.randrange(self.base)]
        return [*draw.choices(range(self.base), k=length - 1), 1 + draw.randrange(self.base - 1)]

    def _digits(self, number: int) -> list[int]:
        digits = [number % self.base]
        while number := number // self.base:
            digits.append(number % self.base)
        return digits


@register_problem
class AlgorithmicAdditionDecimal40(AlgorithmicAdditionBinary40):
    """Add two decimal numbers."""

    num_symbols = 11
    base = 10


@register_problem
class AlgorithmicMultiplicationBinary40(AlgorithmicAdditionBinary40):
    """Multiply two binary numbers, written in the same way."""

    def operation(self, first: int, second: int) -> int:
        """Returns the product."""
        return first * second


@register_problem
class AlgorithmicMultiplicationDecimal40(AlgorithmicMultiplicationBinary40):
    """Multiply two decimal numbers."""

    num_symbols = 11
    base = 10


class _CipherProblem(AlgorithmicProblem):
    """Encipher a sequence of symbols: symbol i becomes i minus a shift, modulo their number.

    All sequences have the maximum length.  Source: tensor2tensor's cipher.py.

    Attributes:
      shifts: the shifts of the positions, repeated; one for a shift cipher, several for Vigenere's.
      weights: relative frequencies of the symbols; symbol i has the weight i if empty.
    """

    shifts: ClassVar[tuple[int, ...]]
    weights: ClassVar[tuple[float, ...]] = (0.4, 0.3, 0.2, 0.08, 0.02)
    setting_names = (*AlgorithmicProblem.setting_names, "shifts", "weights")

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns a plain text and its cipher."""
        symbols = range(self.num_symbols)
        plain = draw.choices(symbols, weights=self.weights or symbols, k=max_length)
        shifts = itertools.cycle(self.shifts)
        return plain, [(x - y) % self.num_symbols for x, y in zip(plain, shifts, strict=False)]


@register_problem
class AlgorithmicCipherShift5(_CipherProblem):
    """A shift cipher of five symbols."""

    num_symbols = 5
    train_length = 100
    dev_length = 100
    shifts = (1,)


@register_problem
class AlgorithmicCipherShift200(AlgorithmicCipherShift5):
    """A shift cipher of 200 symbols."""

    num_symbols = 200
    weights = ()


@register_problem
class AlgorithmicCipherVigenere5(_CipherProblem):
    """Vigenere's cipher of five symbols, with the key 1, 3."""

    num_symbols = 5
    train_length = 200
    dev_length = 200
    shifts = (1, 3)


@register_problem
class AlgorithmicCipherVigenere200(AlgorithmicCipherVigenere5):
    """Vigenere's cipher of 200 symbols, with the key 1, 3."""

    num_symbols = 200
    weights = ()


@register_problem
class AlgorithmicSortProblem(AlgorithmicProblem):
    """Sort a sequence of integers."""

    num_symbols = 20  # tensor2tensor: the larger of train_length and dev_length
    train_length = 10
    dev_length = 20

    def case(self, draw: random.Random, max_length: int) -> tuple[list[int], list[int]]:
        """Returns inputs and sorted inputs."""
        inputs = _symbols(draw, self.num_symbols, max_length)
        return inputs, sorted(inputs)
