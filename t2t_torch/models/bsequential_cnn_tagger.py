"""Tagger: convolutions over the left and the right context of each word.

Vu 2016, "Sequential Convolutional Neural Networks for Slot Filling in Spoken Language
Understanding", arXiv:1606.07783.  As in PyText the scores are trained as logits; the paper's own
loss is a ranking one.
"""

from __future__ import annotations

from typing import Any

from t2t_torch.features import Features, Real, Tags, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bsequential_cnn_tagger import BsequentialCnnTaggerHParams
from t2t_torch.layers.convolution import ContextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.tokens import Tokens, WordOutputs, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class BsequentialCnnTagger(T2TModel):
    """Predicts the tag of a word from the words before, after and around it."""

    HParams = BsequentialCnnTaggerHParams
    hparams: BsequentialCnnTaggerHParams
    produces = (Tags,)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: BsequentialCnnTaggerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (text,) = texts_of(features)
        self.tokens = Tokens(features, hparams, text)
        self.outputs = WordOutputs(features, text)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.convolution = ContextConvolution(self.tokens.size, hparams)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of the three convolutions and of dense inputs."""
        return 3 * int(hparams.hidden_size) + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the convolutions at the first id of each word.  [B, W, 3 H]."""
        hidden = self.convolution(self.dropout(self.tokens(features)))
        words = self.outputs.at_words(self.dropout(hidden), features)
        return self.outputs(words, features)
