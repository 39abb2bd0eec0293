"""Text classifier: convolutions over words.

Kim 2014, "Convolutional Neural Networks for Sentence Classification", arXiv:1408.5882.
"""

from __future__ import annotations

from typing import Any

import torch

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.text_cnn import TextCnnHParams
from t2t_torch.layers.convolution import TextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.tokens import Tokens, beside_dense, dense_of, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_SLACK = 1e-5  # relative tolerance: avoids rescaling because of rounding


@register_model
class TextCnn(T2TModel):
    """Max-pooled convolutions, dropout, and a softmax with bounded weight norms."""

    HParams = TextCnnHParams
    hparams: TextCnnHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: TextCnnHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        self.tokens = Tokens(features, hparams, self._text)
        self.convolution = TextConvolution(
            self.tokens.size, hparams.kernel_sizes, hparams.num_filters, padded=hparams.pad_windows
        )
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the number of filters plus the width of dense inputs."""
        filters = len(hparams.kernel_sizes) * int(hparams.num_filters)
        return filters + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector for each target, [B, H]."""
        found = self.convolution(self.tokens(features), features[self._text].mask)
        found = self.dropout(beside_dense(found, self._dense, features))
        return dict.fromkeys(self.features.targets, Hidden(found))

    @torch.no_grad()
    def after_step(self) -> None:
        """Scales down the softmax weights of each class whose norm is above `max_norm`."""
        limit = self.hparams.max_norm
        for name in self.features.targets if limit else ():
            weight = self.modality(name).top.get_parameter("weight")  # [C, H]
            norm = weight.norm(dim=1, keepdim=True)
            weight.mul_(torch.where(norm > limit * (1 + _SLACK), limit / norm, 1.0))
