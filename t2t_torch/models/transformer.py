"""The Transformer: an encoder and a decoder of attention, or a decoder alone.

Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, in tensor2tensor's form: its
weights give its logits (`interop/tensor2tensor.py`).
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from t2t_torch.features import Features
from t2t_torch.hparams.transformer import TransformerHParams
from t2t_torch.layers.attention import CrossAttention, KeyValueCache, SelfAttention
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.encoder_layer import EncoderLayer
from t2t_torch.layers.feed_forward import FeedForward
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.inputs import JoinInputs
from t2t_torch.layers.masks import attend_to, causal, same_segment
from t2t_torch.layers.positions import sinusoids
from t2t_torch.layers.sublayer import Postprocess, Preprocess
from t2t_torch.model import T2TModel
from t2t_torch.registry import register_model

_SPACES = 32  # rows of tensor2tensor's table of target spaces

Memory = tuple[Tensor, Tensor]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory if there is one, a feed-forward network.

    Args:
      hparams: sizes, dropouts, norms.
      has_memory: whether there is an encoder to attend to.
    """

    def __init__(self, hparams: TransformerHParams, *, has_memory: bool) -> None:
        super().__init__()
        sizes = (hparams.hidden_size, hparams.num_heads, hparams.attention_dropout)
        self.attention_before = Preprocess(hparams)
        self.attention = SelfAttention(*sizes)
        self.attention_after = Postprocess(hparams)
        self.has_memory = has_memory
        if has_memory:
            self.memory_attention_before = Preprocess(hparams)
            self.memory_attention = CrossAttention(*sizes)
            self.memory_attention_after = Postprocess(hparams)
        self.feed_forward_before = Preprocess(hparams)
        self.feed_forward = FeedForward(
            hparams.hidden_size, hparams.filter_size, hparams.relu_dropout
        )
        self.feed_forward_after = Postprocess(hparams)

    def forward(
        self, x: Tensor, mask: Tensor | None, memory: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor:
        """One teacher-forced pass.

        Args:
          x: [B, T, H].
          mask: [B or 1, 1, T, T] bool; None means causal.
          memory: [B, S, H], or None.
          memory_mask: [B, 1, 1 or T, S] bool.

        Returns:
          [B, T, H].
        """
        y = self.attention(self.attention_before(x), mask, causal=mask is None)
        x = self.attention_after(x, y)
        if memory is not None and memory_mask is not None:
            remembered = self.memory_attention.remember(memory)
            x = self._attend_to_memory(x, remembered, memory_mask)
        return self.feed_forward_after(x, self.feed_forward(self.feed_forward_before(x)))

    def step(
        self, x: Tensor, cache: KeyValueCache, memory: Memory | None, memory_mask: Tensor | None
    ) -> Tensor:
        """Reads one more position; the cache grows by it.

        Args:
          x: [R, 1, H].
          cache: of this layer.
          memory: keys and values, [B, N, S, D]: those of a sentence serve all its K hypotheses.
          memory_mask: [B, 1, 1, S] bool.

        Returns:
          [R, 1, H].
        """
        x = self.attention_after(x, self.attention.step(self.attention_before(x), cache))
        if memory is not None and memory_mask is not None:
            by_sentence = x.view(memory_mask.size(0), -1, x.size(-1))  # [B, K, H]
            x = self._attend_to_memory(by_sentence, memory, memory_mask).view_as(x)
        return self.feed_forward_after(x, self.feed_forward(self.feed_forward_before(x)))

    def _attend_to_memory(self, x: Tensor, memory: Memory, memory_mask: Tensor) -> Tensor:
        y = self.memory_attention(self.memory_attention_before(x), memory, memory_mask)
        return self.memory_attention_after(x, y)


@dataclasses.dataclass
class TransformerState:
    """What a decode remembers.  R = B * K rows; see `State`.

    Attributes:
      caches: of each layer.
      memories: keys and values of each layer, [B, N, S, D] each; empty for a language model.
      memory_mask: [B, 1, 1, S] bool; None for a language model.
      hypotheses: K.
    """

    caches: list[KeyValueCache]
    memories: list[Memory]
    memory_mask: Tensor | None
    hypotheses: int = 1

    @property
    def position(self) -> int:
        """Of the next id, from 0 on."""
        return self.caches[0].position

    def expand(self, hypotheses: int) -> TransformerState:
        """Returns a state in which each row stands `hypotheses` times, side by side."""
        return dataclasses.replace(
            self,
            caches=[cache.expand(hypotheses) for cache in self.caches],
            hypotheses=self.hypotheses * hypotheses,
        )

    def reorder(self, index: Tensor) -> TransformerState:
        """Returns a state whose row i is this one's row `index[i]`.  The memory is not copied,
        unless sentences are dropped."""
        memories, memory_mask = self.memories, self.memory_mask
        if index.size(0) != self.caches[0].rows and memory_mask is not None:
            kept = index.view(-1, self.hypotheses)[:, 0] // self.hypotheses  # [B']
            memories = [(k.index_select(0, kept), v.index_select(0, kept)) for k, v in memories]
            memory_mask = memory_mask.index_select(0, kept)
        return dataclasses.replace(
            self,
            caches=[cache.reorder(index) for cache in self.caches],
            memories=memories,
            memory_mask=memory_mask,
        )


@register_model
class Transformer(T2TModel):
    """Encoder and decoder; the decoder alone where the problem has no inputs."""

    HParams = TransformerHParams
    reads_packed = True
    hparams: TransformerHParams

    def __init__(
        self,
        hparams: TransformerHParams,
        features: Features,
        *,
        input_space_id: int = 0,
        target_space_id: int = 0,
    ) -> None:
        super().__init__(
            hparams, features, input_space_id=input_space_id, target_space_id=target_space_id
        )
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        if features.has_inputs:
            if hparams.use_target_space_embedding:
                table = torch.randn(_SPACES, hparams.hidden_size) * hparams.hidden_size**-0.5
                self.target_space = nn.Parameter(table)
            self.join = JoinInputs(features, hparams.hidden_size, timing=hparams.pos == "timing")
            self.encoder = nn.ModuleList(
                EncoderLayer(
                    hparams,
                    num_heads=hparams.num_heads,
                    filter_size=hparams.filter_size,
                    attention_dropout=hparams.attention_dropout,
                    relu_dropout=hparams.relu_dropout,
                )
                for _ in range(hparams.num_encoder_layers or hparams.num_hidden_layers)
            )
            self.encoder_output = Preprocess(hparams)
        self.decoder = nn.ModuleList(
            DecoderLayer(hparams, has_memory=features.has_inputs)
            for _ in range(hparams.num_decoder_layers or hparams.num_hidden_layers)
        )
        self.decoder_output = Preprocess(hparams)
        initialize(self, hparams)

    def body(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        memory = memory_mask = mask = None
        segments = features.get("targets_segmentation")
        if segments is not None:
            mask = same_segment(segments, segments) & causal(segments.size(1), segments.device)
        if self.features.has_inputs:
            memory, there = self._encode(features)  # [B, S, H], [B, S]
            memory_mask = attend_to(there)
            of_inputs = self.join.segments(features)
            if segments is not None and of_inputs is not None:
                memory_mask = same_segment(segments, of_inputs)
        x = nn.functional.pad(features["targets"], (0, 0, 1, -1))  # shifted right by a zero vector
        x = self.dropout(self._with_positions(x, features.get("targets_position")))
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        return {"targets": self.decoder_output(x)}

    def _encode(self, features: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns the encoder's output and where there is data.  [B, S, H], [B, S] bool."""
        joined = self.join(features)
        x = joined.x
        if self.hparams.use_target_space_embedding:
            x = x + self.target_space[self.target_space_id]
        x = self.dropout(x)
        mask = attend_to(joined.mask)
        segments = self.join.segments(features)
        if segments is not None:
            mask = same_segment(segments, segments)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_output(x), joined.mask

    def _with_positions(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Adds the timing signal, by `positions` [B, T] where examples are packed.  [B, T, H]."""
        if self.hparams.pos == "none":
            return x
        if positions is None:
            positions = torch.arange(x.size(1), device=x.device)
        return x + sinusoids(positions, x.size(-1))

    def encode(self, batch: dict[str, Tensor]) -> TransformerState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        if not self.features.has_inputs:
            return TransformerState(self._caches(batch["targets"].size(0)), [], None)
        inputs = {name: batch[name] for name in batch if name not in self.features.targets}
        memory, there = self._encode(self.bottom(inputs))
        memories = [layer.memory_attention.remember(memory) for layer in self.decoder]
        return TransformerState(self._caches(memory.size(0)), memories, attend_to(there))

    def _caches(self, rows: int) -> list[KeyValueCache]:
        return [layer.attention.cache(rows) for layer in self.decoder]

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Reads one more id of each row; see `T2TModel.step`."""
        x = self.modalities["targets"].bottom(ids[:, None])  # [R, 1, H]
        x = self._with_positions(x, torch.full((1,), state.position, device=x.device))
        for i, layer in enumerate(self.decoder):
            memory = state.memories[i] if state.memories else None
            x = layer.step(x, state.caches[i], memory, state.memory_mask)
        logits = self.modalities["targets"].top(self.decoder_output(x).squeeze(1))  # [R, V]
        return logits, state
