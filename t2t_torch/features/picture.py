"""Files of pictures: decoding within limits, encoding and scaling; tensor2tensor's scaling."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import DataError, require

_FIT = 0.875  # part of the shorter side that the centre keeps: 224 of 256
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
"""Decoders of Pillow that may read a file.  Others start programs (EPS) or are rarely tested."""


def pillow() -> Any:
    """Returns Pillow's module `Image`.

    Raises:
      DataError: Pillow is not installed.
    """
    return require("PIL.Image", "images", "pictures are read with Pillow", DataError)


@dataclass(frozen=True)
class PictureLimits:
    """Limits of a picture file.

    Decoding takes about 10 bytes of memory per pixel, and 20 for WebP.

    All limits are checked with the header of a file, before a pixel is decoded.

    Attributes:
      pixels: maximum of a picture; half of it for WebP, whose decoder holds four copies.  A JPEG
        of one scan may have more, up to the 179 million of Pillow: its decoder scales it down.
      side: maximum of height and width: rows have a cost of their own.
      scans: maximum of a JPEG: its decoder passes over the whole picture for each.
      spend: function called with the number of pixels before a picture is decoded; raises
        `DataError` if several pictures together have too many.
    """

    pixels: int = 50_000_000
    side: int = 65_535
    scans: int = 100
    spend: Callable[[int], None] = lambda pixels: None

    def check(self, picture: Any, file: bytes) -> None:
        """Raises DataError if a Pillow image, of which only the header was read, is too large.

        Args:
          picture: the image; a large JPEG is set to be decoded at 1/2 or 1/4 of its size.
          file: content of the file.
        """
        width, height = picture.size
        most, is_jpeg = self.pixels, picture.format in ("JPEG", "MPO")
        scans = _count_scans(file) if is_jpeg else 0
        if picture.format == "WEBP":
            most //= 2
        if scans > self.scans:
            raise DataError(f"a JPEG of {scans:,} scans; at most {self.scans} are decoded.")
        if scans == 1 and width * height > most:
            scale = 2 if width * height <= 4 * most else 4
            picture.draft(None, (width // scale, height // scale))
            width, height = picture.size
        if width * height > most or max(width, height) > self.side:
            raise DataError(
                f"a picture of {width:,} x {height:,} pixels; at most {most:,} pixels, and "
                f"{self.side:,} a side, are decoded. Scale it down:  mogrify -resize 1024x1024"
            )
        self.spend(width * height)


LIMITS = PictureLimits()


def decoded(
    file: bytes, channels: int = 0, limits: PictureLimits = LIMITS
) -> npt.NDArray[np.uint8]:
    """Returns the picture of a JPEG, PNG, GIF, WebP, BMP or TIFF file, [height, width, channels].

    Args:
      file: the bytes of the file.
      channels: 1 for greyscale, 3 for RGB; others are converted.  0: 1 if it is grey, else 3.
      limits: limits of the picture.

    Raises:
      DataError: it is no picture, damaged, cut off, or over the limits.
    """
    image = pillow()
    try:
        with image.open(io.BytesIO(file), formats=_FORMATS) as opened:
            limits.check(opened, file)
            if opened.format == "PNG":
                _check_rows(file)
            elif opened.format == "TIFF":
                _check_tiles(opened)
            return pixels_of_image(opened, channels)
    except image.UnidentifiedImageError:
        raise DataError(
            f"{len(file):,} bytes that are no picture; expected {', '.join(_FORMATS)}."
        ) from None
    except DataError:
        raise
    except Exception as error:  # decoders raise errors of many kinds
        why = str(error) or type(error).__name__
        raise DataError(f"a picture of {len(file):,} bytes cannot be decoded: {why}.") from None


_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_START, _SCAN, _END = 0xD8, 0xDA, 0xD9  # markers of a JPEG


def _count_scans(file: bytes) -> int:
    """Returns the number of scans of a JPEG."""
    scans, place = 0, 0
    while (found := _MARKER.search(file, place)) and found[1][0] != _END:
        place = found.end()
        if found[1][0] != _START:  # a segment with its length
            scans += found[1][0] == _SCAN
            place += int.from_bytes(file[place : place + 2], "big")
    return scans


_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of the colour types of a PNG
_WHOLE = ((0, 0, 1, 1),)
_ADAM7 = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)  # first column, first row, and distances of the columns and rows of each pass
_PIECE = 1 << 16


def _check_rows(file: bytes) -> None:
    """Raises ValueError if a PNG has fewer rows than its header says: Pillow adds black ones."""
    width, height = (int.from_bytes(file[at : at + 4], "big") for at in (16, 20))
    bits = file[24] * _CHANNELS[file[25]]
    expected = 0
    for left, top, right, down in _ADAM7 if file[28] else _WHOLE:
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        expected += rows * (1 + (columns * bits + 7) // 8) if columns > 0 else 0
    left_out, place, inflater = expected, 8, zlib.decompressobj()
    while left_out > 0 and place < len(file) and not inflater.eof:
        size, kind = int.from_bytes(file[place : place + 4], "big"), file[place + 4 : place + 8]
        end = min(place + 8 + size, len(file)) if kind == b"IDAT" else 0
        for at in range(place + 8, end, _PIECE):
            data = file[at : min(end, at + _PIECE)]
            while data and left_out > 0:
                left_out -= len(inflater.decompress(data, _PIECE))
                data = inflater.unconsumed_tail
        place += 12 + size
    if left_out > 0:
        raise ValueError(f"{1 - left_out / expected:.0%} of its rows are there")


def _check_tiles(picture: Any) -> None:
    """Raises ValueError if a TIFF has too few strips or tiles: Pillow leaves the others black."""
    covered = sum((right - left) * (low - high) for _, (left, high, right, low), *_ in picture.tile)
    if covered < picture.width * picture.height:
        raise ValueError(f"{covered / (picture.width * picture.height):.0%} of its rows are there")


_BAND_PIXELS = 1 << 20


def pixels_of_image(picture: Any, channels: int = 0) -> npt.NDArray[np.uint8]:
    """Returns the pixels of a Pillow image as programs show it, [height, width, channels].

    It is turned as its EXIF data describes, transparent parts are white, and values of 16 bits are
    scaled to 8.  It is converted in bands of rows: a copy of all would double the memory.

    Args:
      picture: the image.
      channels: see `decoded`.
    """
    picture.load()
    width, height = picture.size
    is_deep = picture.mode.startswith("I;") or (
        picture.mode == "I" and picture.getextrema()[1] > 255
    )
    rows = max(1, _BAND_PIXELS // max(1, width))
    bands = (picture.crop((0, y, width, min(height, y + rows))) for y in range(0, height, rows))
    shown = None
    for number, band in enumerate(bands):
        band = _as_shown(band, is_deep=is_deep)
        if channels:
            band = band.convert("L" if channels == 1 else "RGB")
        part = np.asarray(band, np.uint8).reshape(band.height, width, -1)
        if shown is None:
            shown = np.empty((height, width, part.shape[2]), np.uint8)
        shown[number * rows : number * rows + len(part)] = part
    if shown is None:
        raise ValueError("it has no rows")
    # Turned by the EXIF data of the picture; unchanged if those are damaged.
    try:
        turn = _TURNS.get(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # Pillow raises errors of many kinds
        return shown
    return turn(shown) if turn else shown


def _as_shown(picture: Any, *, is_deep: bool) -> Any:
    """Returns a Pillow image in the mode L or RGB.

    Args:
      picture: the image.
      is_deep: True if its integers have 16 bits.
    """
    image = pillow()
    if picture.mode.startswith("I"):  # 16 bits, in 16 or 32
        values = np.asarray(picture).astype(np.int64).clip(0, 65535)
        return image.fromarray(np.rint(values / 257 if is_deep else values).astype(np.uint8))
    if picture.mode == "1":
        return picture.convert("L")
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        colours = picture.convert("RGBA")
        white = image.new("RGBA", colours.size, "white")
        is_grey = picture.mode in ("L", "LA", "La")
        return image.alpha_composite(white, colours).convert("L" if is_grey else "RGB")
    return picture if picture.mode in ("L", "RGB") else picture.convert("RGB")


_ORIENTATION = 0x0112
_TURNS: dict[int, Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
    8: np.rot90,
}
"""Changes that show a picture as its EXIF orientation says."""


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
