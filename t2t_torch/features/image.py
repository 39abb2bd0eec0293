"""Pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature


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
        """Returns the bytes of an array of this shape; DataError if it has another."""
        pixels = np.asarray(value)
        if pixels.shape not in (self.shape, self.shape[:2]) or pixels.dtype != np.uint8:
            raise DataError(
                f"a picture of {pixels.dtype} {pixels.shape}; uint8 {self.shape} was expected."
            )
        if pixels.size != np.prod([self.height, self.width, self.channels]):
            raise DataError(f"a picture without channels, where {self.channels} were expected.")
        return pixels.reshape(-1)

    def decode(self, ids: Iterable[int]) -> npt.NDArray[np.uint8]:
        """Returns the picture, [height, width, channels]."""
        pixels = np.fromiter((int(i) for i in ids), np.uint8)
        return pixels.reshape(self.height, self.width, self.channels)
