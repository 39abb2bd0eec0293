"""Joint sentence classifier and tagger: convolutions only.

Of PyText, Aly et al. 2018, arXiv:1812.08729: the filters of Kim 2014, arXiv:1408.5882, for the
sentence, and those of Vu 2016, arXiv:1606.07783, for each word.  Max pooling excludes padding.
"""

from __future__ import annotations

from typing import Any

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Tags, Text
from t2t_torch.features.feature import select_sequences
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.joint_cnn import JointCnnHParams
from t2t_torch.layers.convolution import ContextConvolution, TextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.tokens import (
    Tokens,
    WordOutputs,
    beside_dense,
    dense_of,
    dense_width,
    texts_of,
)
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class JointCnn(T2TModel):
    """Predicts classes from max-pooled filters, tags from the filters around a word."""

    HParams = JointCnnHParams
    hparams: JointCnnHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real, Tags)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: JointCnnHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        self._of_words = list(select_sequences(features.targets))
        self._of_all = [name for name in features.targets if name not in self._of_words]
        self.tokens = Tokens(features, hparams, self._text)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        if self._of_all:
            self.of_all = TextConvolution(
                self.tokens.size, hparams.sentence_kernel_sizes, hparams.num_filters
            )
        self.outputs = WordOutputs(features, self._text, self._of_words)
        if self._of_words:
            self.of_words = ContextConvolution(self.tokens.size, hparams)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of the convolutions and of dense inputs."""
        if target in select_sequences(features.targets):
            width = 3 * int(hparams.hidden_size)
        else:
            width = len(hparams.sentence_kernel_sizes) * int(hparams.num_filters)
        return width + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns a vector of the sentence, [B, H'], and of each word, [B, W, H']."""
        x = self.dropout(self.tokens(features))  # [B, S, E]
        found: dict[str, Hidden] = {}
        if self._of_all:
            mask = features[self._text].mask
            whole = self.dropout(self.of_all(x, mask))
            whole = beside_dense(whole, self._dense, features)
            found |= dict.fromkeys(self._of_all, Hidden(whole))
        if self._of_words:
            hidden = self.dropout(self.of_words(x))
            found |= self.outputs(self.outputs.at_words(hidden, features), features)
        return found
