"""Tagger: bidirectional LSTM with a softmax or a CRF on top.

Huang et al. 2015, "Bidirectional LSTM-CRF Models for Sequence Tagging", arXiv:1508.01991; with
characters Lample et al. 2016, arXiv:1603.01360, and Ma and Hovy 2016, arXiv:1603.01354.
"""

from __future__ import annotations

from typing import Any

from t2t_torch.features import Features, Real, Tags, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bilstm_tagger import BilstmTaggerHParams
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.tokens import TokenLSTM, WordOutputs, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class BilstmTagger(T2TModel):
    """Predicts the tag of a word from the states of a bidirectional LSTM."""

    HParams = BilstmTaggerHParams
    hparams: BilstmTaggerHParams
    produces = (Tags,)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: BilstmTaggerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (text,) = texts_of(features)
        self.lstm = TokenLSTM(features, hparams, text)
        self.outputs = WordOutputs(features, text)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of both directions and of dense inputs."""
        return 2 * int(hparams.hidden_size) + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the states of both directions at the first id of each word.  [B, W, 2 H]."""
        words = self.outputs.at_words(self.lstm(features), features)
        return self.outputs(words, features)
