"""Transformer language models: a decoder with causal attention, without an encoder.

Liu et al. 2018, arXiv:1801.10198; Radford et al. 2018, "Improving Language Understanding by
Generative Pre-Training".
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.features import Features
from t2t_torch.hparams.transformer_lm import (
    AttentionLmHParams,
    AttentionLmMoeHParams,
    TransformerLmHParams,
    TransformerMemoryHParams,
)
from t2t_torch.layers.mixture_of_experts import mark_data
from t2t_torch.layers.pooling import shift_right
from t2t_torch.layers.recurrent import CarriedMemory
from t2t_torch.layers.tokens import take_penalties
from t2t_torch.model import Hidden, ModelInput, ModelInputs
from t2t_torch.models.transformer import DecoderLayer, Transformer, TransformerState
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
        targets = features["targets"]
        before, x = targets.before, None
        is_given = before is None and not self.hparams.predict_first
        if is_given:
            x = targets.embedded
        if before is not None:
            x = torch.cat([self.embed("targets", before[:, None]), targets.embedded[:, :-1]], 1)
        hidden = self._decode(targets, self._target_mask(targets), None, None, x)
        if is_given:
            hidden = shift_right(hidden, hidden.new_zeros(hidden.size(-1)), targets.positions)
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


@register_model
class AttentionLm(TransformerLm):
    """`transformer_lm` with tensor2tensor's sets."""

    HParams = AttentionLmHParams
    hparams: AttentionLmHParams


@register_model
class AttentionLmMoe(AttentionLm):
    """`attention_lm`; with `ffn_layer=moe` its layers have experts."""

    HParams = AttentionLmMoeHParams
    hparams: AttentionLmMoeHParams


class MemoryLayer(DecoderLayer):
    """Decoder layer that attends to remembered inputs and to its own."""

    def forward(
        self,
        x: Tensor,
        mask: Any,
        memory: Tensor | None,
        memory_mask: Tensor | None,
        remembered: Tensor | None = None,
    ) -> Tensor:
        """See `DecoderLayer.forward`.

        Args:
          x: inputs, [B, T, H].
          mask: with `remembered`, [B, 1, T, M + T] bool.
          memory: None.
          memory_mask: None.
          remembered: normalized inputs of earlier positions, [B, M, H], or None.

        Returns:
          [B, T, H]; with `remembered` its inputs, normalized, beside it, [B, T, 2 H].
        """
        if remembered is None or mask is None:
            return super().forward(x, mask, memory, memory_mask)
        before = self.attention_before(x)
        x = self.attention_after(x, self.attention.after(before, remembered, mask))
        return torch.cat([self._feed_forward(x), before], -1)


@register_model
class TransformerMemory(TransformerLm):
    """`transformer_lm` that continues streams from a memory of each layer.

    Dai et al. 2019, "Transformer-XL", arXiv:1901.02860, in the form of tensor2tensor's
    transformer_memory with `memory_type=transformer_xl`.  tensor2tensor reads and writes a memory
    in an undefined order; here a block reads what the one before it has written.

    Without streams it is `transformer_lm`, and generation sees all earlier positions.
    """

    HParams = TransformerMemoryHParams
    hparams: TransformerMemoryHParams

    def __init__(self, hparams: TransformerMemoryHParams, features: Features) -> None:
        super().__init__(hparams, features)
        if hparams.stream_length:
            size = hparams.memory_items * hparams.hidden_size
            self.carried = CarriedMemory([size] * len(self.decoder), hparams.stream_rows)

    def _decoder_layer(self) -> nn.Module:
        return MemoryLayer(self.hparams, has_memory=False)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        targets = features["targets"]
        streams, blocks, before = targets.streams, targets.blocks, targets.before
        if streams is None or blocks is None or before is None:
            return super().body(features)
        mark_data(self.decoder, targets.mask)
        first = self.embed("targets", before[:, None])
        x = self.dropout(self.positions(torch.cat([first, targets.embedded[:, :-1]], 1)))
        mask, after = self._mask(targets, blocks), []
        rows, count, size = x.size(0), self.hparams.memory_items, self.hparams.hidden_size
        for layer, memory in zip(self.decoder, self.carried.read(streams, blocks), strict=True):
            remembered = memory.view(rows, count, size).to(x.dtype)
            x, own = layer(x, mask, None, None, remembered).chunk(2, -1)
            kept = torch.cat([remembered, own.detach()], 1)[:, -count:]
            after.append(kept.reshape(rows, -1))
        self.carried.write(streams, blocks, after)
        return {"targets": Hidden(self.decoder_output(x), penalty=take_penalties(self))}

    def _mask(self, targets: ModelInput, blocks: Tensor) -> Tensor:
        """Returns the mask of attention to memory and block, [B, 1, T, M + T] bool."""
        count, width, device = self.hparams.memory_items, targets.values.size(1), blocks.device
        filled = (blocks * self.hparams.stream_length).clamp(max=count)  # [B]
        there = torch.arange(count, device=device) >= count - filled[:, None]  # [B, M]
        own = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        rows = len(blocks)
        both = [there[:, None].expand(-1, width, -1), own.expand(rows, -1, -1)]
        return torch.cat(both, -1)[:, None]
