"""Hyperparameters of models that read pictures; see `modalities/image.py`."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam import HParams
from t2t_torch.params import hp


class ImageHParams(HParams):
    """Pictures: scaling of pixels."""

    image_standardization: Literal["per_image", "per_channel", "imagenet", "range", "none"] = hp(
        "per_image",
        "Scaling of the bytes of a picture.  per_image: by its own mean and standard deviation; "
        "per_channel: by those of each of its channels; imagenet: by ImageNet's, of each channel; "
        "range: to -1 ... 1; none: 0 ... 255.",
        computes=True,
    )
