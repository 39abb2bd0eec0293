"""Transformer language model: a decoder with causal attention, without an encoder.

Liu et al. 2018, arXiv:1801.10198; Radford et al. 2018, "Improving Language Understanding by
Generative Pre-Training".
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from t2t_torch.hparams.transformer_lm import TransformerLmHParams
from t2t_torch.layers.mixture_of_experts import mark_data
from t2t_torch.layers.pooling import shift_right
from t2t_torch.layers.tokens import take_penalties
from t2t_torch.model import Hidden, ModelInputs
from t2t_torch.models.transformer import Transformer, TransformerState
from t2t_torch.registry import register_model


@register_model
class TransformerLm(Transformer):
    """The decoder of `transformer` as a language model, with the same names of weights.

    It keeps no state across batches.  In streams, each block is read as a separate text that starts
    with the preceding token; block boundaries differ between epochs.
    """

    HParams = TransformerLmHParams
    texts = (0, 0)
    reads = ()
    reads_streams = True
    hparams: TransformerLmHParams

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        targets, mask = features["targets"].embedded, self._target_mask(features["targets"])
        positions, before = features["targets"].positions, features["targets"].before
        is_given = before is None and not self.hparams.predict_first
        x = targets if is_given else shift_right(targets, self._start, positions)
        if before is not None:
            first = self.embed("targets", before[:, None])
            x = torch.cat([first, targets[:, :-1]], 1)
        x = self.dropout(self.positions(x, positions))
        mark_data(self.decoder, features["targets"].mask)
        near = self._bounded(mask, positions, is_masked=True)
        for layer in self.decoder:
            x = layer(x, near, None, None)
        hidden = self.decoder_output(x)
        if is_given:
            hidden = shift_right(hidden, hidden.new_zeros(hidden.size(-1)), positions)
        return {"targets": Hidden(hidden, penalty=take_penalties(self))}

    def encode(self, batch: dict[str, Tensor]) -> TransformerState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        state = super().encode(batch)
        return dataclasses.replace(state, is_first_given=not self.hparams.predict_first)

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Runs a decoding step; see `T2TModel.step`."""
        if not state.is_first_given:
            return super().step(ids, state)
        nothing = next(self.parameters()).new_zeros(ids.size(0), self.hparams.hidden_size)
        state = dataclasses.replace(state, is_first_given=False)
        return self.top(Hidden(nothing), "targets"), state
