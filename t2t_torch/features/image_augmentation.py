"""Random changes of training pictures: crops, flips, cutout, RandAugment.

Pure functions of a picture and a generator, on bytes.  `parse` reads the names of a problem's
`augmentation` or of the hparam `image_augmentation`, for example `("crop:4", "flip")`.

An operation of RandAugment is a function of a picture, a level from 0 to 3, and a sign.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from t2t_torch.errors import UsageError
from t2t_torch.features.picture import pillow, resized

Picture: TypeAlias = npt.NDArray[np.uint8]
"""Bytes, [height, width, channels]."""

Change: TypeAlias = Callable[[Picture, np.random.Generator], Picture]

_LEVELS = 10.0  # magnitude of RandAugment at which its operations are strongest but one
_ATTEMPTS = 10


def crop(picture: Picture, rng: np.random.Generator, padding: float = 4) -> Picture:
    """Returns a part of the picture, padded with zeros, at a random place.

    With 4 pixels it is tensor2tensor's `cifar_image_augmentation`.

    Args:
      picture: the picture.
      rng: generator.
      padding: pixels on each side.
    """
    size = int(padding)
    row, column = rng.integers(2 * size + 1, size=2)
    height, width, _ = picture.shape
    padded: Picture = np.pad(picture, ((size, size), (size, size), (0, 0)))
    return padded[row : row + height, column : column + width]


def flip(picture: Picture, rng: np.random.Generator) -> Picture:
    """Returns the picture or its mirror image, left and right exchanged."""
    return picture[:, ::-1] if rng.random() < 0.5 else picture


def shift(picture: Picture, rng: np.random.Generator, share: float = 0.1) -> Picture:
    """Returns the picture moved by up to `share` of its sides; zeros fill the rest.

    tensor2tensor's `random_shift`, in whole pixels.
    """
    height, width, _ = picture.shape
    down = round(float(rng.uniform(-share, share)) * height)
    right = round(float(rng.uniform(-share, share)) * width)
    return _moved(picture, down, right)


def _moved(picture: Picture, down: int, right: int) -> Picture:
    """Returns the picture moved by pixels; zeros fill the rest."""
    height, width, _ = picture.shape
    result = np.zeros_like(picture)
    rows = slice(max(down, 0), min(height + down, height))
    columns = slice(max(right, 0), min(width + right, width))
    result[rows, columns] = picture[
        max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
    ]
    return result


def cutout(picture: Picture, rng: np.random.Generator, size: float = 16) -> Picture:
    """Returns the picture with its mean colour in a square, which may reach over the edge.

    DeVries and Taylor 2017, arXiv:1708.04552.

    Args:
      picture: the picture.
      rng: generator.
      size: side of the square in pixels; 16 for CIFAR-10, 8 for CIFAR-100.
    """
    height, width, _ = picture.shape
    row, column = rng.integers(height), rng.integers(width)
    above, left = row - int(size) // 2, column - int(size) // 2
    result: Picture = picture.copy()
    mean = picture.mean((0, 1)).round()
    result[max(above, 0) : above + int(size), max(left, 0) : left + int(size)] = mean
    return result


def resized_crop(
    picture: Picture,
    rng: np.random.Generator,
    least: float = 0.08,
    *,
    size: tuple[int, int] | None = None,
) -> Picture:
    """Returns a random part of random shape, scaled to the size of the problem's pictures.

    Szegedy et al. 2015, arXiv:1409.4842, as torchvision and tensor2tensor have it: a part of
    `least` to 1 of the area, of a ratio of 3/4 to 4/3; after 10 attempts the centre.

    Args:
      picture: the picture, of any size.
      rng: generator.
      least: smallest part of the area.
      size: height and width of the result; by default those of `picture`.
    """
    height, width, _ = picture.shape
    size = size or (height, width)
    for _ in range(_ATTEMPTS):
        area = float(rng.uniform(least, 1.0)) * height * width
        ratio = math.exp(float(rng.uniform(math.log(3 / 4), math.log(4 / 3))))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            row = int(rng.integers(height - high + 1))
            column = int(rng.integers(width - wide + 1))
            return resized(picture[row : row + high, column : column + wide], size)
    side = min(height, width)
    row, column = (height - side) // 2, (width - side) // 2
    return resized(picture[row : row + side, column : column + side], size)


def rand_augment(
    picture: Picture, rng: np.random.Generator, count: float = 2, magnitude: float = 9
) -> Picture:
    """Returns the picture after random operations.  Cubuk et al. 2020, arXiv:1909.13719.

    The 14 operations of the paper, computed by Pillow.  A picture of one channel has no colours:
    the operation of colours leaves it as it is.

    Args:
      picture: the picture.
      rng: generator.
      count: number of operations, the paper's N.
      magnitude: strength of each, the paper's M, from 0 to 30; 10 is its scale.
    """
    level = magnitude / _LEVELS
    for number in rng.integers(len(_OPERATIONS), size=int(count)):
        sign = 1.0 if rng.random() < 0.5 else -1.0
        picture = _OPERATIONS[number](picture, level, sign)
    return picture


def _by_pillow(picture: Picture, change: Callable[[Any], Any]) -> Picture:
    from PIL import Image

    pixels = picture[..., 0] if picture.shape[2] == 1 else picture
    changed = change(Image.fromarray(np.ascontiguousarray(pixels)))
    return np.asarray(changed, np.uint8).reshape(picture.shape)


def _operation(picture: Picture, level: float, sign: float, *, name: str) -> Picture:
    """Applies an operation of `PIL.ImageOps` without a strength."""
    from PIL import ImageOps

    return _by_pillow(picture, getattr(ImageOps, name))


def _enhanced(picture: Picture, level: float, sign: float, *, name: str) -> Picture:
    """Applies an operation of `PIL.ImageEnhance`: a factor of 0.1 to 1.9 at level 1."""
    from PIL import ImageEnhance

    if name == "Color" and picture.shape[2] == 1:
        return picture
    factor = max(0.0, 1.0 + 0.9 * level * sign)
    return _by_pillow(picture, lambda one: getattr(ImageEnhance, name)(one).enhance(factor))


def _affine(picture: Picture, matrix: tuple[float, ...]) -> Picture:
    from PIL import Image

    height, width, _ = picture.shape
    return _by_pillow(
        picture, lambda one: one.transform((width, height), Image.Transform.AFFINE, matrix)
    )


def _translate(picture: Picture, level: float, sign: float, *, axis: int) -> Picture:
    side = picture.shape[axis]
    distance = int(sign) * min(round(0.3 * level * side), side)
    return _moved(picture, distance * (axis == 0), distance * (axis == 1))


def _solarize(picture: Picture, level: float, sign: float) -> Picture:
    threshold = 256 * (1.0 - min(level, 1.0))
    return np.where(picture < threshold, picture, 255 - picture).astype(np.uint8)


def _posterize(picture: Picture, level: float, sign: float) -> Picture:
    dropped = min(int(4 * level), 7)  # 8 bits to 4 at level 1
    return (picture >> dropped << dropped).astype(np.uint8)


_OPERATIONS: Sequence[Callable[[Picture, float, float], Picture]] = (
    lambda picture, level, sign: picture,
    functools.partial(_operation, name="autocontrast"),
    functools.partial(_operation, name="equalize"),
    lambda picture, level, sign: _by_pillow(picture, lambda one: one.rotate(30.0 * level * sign)),
    _solarize,
    functools.partial(_enhanced, name="Color"),
    _posterize,
    functools.partial(_enhanced, name="Contrast"),
    functools.partial(_enhanced, name="Brightness"),
    functools.partial(_enhanced, name="Sharpness"),
    lambda picture, level, sign: _affine(picture, (1, 0.3 * level * sign, 0, 0, 1, 0)),
    lambda picture, level, sign: _affine(picture, (1, 0, 0, 0.3 * level * sign, 1, 0)),
    functools.partial(_translate, axis=1),
    functools.partial(_translate, axis=0),
)


class _Number(NamedTuple):
    """A number that a change takes.

    Attributes:
      least: smallest value.
      most: greatest value; None: the shorter side of the picture.
      is_whole: True if it counts something.
    """

    least: float
    most: float | None
    is_whole: bool = True

    def fits(self, value: float, side: int) -> bool:
        """Returns True if a value is possible for pictures of that shorter side."""
        most = side if self.most is None else self.most
        return self.least <= value <= most and (value.is_integer() or not self.is_whole)


_CHANGES: dict[str, tuple[Callable[..., Picture], Sequence[_Number]]] = {
    "crop": (crop, [_Number(0, None)]),
    "flip": (flip, []),
    "shift": (shift, [_Number(0, 1, is_whole=False)]),
    "cutout": (cutout, [_Number(0, None)]),
    "resized_crop": (resized_crop, [_Number(0.001, 1, is_whole=False)]),
    "rand_augment": (rand_augment, [_Number(0, 100), _Number(0, 30, is_whole=False)]),
}
"""Changes by name, with the numbers that each takes."""

_OF_ANY_SIZE = ("flip", "resized_crop")


def fits_first(names: Sequence[str]) -> bool:
    """Returns True if a picture file has to be fitted to the problem's size before the changes.

    A part of random shape is cut from the whole file; all else counts pixels of the result.

    Args:
      names: as in `parse`.
    """
    changes = [name.partition(":")[0] for name in names]
    before = list(itertools.takewhile(_OF_ANY_SIZE.__contains__, changes))
    return "resized_crop" not in before


def parse(names: Sequence[str], size: tuple[int, int]) -> Sequence[Change]:
    """Returns the changes of the given names, such as "flip" or "cutout:16".

    Args:
      names: names, each with numbers after colons; "none" is no change.
      size: height and width of the problem's pictures.

    Raises:
      UsageError: there is no such change, or it takes other numbers.
      DataError: it needs Pillow, which is not installed.
    """
    changes: list[Change] = []
    for text in names:
        name, *values = text.split(":")
        if name == "none" and not values:
            continue
        function, possible = _CHANGES.get(name, (None, ()))
        try:
            numbers = [float(value) for value in values]
        except ValueError:
            numbers = [-1.0]
        good = len(numbers) <= len(possible) and all(
            one.fits(value, min(size)) for one, value in zip(possible, numbers, strict=False)
        )
        if function is None or not good:
            known = ", ".join(name + ":N" * len(of) for name, (_, of) in _CHANGES.items())
            raise UsageError(
                f"image_augmentation: there is no {text!r} for pictures of {size[0]} x {size[1]} "
                f"pixels; expected none, or names of {known}, where each N may be left out, as in "
                "[crop:4,flip,cutout:8]. crop and cutout: whole pixels; shift: a share of the "
                "sides, 0 to 1; resized_crop: the smallest part, up to 1; rand_augment: a number "
                "of operations and a strength of 0 to 30."
            )
        if name in ("rand_augment", "resized_crop"):
            pillow()
        given = dict(zip(list(inspect.signature(function).parameters)[2:], numbers, strict=False))
        of_size = {"size": size} if name == "resized_crop" else {}
        changes.append(functools.partial(function, **given, **of_size))
    return changes
