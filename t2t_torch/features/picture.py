"""Files of pictures: decoding, encoding and scaling with Pillow, and tensor2tensor's scaling."""

from __future__ import annotations

import io
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
            picture = as_shown(opened).convert("L" if channels == 1 else "RGB")
    except image.UnidentifiedImageError:
        raise DataError(f"{len(file):,} bytes that are no picture.") from None
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise DataError(f"a picture of {len(file):,} bytes cannot be decoded: {error}.") from None
    return np.asarray(picture, np.uint8).reshape(picture.height, picture.width, channels)


def as_shown(picture: Any) -> Any:
    """Returns a Pillow image in the mode L or RGB, as programs show it.

    It is turned as its EXIF data describes, transparent parts are white, and values of 16 bits are
    scaled to 8.

    Raises:
      OSError, ValueError, SyntaxError: it is damaged, or has too many pixels.
    """
    if picture.width * picture.height > _MOST_PIXELS:
        raise ValueError(f"{picture.width} x {picture.height} pixels are too many")
    image = pillow()
    picture = _turned(picture)
    if picture.mode.startswith("I"):  # 16 bits, in 16 or 32
        values = np.asarray(picture).astype(np.int64).clip(0, 65535)
        is_deep = picture.mode != "I" or values.max() > 255
        return image.fromarray(np.rint(values / 257 if is_deep else values).astype(np.uint8))
    if picture.mode == "1":
        return picture.convert("L")
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        colours = picture.convert("RGBA")
        white = image.new("RGBA", colours.size, "white")
        is_grey = picture.mode in ("L", "LA", "La")
        return image.alpha_composite(white, colours).convert("L" if is_grey else "RGB")
    return picture if picture.mode in ("L", "RGB") else picture.convert("RGB")


def _turned(picture: Any) -> Any:
    """Returns a picture turned by its EXIF data; unchanged if those are damaged."""
    from PIL import ImageOps

    picture.load()  # raises the errors of the picture itself
    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # Pillow raises errors of many kinds
        return picture


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
