"""Features of numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, InputSpec, OutputSpec

_MANY = 8  # longest list in examples of documentation

_LARGEST = 3.4028234663852886e38  # largest finite 32-bit float


@dataclass(frozen=True)
class Real(Feature):
    """A vector of numbers; `[B, size]` in a batch.

    Attributes:
      size: number of numbers.
      mean: subtracted from the numbers, [size]; if empty, nothing is.
      std: divisor of the result, [size]; if empty, there is none.
    """

    arrow_type: ClassVar[str] = "list<float32>"

    size: int = 1
    mean: Sequence[float] = ()
    std: Sequence[float] = ()

    @property
    def shape(self) -> tuple[int | None, ...]:
        """`size` numbers."""
        return (self.size,)

    def encode(self, value: Any) -> list[float]:
        """Returns the standardized numbers of one number or a list.

        Raises:
          DataError: there are not `size` numbers, or one is not a finite 32-bit float, before or
            after standardization.
        """
        numbers = numbers_of(value)
        if len(numbers) != self.size:
            raise DataError(f"{value!r}: {len(numbers)} numbers; {self.size} were expected.")
        if not self.mean:
            return numbers
        standard = [(x - m) / s for x, m, s in zip(numbers, self.mean, self.std, strict=True)]
        if not all(map(_fits, standard)):
            raise DataError(f"{value!r} is no 32-bit float any more when it is standardized.")
        return standard

    def decode(self, ids: Iterable[float]) -> list[float]:
        """Returns the numbers as they were before they were standardized."""
        numbers = [float(x) for x in ids]
        if not self.mean:
            return numbers
        return [x * s + m for x, m, s in zip(numbers, self.mean, self.std, strict=True)]

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the specification of the numbers."""
        return InputSpec(name, "numbers", "float32", size=self.size)

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns the specification of the numbers."""
        return OutputSpec(name, "numbers", size=self.size)

    def example(self, *, as_list: bool) -> Any:
        """Returns a number, or a list of them."""
        return 0.5 if self.size == 1 else example_numbers(self.size)


@functools.singledispatch
def scale(feature: Feature) -> tuple[Sequence[float], Sequence[float]]:
    """Returns mean and standard deviation of the standardization; empty if there is none."""
    return (), ()


scale.register(Real, lambda feature: (feature.mean, feature.std))


@functools.singledispatch
def num_channels(feature: Feature) -> int:
    """Returns the number of channels, each with its own mean; 0 for ids."""
    return 0


num_channels.register(Real, lambda feature: feature.size)


def example_numbers(size: int) -> list[Any]:
    """Returns `size` numbers for documentation; if they are many, a text with their number."""
    return [0.5] * size if size <= _MANY else [f"{size} numbers"]


@dataclass(frozen=True)
class RowWeight(Feature):
    """Weight of an example in the loss; `[B]` in a batch.  Not an input of the model.

    Attributes:
      of: name of the target; None for all targets.
    """

    arrow_type: ClassVar[str] = "list<float32>"
    shape: ClassVar[tuple[int | None, ...]] = ()

    of: str | None = None

    def encode(self, value: Any) -> list[float]:
        """Returns the weight; DataError if it is negative or not finite."""
        numbers = numbers_of(value)
        if len(numbers) != 1 or numbers[0] < 0:
            raise DataError(f"{value!r} is no weight; one number from 0 on was expected.")
        return numbers

    def decode(self, ids: Iterable[float]) -> float:
        """Returns the weight."""
        return next(float(x) for x in ids)


num_channels.register(RowWeight, lambda feature: 1)


def numbers_of(value: Any) -> list[float]:
    """Returns one number, or a list of them, as a list of floats.

    Raises:
      DataError: a value is not a number, infinite, NaN, or too large for 32-bit floats.
    """
    values = value if isinstance(value, (list, tuple)) else [value]
    try:
        numbers = [float(x) for x in values]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{value!r} is no number, and no list of numbers.") from None
    if not all(map(_fits, numbers)):
        raise DataError(f"{value!r} is not finite as a 32-bit float. Leave it out, or scale it.")
    return numbers


def _fits(number: float) -> bool:
    return abs(number) <= _LARGEST  # False for NaN
