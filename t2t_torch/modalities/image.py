"""Pictures, cut into squares.  Dosovitskiy et al. 2021, arXiv:2010.11929."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Image
from t2t_torch.hparam import HParams
from t2t_torch.modality import Modality

_SIDES = (7, 8, 4, 5, 6)  # of a square in pixels, the best first, of those that divide the picture


class Patches(nn.Module):
    """A vector for each square of a picture, with one learnt for its place.

    Args:
      feature: the picture's size.
      hidden_size: H.
    """

    def __init__(self, feature: Image, hidden_size: int) -> None:
        super().__init__()
        fits = [s for s in _SIDES if feature.height % s == 0 and feature.width % s == 0]
        if not fits:
            raise HParamsError(
                f"a picture of {feature.height} x {feature.width} pixels cannot be cut into "
                f"squares of {', '.join(map(str, sorted(_SIDES)))} pixels. Resize it."
            )
        self.side = fits[0]
        self.projection = nn.Linear(self.side**2 * feature.channels, hidden_size)
        self.num_patches = feature.height * feature.width // self.side**2
        self.place = nn.Parameter(torch.randn(self.num_patches, hidden_size) * hidden_size**-0.5)

    def forward(self, pixels: Tensor) -> Tensor:
        """[B, height, width, channels] bytes -> [B, P, H]; pixels are scaled to -1 ... 1."""
        scaled = pixels.to(self.place.dtype) / 127.5 - 1.0
        squares = scaled.unfold(1, self.side, self.side).unfold(2, self.side, self.side)
        flat = squares.flatten(1, 2).flatten(2)  # [B, P, channels * side * side]
        return self.projection(flat) + self.place


class ImageModality(Modality):
    """A picture, as a sequence of its squares: [B, P, H].  An input only.

    Args:
      bottom: cuts it.
    """

    serves = Image

    def __init__(self, bottom: Patches) -> None:
        super().__init__()
        self.bottom = bottom

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Makes it for an input."""
        if is_target:
            raise HParamsError("an Image can be an input, but no target.")
        return cls(Patches(feature, hparams.hidden_size))

    def mask(self, values: Tensor) -> Tensor:
        """Returns True for each square.  -> [B, P] bool."""
        patches = self.bottom.num_patches  # type: ignore[union-attr]
        return torch.ones(values.size(0), int(patches), dtype=torch.bool, device=values.device)
