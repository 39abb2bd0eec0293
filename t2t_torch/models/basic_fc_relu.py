"""Fully connected layers with ReLU on the pixels of a picture.

tensor2tensor, models/basic.py.
"""

from __future__ import annotations

import itertools
import math

from torch import nn
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Features, Image, MultiLabel, Real, SoftLabel
from t2t_torch.hparams.basic_fc_relu import BasicFcReluHParams
from t2t_torch.layers.convolution import only_image
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class BasicFcRelu(T2TModel):
    """Fully connected layers with ReLU."""

    HParams = BasicFcReluHParams
    hparams: BasicFcReluHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Image,)
    texts = (0, 0)

    def __init__(self, hparams: BasicFcReluHParams, features: Features) -> None:
        super().__init__(hparams, features)
        sizes = [_size_of(features), *[hparams.hidden_size] * hparams.num_hidden_layers]
        self.layers = nn.ModuleList(itertools.starmap(nn.Linear, itertools.pairwise(sizes)))
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: BasicFcReluHParams, features: Features, target: str) -> int:
        """Returns the width of the last layer, that of the pixels without layers."""
        return hparams.hidden_size if hparams.num_hidden_layers else _size_of(features)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the output of the last layer, [B, H], for each target."""
        (name,) = self.features.inputs
        x = features[name].embedded.flatten(1)  # [B, height * width * channels]
        for layer in self.layers:
            x = F.relu(self.dropout(layer(x)))
        return dict.fromkeys(self.features.targets, Hidden(x))


def _size_of(features: Features) -> int:
    """Returns the number of values of the picture."""
    return math.prod(size or 1 for size in only_image(BasicFcRelu.name, features).shape)
