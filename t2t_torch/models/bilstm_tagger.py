"""Tags by a bidirectional LSTM, with a softmax or a CRF on top.

Huang et al. 2015, "Bidirectional LSTM-CRF Models for Sequence Tagging", arXiv:1508.01991; with
characters Lample et al. 2016, arXiv:1603.01360, and Ma and Hovy 2016, arXiv:1603.01354.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from t2t_torch.features import Features, Real, Tags, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bilstm_tagger import BilstmTaggerHParams
from t2t_torch.layers.dense import beside_dense, dense_width
from t2t_torch.layers.dropout import Dropout, LockedDropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.tokens import Tokens, dense_of, texts_of
from t2t_torch.model import T2TModel
from t2t_torch.registry import register_model


@register_model
class BilstmTagger(T2TModel):
    """Each word's tag is found from what an LSTM has read before it and one behind it."""

    HParams = BilstmTaggerHParams
    hparams: BilstmTaggerHParams
    produces = (Tags,)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(
        self,
        hparams: BilstmTaggerHParams,
        features: Features,
        *,
        input_space_id: int = 0,
        target_space_id: int = 0,
    ) -> None:
        super().__init__(
            hparams, features, input_space_id=input_space_id, target_space_id=target_space_id
        )
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        dropout = LockedDropout if hparams.locked_dropout else Dropout
        self.tokens = Tokens(features, hparams, self._text)
        self.dropout = dropout(hparams.layer_prepostprocess_dropout)
        self.lstm = LSTM(
            self.tokens.size,
            hparams.hidden_size,
            hparams.num_hidden_layers,
            bidirectional=True,
            dropout=hparams.layer_prepostprocess_dropout,
            locked=hparams.locked_dropout,
        )
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of both directions and of the numbers beside them."""
        return 2 * int(hparams.hidden_size) + dense_width(features, hparams)

    def body(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what both directions give at the first id of each word.  [B, W, 2 H]."""
        hidden = self.lstm(self.dropout(self.tokens(features)), features[f"{self._text}_mask"])
        words = self.tokens.places.at_words(self._text, self.dropout(hidden), features)
        words = beside_dense(words, self._dense, features)
        there = self.tokens.places.mask(self._text, features)
        found: dict[str, Tensor] = {}
        for name in self.features.targets:
            found |= {name: words, f"{name}_mask": there}
        return found
