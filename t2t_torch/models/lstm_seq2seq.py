"""Sequence-to-sequence model: two LSTMs, the second starts from the final state of the first.

Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", arXiv:1409.3215, in
tensor2tensor's form (models/lstm.py, lstm_seq2seq): converted weights give identical logits
(`interop/tensor2tensor.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.lstm_seq2seq import LSTMSeq2seqHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize, initialize_lstm
from t2t_torch.layers.recurrent import LSTM, Memory
from t2t_torch.layers.tokens import SequenceLSTMEncoder
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@dataclasses.dataclass
class LSTMState:
    """Decoding state of R rows; see `State`.

    Attributes:
      memory: states of the decoder layers, [L, R, H]; None before the first step of a language
        model.
    """

    memory: Memory | None

    def expand(self, hypotheses: int) -> LSTMState:
        """Returns a state in which each row is repeated `hypotheses` times, adjacently."""
        return self._of_each(lambda kept: kept.repeat_interleave(hypotheses, 1))

    def reorder(self, index: Tensor) -> LSTMState:
        """Returns a state whose row i is row `index[i]` of this state."""
        return self._of_each(lambda kept: kept.index_select(1, index))

    def _of_each(self, change: Callable[[Tensor], Tensor]) -> LSTMState:
        return LSTMState(self.memory and Memory(*map(change, self.memory)))


@register_model
class LSTMSeq2seq(T2TModel):
    """LSTM encoder that reads the input in reverse, and LSTM decoder that starts from its state.

    Without inputs, only the decoder.
    """

    HParams = LSTMSeq2seqHParams
    reads = (Text, OfWords)
    texts = (0, 1)
    hparams: LSTMSeq2seqHParams

    def __init__(self, hparams: LSTMSeq2seqHParams, features: Features) -> None:
        super().__init__(hparams, features)
        if features.has_inputs:
            self.encoder: nn.Module = SequenceLSTMEncoder(features, hparams, hparams.dropout)
        self.dropout = Dropout(hparams.dropout)
        self.decoder = LSTM(
            hparams.input_width(features.targets["targets"]),
            hparams.hidden_size,
            hparams.num_hidden_layers,
            dropout=hparams.dropout,
        )
        initialize(self, hparams)
        initialize_lstm(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        memory = self.encoder(features).memory if self.features.has_inputs else None
        x = F.pad(features["targets"].embedded, (0, 0, 1, -1))  # shifted right by a zero vector
        return {"targets": Hidden(self.decoder.run(self.dropout(x), None, memory)[0])}

    def encode(self, batch: dict[str, Tensor]) -> LSTMState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        if not self.features.has_inputs:
            return LSTMState(None)
        inputs = {name: batch[name] for name in batch if name not in self.features.targets}
        return LSTMState(self.encoder(self.bottom(inputs)).memory)

    def step(self, ids: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """Runs a decoding step; see `T2TModel.step`."""
        x = self.embed("targets", ids[:, None])  # [R, 1, E]
        outputs, memory = self.decoder.run(x, None, state.memory)
        return self.top(Hidden(outputs.squeeze(1)), "targets"), LSTMState(memory)
