"""Features of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, GraphOutput, InputSpec, OutputSpec

_MANY = 8  # longest list in examples of documentation
if TYPE_CHECKING:
    from t2t_torch.export.graph import Graph
    from t2t_torch.export.text_graph import InputGraph

_FLOAT, _DOUBLE = 1, 11  # types of ONNX
_LARGEST = 3.4028234663852886e38  # largest finite 32-bit float


@dataclass(frozen=True)
class Real(Feature):
    """A vector of numbers; `[B, size]` in a batch.

    Attributes:
      size: number of numbers.
      mean: subtracted from the numbers, [size]; if empty, nothing is.
      std: divisor of the result, [size]; if empty, there is none.
    """

    is_discrete: ClassVar[bool] = False
    arrow_type: ClassVar[str] = "list<float32>"
    table_columns: ClassVar[tuple[str, ...]] = ("",)

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

    def encode_graph(self, name: str, inputs: InputGraph) -> str:
        """Returns the standardized numbers.  [B, size] float32."""
        numbers, graph = inputs.input(name, "float32", [self.size]), inputs.graph
        if not self.mean:
            return numbers
        mean, std = (np.asarray(x, np.float64) for x in (self.mean, self.std))
        numbers = graph.add("Cast", numbers, to=_DOUBLE)
        numbers = graph.add("Sub", numbers, graph.constant(mean))
        numbers = graph.add("Div", numbers, graph.constant(std))
        return graph.add("Cast", numbers, to=_FLOAT)

    def decode_graph(self, name: str, outputs: Mapping[str, str], graph: Graph) -> GraphOutput:
        """Returns the numbers as they were before they were standardized.  [B, size] float32."""
        numbers = outputs[f"{name}.numbers"]
        if self.mean:
            numbers = graph.add("Mul", numbers, graph.constant(list(self.std), "float32"))
            numbers = graph.add("Add", numbers, graph.constant(list(self.mean), "float32"))
        return numbers, "float32", (self.size,)

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the specification of the numbers."""
        return InputSpec(name, "numbers", "float32", size=self.size)

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns the specification of the numbers."""
        return OutputSpec(name, "numbers", size=self.size)

    def example(self, *, as_list: bool) -> Any:
        """Returns a number, or a list of them."""
        return 0.5 if self.size == 1 else example_numbers(self.size)

    def table_value(self, value: Any) -> Any:
        """Returns numbers with six digits; a single number without a list."""
        if not isinstance(value, list | tuple):
            return value
        numbers = [float(f"{number:.6g}") for number in value]
        return numbers[0] if len(numbers) == 1 else numbers

    @property
    def scale(self) -> tuple[Sequence[float], Sequence[float]]:
        """Mean and standard deviation."""
        return self.mean, self.std

    @property
    def num_channels(self) -> int:
        """`size`."""
        return self.size


def example_numbers(size: int) -> list[Any]:
    """Returns `size` numbers for documentation; if they are many, a text with their number."""
    return [0.5] * size if size <= _MANY else [f"{size} numbers"]


@dataclass(frozen=True)
class RowWeight(Feature):
    """Weight of an example in the loss; `[B]` in a batch.  Not an input of the model.

    Attributes:
      of: name of the target; None for all targets.
    """

    is_discrete: ClassVar[bool] = False
    arrow_type: ClassVar[str] = "list<float32>"
    shape: ClassVar[tuple[int | None, ...]] = ()
    num_channels: ClassVar[int] = 1

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
