"""Generated pictures: coloured shapes with a texture, on a background with another one.

Nothing is downloaded.  The class is the shape; its colours, size, place, angle and textures are
random, so that colours alone tell nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from t2t_torch.mode import Split
from t2t_torch.problem_types.images import Image2ClassProblem
from t2t_torch.registry import register_problem

_SIDE = 32
_COUNTS = {Split.TRAIN: 10_000, Split.EVAL: 2_000}
_SEEDS = {Split.TRAIN: 1, Split.EVAL: 2}
_LABELS = ("disk", "ring", "square", "frame", "triangle", "cross", "star", "bars", "moon", "heart")


@register_problem("image_shapes")
class ImageShapes(Image2ClassProblem):
    """Classifies shapes of 32 x 32 pixels: 10,000 to train on, 2,000 to evaluate."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 2, Split.EVAL: 1}
    height = _SIDE
    width = _SIDE
    channels = 3
    class_labels = _LABELS
    augmentation = ("crop:4", "flip")

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields pictures, the classes by turns."""
        rng = np.random.default_rng(_SEEDS[split])
        for number in range(_COUNTS[split]):
            label = _LABELS[number % len(_LABELS)]
            yield {"inputs": _picture(label, rng), "targets": label}


def _picture(label: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Returns a picture of a shape, [32, 32, 3]."""
    grid = (np.arange(_SIDE) - _SIDE / 2 + 0.5) / (_SIDE / 2)
    y, x = np.meshgrid(grid, grid, indexing="ij")
    size, angle = rng.uniform(0.35, 0.75), rng.uniform(-0.6, 0.6)
    left, up = rng.uniform(-0.3, 0.3, 2)
    x, y = x - left, y - up
    turned_x = (x * math.cos(angle) + y * math.sin(angle)) / size
    turned_y = (y * math.cos(angle) - x * math.sin(angle)) / size
    inside = _inside(label, turned_x, turned_y)[..., None]
    shape, ground = _texture(rng), _texture(rng)
    pixels = np.where(inside, shape, ground) + rng.normal(0, 12, (_SIDE, _SIDE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _texture(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Returns waves between two random colours, [32, 32, 3]."""
    first, second = rng.uniform(0, 255, (2, 3))
    grid = np.arange(_SIDE)
    across, down = rng.uniform(-1.2, 1.2, 2)
    phase = rng.uniform(0, 2 * math.pi)
    wave = 0.5 + 0.5 * np.sin(grid[:, None] * down + grid * across + phase)
    strength = rng.uniform(0.1, 0.6)
    mixed: npt.NDArray[np.float64] = first + (second - first) * strength * wave[..., None]
    return mixed


def _inside(
    label: str, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Returns where a shape is, in coordinates from -1 to 1 within it."""
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    widest = np.maximum(np.abs(x), np.abs(y))
    shapes = {
        "disk": radius < 0.9,
        "ring": (radius < 1) & (radius > 0.6),
        "square": widest < 0.8,
        "frame": (widest < 0.9) & (widest > 0.55),
        "triangle": (y < 0.7) & (y > 2 * np.abs(x) - 0.9),
        "cross": (np.minimum(np.abs(x), np.abs(y)) < 0.28) & (widest < 1),
        "star": radius < 0.65 + 0.35 * np.cos(5 * angle),
        "bars": (widest < 0.95) & (np.abs(np.abs(y) - 0.55) < 0.25),
        "moon": (radius < 1) & (np.hypot(x - 0.5, y) > 0.8),
        "heart": (x**2 + y**2 - 0.6) ** 3 + 1.6 * x**2 * y**3 < 0,
    }
    result: npt.NDArray[np.bool_] = shapes[label]
    return result
