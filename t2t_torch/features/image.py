"""Pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature

_BRIGHTEST = 255


@dataclass(frozen=True)
class Image(Feature):
    """A picture of a fixed size; `[B, height, width, channels]` bytes in a batch.

    Attributes:
      height: pixels.
      width: pixels.
      channels: 1 for grey, 3 for red, green and blue.
    """

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
