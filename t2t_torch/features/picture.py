"""Files of pictures: decoding, encoding and scaling with Pillow, and tensor2tensor's scaling."""

from __future__ import annotations

import base64
import io
import reprlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, install_extra

_FIT = 0.875  # part of the shorter side that the centre keeps: 224 of 256


def pillow() -> Any:
    """Returns Pillow's module `Image`.

    Raises:
      DataError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"Pictures are read with Pillow:  {install_extra('images')}") from None
    return Image


_MOST_PIXELS = 50_000_000


def content_of(value: str | bytes | Path) -> bytes:
    """Returns the bytes of a picture file.

    Args:
      value: its path, its content, or its content as base64, also after `data:image/...;base64,`.

    Raises:
      DataError: the file cannot be read, or the text is no base64.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, Path):
        try:
            return value.read_bytes()
        except OSError as error:
            raise DataError(f"{value}: {error.strerror}.") from None
    try:
        return base64.b64decode(value.rpartition(",")[2].encode("ascii"), validate=True)
    except ValueError:
        raise DataError(
            f"{reprlib.repr(value)} is no picture: expected rows of pixels, or the content of a "
            "picture file in base64. In Python a file is given as pathlib.Path(...)."
        ) from None


def decoded(file: bytes, channels: int) -> npt.NDArray[np.uint8]:
    """Returns the picture of a JPEG, PNG or other file, [height, width, channels].

    Args:
      file: the bytes of the file.
      channels: 1 for greyscale, 3 for RGB; others are converted.

    Raises:
      DataError: it is no picture, or damaged.
    """
    image = pillow()
    try:
        with image.open(io.BytesIO(file)) as opened:
            if opened.width * opened.height > _MOST_PIXELS:
                raise ValueError(f"{opened.width} x {opened.height} pixels are too many")
            picture = opened.convert("L" if channels == 1 else "RGB")
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise DataError(f"a picture of {len(file):,} bytes cannot be decoded: {error}.") from None
    return np.asarray(picture, np.uint8).reshape(picture.height, picture.width, channels)


def encoded(picture: npt.NDArray[np.uint8]) -> bytes:
    """Returns a picture [height, width, channels] as a PNG file."""
    file = io.BytesIO()
    pixels = picture[..., 0] if picture.shape[2] == 1 else picture
    pillow().fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def resized(picture: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Returns a picture scaled to (height, width), bicubic with antialiasing."""
    height, width, channels = picture.shape
    if (height, width) == size:
        return picture
    image = pillow()
    pixels = np.ascontiguousarray(picture[..., 0] if channels == 1 else picture)
    scaled = image.fromarray(pixels).resize((size[1], size[0]), image.Resampling.BICUBIC)
    return np.asarray(scaled, np.uint8).reshape(*size, channels)


def center_fit(picture: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Returns the centre of a picture, scaled to (height, width).

    The centre is 7/8 of the picture, as in the usual evaluation on ImageNet; a picture that has the
    size already is returned unchanged.
    """
    height, width, _ = picture.shape
    if (height, width) == size:
        return picture
    factor = min(height / size[0], width / size[1]) * _FIT
    high, wide = max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
    row, column = (height - high) // 2, (width - wide) // 2
    return resized(picture[row : row + high, column : column + wide], size)


def resize_by_area(picture: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Returns a picture scaled to a square by the mean of each area, rounded down.

    tensor2tensor's `resize_by_area`.

    Args:
      picture: [height, width, channels].
      size: side of the result.
    """
    rows, columns = (_areas(side, size) for side in picture.shape[:2])
    values = np.einsum("ih,hwc,jw->ijc", rows, picture.astype(np.float64), columns)
    scaled: npt.NDArray[np.uint8] = np.floor(values + 1e-6).astype(np.uint8)
    return scaled


def _areas(side: int, size: int) -> npt.NDArray[np.float64]:
    """Returns the part of each old pixel in each new one.  [size, side]."""
    edges = np.arange(size + 1) * (side / size)
    pixels = np.arange(side)
    parts = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    shares: npt.NDArray[np.float64] = np.clip(parts, 0, None) * (size / side)
    return shares
