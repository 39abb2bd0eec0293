"""Feature of images: bytes of pixels, or files that are decoded when an example is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError
from t2t_torch.features.feature import Feature, Features, InputSpec
from t2t_torch.features.picture import LIMITS, PictureLimits, center_fit, decoded, encoded
from t2t_torch.features.real import num_channels
from t2t_torch.features.text import Text
from t2t_torch.files import file_content
from t2t_torch.text.encoder import EOS, NUM_RESERVED, IntegerEncoder, TextEncoder, content

_BRIGHTEST = 255


@dataclass(frozen=True)
class Image(Feature):
    """An image of a fixed size; `[B, height, width, channels]` bytes in a batch.

    Attributes:
      height: height in pixels.
      width: width in pixels.
      channels: 1 for grey, 3 for red, green and blue.
      is_file: True to store a file of any size, such as a JPEG, and to decode it when an example is
        read: the centre is scaled to `height` and `width`.
    """

    arrow_type: ClassVar[str] = "list<uint8>"

    height: int
    width: int
    channels: int = 3
    is_file: bool = False

    def opened(self, stored: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Returns the pixels of a stored file, in its own size; DataError if it is damaged."""
        return decoded(stored.astype(np.uint8).tobytes(), self.channels)

    def fitted(self, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the centre of a picture, scaled to the size of the feature."""
        return center_fit(value, (self.height, self.width)) if value.ndim == 3 else value

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Rows, columns, channels."""
        return (self.height, self.width, self.channels)

    def encode(self, value: Any) -> Any:
        """Returns the bytes of a picture, or if `is_file` those of a file with it.

        Args:
          value: array, nested lists of numbers as in JSON, or a picture file: its path
            (`pathlib.Path`), its content (bytes, or as a base64 text).  The centre of a file's
            picture is scaled to the size of the feature.

        Raises:
          DataError: the shape is different, there is no such file, or it is no picture.  With
            `is_file` bytes are not checked here.
        """
        if not self.is_file:
            return pixels_of(value, self.shape).reshape(-1)
        if isinstance(value, str | Path):
            value = file_content(value, "picture")
            decoded(value, self.channels)
        if not isinstance(value, bytes):
            shape = np.shape(value)
            size = shape[:2] if len(shape) in (2, 3) and 0 not in shape else self.shape[:2]
            value = encoded(pixels_of(value, (*size, self.channels)))
        return np.frombuffer(value, np.uint8)

    def decode(self, ids: Iterable[int]) -> npt.NDArray[np.uint8]:
        """Returns the image, [height, width, channels]."""
        pixels = np.fromiter((int(i) for i in ids), np.uint8)
        if self.is_file:
            return self.fitted(self.opened(pixels))
        return pixels.reshape(self.height, self.width, self.channels)

    def input_spec(self, name: str, features: Features) -> InputSpec:
        """Returns the size in pixels."""
        shape = self.height, self.width, self.channels
        return InputSpec(name, "image", "uint8", shape=shape)


@num_channels.register
def _(feature: Image) -> int:
    return 0 if feature.is_file else feature.channels  # the bytes of a file are no pixels


@dataclass(frozen=True)
class PixelSequence(Text):
    """An image that a model generates: a text of numbers from 0 to 255, as in "255 0 0 255 0 0".

    They are ordered by rows, then pixels, then channels.  As in any text ids are from 2 on, and
    `EOS` follows: `[B, height * width * channels + 1]` in a batch.

    Attributes:
      height: height in pixels.
      width: width in pixels.
      channels: 1 for grey, 3 for red, green and blue.
    """

    encoder: TextEncoder = field(default_factory=lambda: IntegerEncoder(_BRIGHTEST + 1))
    height: int = 1
    width: int = 1
    channels: int = 3

    @property
    def size(self) -> int:
        """The number of values of an image."""
        return self.height * self.width * self.channels

    def encode_batch(self, values: Sequence[Any]) -> list[list[int]]:
        """Returns the ids of images: arrays, nested lists, or texts of numbers.

        Raises:
          DataError: the shape is different, or a number is not from 0 to 255.
        """
        texts = [value for value in values if isinstance(value, str)]
        encoded = iter(super().encode_batch(texts))
        shape = (self.height, self.width, self.channels)
        return [
            next(encoded)
            if isinstance(value, str)
            else [*(pixels_of(value, shape).reshape(-1).astype(int) + NUM_RESERVED).tolist(), EOS]
            for value in values
        ]

    def pixels(self, numbers: Iterable[int]) -> npt.NDArray[np.uint8]:
        """Returns the image of ids, [height, width, channels]; missing pixels are black."""
        pixels = np.zeros(self.size, np.uint8)
        ids = content(numbers)[: self.size]
        pixels[: len(ids)] = np.asarray(ids, np.int64) - NUM_RESERVED
        return pixels.reshape(self.height, self.width, self.channels)


def pixels_of(
    value: Any, shape: Sequence[int | None], limits: PictureLimits = LIMITS
) -> npt.NDArray[np.uint8]:
    """Returns an image as an array.

    Args:
      value: array of bytes, nested lists of integers from 0 to 255, or a picture file, see
        `Image.encode`.
      shape: height, width, channels; the last axis is optional for a single channel.
      limits: limits of a picture file.

    Raises:
      DataError: the shape is different, or a value is not a byte.
    """
    height, width, channels = shape
    if isinstance(value, str | bytes | Path):
        picture = decoded(file_content(value, "picture"), channels or 1, limits)
        return center_fit(picture, (height or picture.shape[0], width or picture.shape[1]))
    try:
        pixels = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise DataError(
            f"a picture with rows of different lengths; {tuple(shape)} was expected."
        ) from None
    is_list = isinstance(value, list | tuple) and pixels.dtype.kind in "iu"
    if is_list and pixels.size and pixels.min() >= 0 and pixels.max() <= _BRIGHTEST:
        pixels = pixels.astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise DataError(
            f"a picture of {pixels.dtype} {pixels.shape}; expected uint8 {tuple(shape)}, or lists "
            "of whole numbers from 0 to 255."
        )
    if pixels.shape not in ((height, width, channels), (height, width)):
        raise DataError(
            f"a picture of the shape {pixels.shape}; expected {tuple(shape)}: height, width and "
            "channels. The picture of a file is scaled."
        )
    if pixels.ndim < len(shape) and channels != 1:
        raise DataError(f"a picture without channels, where {channels} were expected.")
    return pixels.reshape(height, width, channels)  # type: ignore[arg-type]
