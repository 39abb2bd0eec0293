"""Features of numbers and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, InputSpec, OutputSpec, Row

_MANY = 8  # numbers that an example writes out
if TYPE_CHECKING:
    from t2t_torch.export.graph import Graph
    from t2t_torch.export.text_graph import InputGraph

_FLOAT, _DOUBLE = 1, 11  # types of ONNX
_LARGEST = 3.4028234663852886e38  # of the finite 32-bit floats


@dataclass(frozen=True)
class Real(Feature):
    """So many numbers for each example; `[B, size]` in a batch.

    Attributes:
      size: how many.
      mean: what is subtracted from each, [size]; nothing if empty.
      std: what each is then divided by, [size]; nothing if empty.
    """

    is_discrete: ClassVar[bool] = False

    size: int = 1
    mean: Sequence[float] = ()
    std: Sequence[float] = ()

    @property
    def arrow_type(self) -> str:
        """A list of 32-bit floats."""
        return "list<float32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """One number for each place."""
        return (self.size,)

    def encode(self, value: Any) -> list[float]:
        """Returns the standardized numbers of one number or a list.

        Raises:
          DataError: they are no finite 32-bit floats, also standardized, or not so many.
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

    def decode_graph(
        self, name: str, outputs: Mapping[str, str], graph: Graph
    ) -> tuple[str, str, Sequence[int | str | None]]:
        """Returns the numbers as they were before they were standardized.  [B, size] float32."""
        numbers = outputs[f"{name}.numbers"]
        if self.mean:
            numbers = graph.add("Mul", numbers, graph.constant(list(self.std), "float32"))
            numbers = graph.add("Add", numbers, graph.constant(list(self.mean), "float32"))
        return numbers, "float32", (self.size,)

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns how many numbers there are."""
        return InputSpec(name, "numbers", "float32", size=self.size)

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        """Returns how many numbers there are."""
        return OutputSpec(name, "numbers", size=self.size)

    def example(self, *, as_list: bool) -> Any:
        """Returns a number, or a list of them."""
        return 0.5 if self.size == 1 else example_numbers(self.size)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The numbers alone."""
        return ("",)

    def table_value(self, value: Any) -> Any:
        """Returns numbers with six digits; one number is not a list."""
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
    """Returns so many numbers for documentation; for many, a text that says how many."""
    return [0.5] * size if size <= _MANY else [f"{size} numbers"]


@dataclass(frozen=True)
class RowWeight(Feature):
    """How much an example counts in the loss; `[B]` in a batch.  No part of what a model sees.

    Attributes:
      of: the target whose loss it weights; None is all of them.
    """

    is_discrete: ClassVar[bool] = False

    of: str | None = None

    @property
    def arrow_type(self) -> str:
        """A list of one 32-bit float."""
        return "list<float32>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """A single number."""
        return ()

    def encode(self, value: Any) -> list[float]:
        """Returns the weight; DataError if it is below 0 or no finite number."""
        numbers = numbers_of(value)
        if len(numbers) != 1 or numbers[0] < 0:
            raise DataError(f"{value!r} is no weight; one number from 0 on was expected.")
        return numbers

    def decode(self, ids: Iterable[float]) -> float:
        """Returns the weight."""
        return next(float(x) for x in ids)

    @property
    def num_channels(self) -> int:
        """One number."""
        return 1


def numbers_of(value: Any) -> list[float]:
    """Returns one number, or a list of them, as a list of floats.

    Raises:
      DataError: one is no number, infinite, not a number, or larger than 32-bit floats are.
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
    return abs(number) <= _LARGEST  # not a number is not


# Pictures.


_BRIGHTEST = 255


@dataclass(frozen=True)
class Image(Feature):
    """A picture of a fixed size; `[B, height, width, channels]` bytes in a batch.

    Attributes:
      height: pixels.
      width: pixels.
      channels: 1 for grey, 3 for red, green and blue.
    """

    is_image: ClassVar[bool] = True

    height: int
    width: int
    channels: int = 3

    @property
    def arrow_type(self) -> str:
        """A list of bytes."""
        return "list<uint8>"

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Rows, columns, channels."""
        return (self.height, self.width, self.channels)

    def encode(self, value: Any) -> Any:
        """Returns the bytes of an array of this shape, or of lists of numbers as JSON has them;
        DataError if it has another.
        """
        return pixels_of(value, self.shape).reshape(-1)

    def decode(self, ids: Iterable[int]) -> npt.NDArray[np.uint8]:
        """Returns the picture, [height, width, channels]."""
        pixels = np.fromiter((int(i) for i in ids), np.uint8)
        return pixels.reshape(self.height, self.width, self.channels)

    def encode_graph(self, name: str, inputs: InputGraph) -> str:
        """Returns the bytes as they are given.  [B, height, width, channels] uint8."""
        return inputs.input(name, "uint8", self.shape)

    def restore(self, name: str, features: Features, row: Row) -> Any:
        """Returns the picture as nested lists."""
        return self.decode(row[name]).tolist()

    def unusual_values(self) -> dict[str, Any]:
        """Returns pictures of one color."""
        named = {"a dark picture": 0, "a bright picture": _BRIGHTEST}
        shape = self.height, self.width, self.channels
        return {told: np.full(shape, pixel).tolist() for told, pixel in named.items()}

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the size in pixels."""
        shape = self.height, self.width, self.channels
        return InputSpec(name, "image", "uint8", shape=shape)

    @property
    def num_channels(self) -> int:
        """`channels`."""
        return self.channels

    def describe(self, name: str, features: Features, row: Row, limit: int) -> str:
        """Returns the size; reports show the picture itself."""
        return f"picture of {self.height} x {self.width} pixels"


def pixels_of(value: Any, shape: Sequence[int | None]) -> npt.NDArray[np.uint8]:
    """Returns a picture as an array.

    Args:
      value: an array of bytes, or lists of whole numbers from 0 to 255.
      shape: height, width, channels; a picture of one channel may leave that axis out.

    Raises:
      DataError: it has another shape, or holds something else.
    """
    try:
        pixels = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise DataError(
            f"a picture with rows of different lengths; {tuple(shape)} was expected."
        ) from None
    is_list = isinstance(value, list | tuple) and pixels.dtype.kind in "iu"
    if is_list and pixels.size and pixels.min() >= 0 and pixels.max() <= _BRIGHTEST:
        pixels = pixels.astype(np.uint8)
    height, width, channels = shape
    if pixels.shape not in ((height, width, channels), (height, width)) or pixels.dtype != np.uint8:
        raise DataError(
            f"a picture of {pixels.dtype} {pixels.shape}; uint8 {tuple(shape)} was expected, or "
            "lists of whole numbers from 0 to 255."
        )
    if pixels.ndim < len(shape) and channels != 1:
        raise DataError(f"a picture without channels, where {channels} were expected.")
    return pixels.reshape(height, width, channels)  # type: ignore[arg-type]
