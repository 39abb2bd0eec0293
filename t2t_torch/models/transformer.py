"""Transformer: an encoder and a decoder with attention, or only a decoder.

Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, in tensor2tensor's form:
converted weights give identical logits (`interop/tensor2tensor.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.hparams.transformer import TransformerHParams
from t2t_torch.layers import pooling
from t2t_torch.layers.attention import Attended, CrossAttention, KeyValueCache, LocalMask, Prefix
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.mixture_of_experts import mark_data
from t2t_torch.layers.recurrent import RowState
from t2t_torch.layers.tokens import take_penalties
from t2t_torch.layers.transformer_layer import (
    NUM_SPACES,
    EncoderLayer,
    Joined,
    JoinInputs,
    Positions,
    Postprocess,
    Preprocess,
    feed_forward,
    self_attention,
    stack_output,
    with_relative_keys,
)
from t2t_torch.modalities.text import first_input
from t2t_torch.model import Hidden, ModelInput, ModelInputs, Prepended, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import PAD

Memory = tuple[Tensor, Tensor]


class DecoderLayer(nn.Module):
    """Decoder layer: causal self-attention, encoder-decoder attention, feed-forward network.

    Args:
      hparams: sizes, dropouts, norms.
      has_memory: True if there is an encoder.
      memory_size: width of its output; 0: hidden_size.
    """

    def __init__(
        self, hparams: TransformerHParams, *, has_memory: bool, memory_size: int = 0
    ) -> None:
        super().__init__()
        self.attention_before = Preprocess(hparams)
        self.attention = with_relative_keys(self_attention(hparams, hparams.furthest), hparams)
        self.attention_after = Postprocess(hparams)
        if has_memory:
            self.memory_attention_before = Preprocess(hparams)
            self.memory_attention = CrossAttention(
                hparams.hidden_size,
                hparams.num_heads,
                hparams.attention_dropout,
                bias=hparams.attention_bias,
                memory_size=memory_size,
            )
            self.memory_attention_after = Postprocess(hparams)
        self.feed_forward_before = Preprocess(hparams)
        self.feed_forward = feed_forward(hparams)
        self.feed_forward_after = Postprocess(hparams)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | LocalMask | None,
        memory: Tensor | None,
        memory_mask: Tensor | None,
    ) -> Tensor:
        """Runs a teacher-forced pass.

        Args:
          x: inputs, [B, T, H].
          mask: attention mask, [B or 1, 1, T, T] bool; None is causal.
          memory: output of the encoder, [B, S, H], or None.
          memory_mask: mask of the memory, [B, 1, 1 or T, S] bool.

        Returns:
          [B, T, H].
        """
        remembered = None if memory is None else self.memory_attention.remember(memory)
        return self.read(x, mask, remembered, memory_mask)[0]

    def read(
        self,
        x: Tensor,
        mask: Tensor | LocalMask | None,
        memory: Memory | None,
        memory_mask: Tensor | None,
    ) -> tuple[Tensor, Memory]:
        """Same as `forward`, but `memory` is keys and values, [B, N, S, D] each.

        Returns:
          [B, T, H], and the keys and values of self-attention, [B, N, T, D] each.
        """
        before = self.attention_before(x)
        y, read = self.attention.read(before, mask, causal=mask is None)
        x = self.attention_after(x, y)
        if memory is not None and memory_mask is not None:
            x = self._attend_to_memory(x, memory, memory_mask)
        return self._feed_forward(x), read

    def step(
        self,
        x: Tensor,
        cache: KeyValueCache,
        memory: Memory | None,
        memory_mask: Tensor | None,
        prefix: Prefix | None = None,
        seen: list[Tensor] | None = None,
        windows: list[Tensor] | None = None,
    ) -> Tensor:
        """Runs a decoding step; appends one position to the cache.

        Args:
          x: inputs, [R, 1, H].
          cache: key-value cache of this layer.
          memory: keys and values, [B, N, S, D], shared by the K hypotheses of a sentence.
          memory_mask: mask of the memory, [B, 1, 1, S] bool.
          prefix: keys and values before the cache, of the B sentences.
          seen: list to append the encoder-decoder attention weights to, [B, N, K, S].
          windows: what convolutions see of earlier positions; replaced.

        Returns:
          [R, 1, H].
        """
        x = self.attention_after(x, self.attention.step(self.attention_before(x), cache, prefix))
        if memory is not None and memory_mask is not None:
            by_sentence = x.view(memory_mask.size(0), -1, x.size(-1))  # [B, K, H]
            if seen is not None:
                asking = self.memory_attention_before(by_sentence)
                seen.append(self.memory_attention.attention_of(asking, memory, memory_mask))
            x = self._attend_to_memory(by_sentence, memory, memory_mask).view_as(x)
        return self._feed_forward(x, windows)

    def _feed_forward(self, x: Tensor, windows: list[Tensor] | None = None) -> Tensor:
        """Runs the feed-forward sublayer; `windows` as in `step`.  [B, T, H]."""
        before = self.feed_forward_before(x)
        y = self.feed_forward(before, windows) if windows else self.feed_forward(before)
        return self.feed_forward_after(x, y)

    def _attend_to_memory(self, x: Tensor, memory: Memory, memory_mask: Tensor) -> Tensor:
        y = self.memory_attention(self.memory_attention_before(x), memory, memory_mask)
        return self.memory_attention_after(x, y)


@dataclasses.dataclass
class TransformerState(RowState):
    """Decoding state of R = B * K rows; see `State`.

    Attributes:
      caches: key-value cache of each layer.
      memories: keys and values of each layer, [B, N, S, D] each; empty without an encoder.
      memory_mask: mask of the memory, [B, 1, 1, S] bool; None without an encoder.
      hypotheses: K, number of hypotheses per sentence.
      prefixes: keys and values of prepended inputs of each layer, of the B sentences; or empty.
      attended: mean attention weights of the heads of the last layer; see `Attending`.
      watches: True if steps record attention weights.
      is_first_given: True before the first id of a language model that does not predict it.
      windows: of each layer with convolutions, what these see of earlier positions, [R, K, H] each.
    """

    shared: ClassVar[tuple[str, ...]] = ("memories", "memory_mask", "prefixes", "attended")

    caches: list[KeyValueCache]
    memories: list[Memory]
    memory_mask: Tensor | None
    hypotheses: int = 1
    prefixes: list[Prefix] = dataclasses.field(default_factory=list)
    attended: Attended | None = None
    watches: bool = False
    is_first_given: bool = False
    windows: list[list[Tensor]] = dataclasses.field(default_factory=list)

    @property
    def position(self) -> Tensor:
        """Position of the next id, from 0; after a prefix, from its end.  [1] int64."""
        return self.caches[0].next_position()

    def fixed(self, capacity: int) -> TransformerState:
        """Returns a state with a fixed capacity of positions; see `Growing`."""
        return dataclasses.replace(self, caches=[cache.fixed(capacity) for cache in self.caches])

    def watched(self) -> TransformerState | None:
        """Returns a state that records attention weights; None without an encoder."""
        return None if self.memory_mask is None else dataclasses.replace(self, watches=True)

    def expand(self, hypotheses: int) -> TransformerState:
        """Returns a state in which each row is repeated `hypotheses` times, adjacently."""
        state = super().expand(hypotheses)
        state.hypotheses *= hypotheses
        return state

    def reorder(self, index: Tensor) -> TransformerState:
        """Returns a state whose row i is row `index[i]` of this state.  The memory is not copied,
        unless sentences are dropped."""
        state = super().reorder(index)
        if index.size(0) != self.caches[0].rows:
            kept = index.view(-1, self.hypotheses)[:, 0] // self.hypotheses  # [B']
            state.memories = [
                (k.index_select(0, kept), v.index_select(0, kept)) for k, v in self.memories
            ]
            if self.memory_mask is not None:
                state.memory_mask = self.memory_mask.index_select(0, kept)
            state.prefixes = [
                Prefix(*(its.index_select(0, kept) for its in one)) for one in self.prefixes
            ]
        return state


@register_model
class Transformer(T2TModel):
    """Transformer encoder and decoder; without inputs only the decoder.

    With `prepend_mode` the decoder reads the inputs before the targets, and the encoder is
    optional.
    """

    HParams = TransformerHParams
    reads_packed = True
    prepends: ClassVar[bool] = True
    """True if the decoder may read the inputs before the targets."""
    hparams: TransformerHParams

    def __init__(self, hparams: TransformerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        hparams.check_prepending(features)
        if not self.prepends and hparams.prepend_mode != "none":
            raise HParamsError(
                f"prepend_mode={hparams.prepend_mode}: the decoder of {self.name} reads no inputs. "
                "Set --hparams=prepend_mode=none."
            )
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.has_encoder = features.has_inputs and hparams.encode_inputs
        if features.has_inputs and not self.has_encoder:
            del self.modalities["inputs"]  # the decoder embeds them like targets
        if self.has_encoder:
            if hparams.use_target_space_embedding:
                table = torch.randn(NUM_SPACES, hparams.hidden_size) * hparams.hidden_size**-0.5
                self.target_space = nn.Parameter(table)
            positions = Positions(hparams, hparams.max_source_positions)
            self.join = JoinInputs(features, hparams.hidden_size, positions)
            self.encoder = nn.ModuleList(
                self._encoder_layer()
                for _ in range(hparams.num_encoder_layers or hparams.num_hidden_layers)
            )
            self.encoder_output = stack_output(hparams)
        decoder = self._hparams_of_decoder()
        self.decoder: Any = nn.ModuleList(
            self._decoder_layer()
            for _ in range(hparams.num_decoder_layers or hparams.num_hidden_layers)
        )
        self.positions = Positions(decoder, hparams.max_target_positions)
        self.decoder_output = stack_output(decoder)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: TransformerHParams, features: Features, target: str) -> int:
        """Returns the output width of the decoder."""
        return hparams.of_decoder().hidden_size

    def _hparams_of_decoder(self) -> TransformerHParams:
        """Returns the hyperparameters of the decoder.

        Raises:
          HParamsError: they should differ, and the model has no encoder or layers of its own.
        """
        own = type(self)
        has_sides = (own._decoder_layer, own._run_decoder) == (
            Transformer._decoder_layer,
            Transformer._run_decoder,
        )
        if self.hparams.decoder_hparams and not (has_sides and self.has_encoder):
            raise HParamsError(
                f"decoder_hparams: {self.name} has no encoder and decoder that may differ here. "
                "Leave it out."
            )
        return self.hparams.of_decoder()

    def _encoder_layer(self) -> nn.Module:
        layer = EncoderLayer(self.hparams, self.hparams.furthest)
        with_relative_keys(layer.attention, self.hparams)
        return layer

    def _decoder_layer(self) -> nn.Module:
        return DecoderLayer(
            self.hparams.of_decoder(),
            has_memory=self.has_encoder,
            memory_size=self.hparams.hidden_size,
        )

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        if self.hparams.prepend_mode != "none":
            return self._after_inputs(features)
        memory = memory_mask = None
        segments, mask = features["targets"].segments, self._target_mask(features["targets"])
        if self.has_encoder:
            memory, there = self._encode(features)  # [B, S, H], [B, S]
            memory_mask = pooling.attend_to(there)
            of_inputs = self.join.segments(features)
            if segments is not None and of_inputs is not None:
                memory_mask = pooling.same_segment(segments, of_inputs)
        hidden = self._decode(features["targets"], mask, memory, memory_mask)
        return {"targets": Hidden(hidden, penalty=take_penalties(self))}

    def _target_mask(self, targets: ModelInput) -> Tensor | None:
        """Returns the mask of the decoder, [B or 1, 1, T, T] bool; None: causal."""
        segments, mask = targets.segments, None
        width, device = targets.values.size(1), targets.values.device
        if segments is not None:
            mask = pooling.same_segment(segments, segments) & pooling.causal(width, device)
        block = self.hparams.attention_loc_block_length
        if self.hparams.is_local and (width > block or torch.compiler.is_exporting()):
            positions = targets.positions
            if positions is None:
                positions = torch.arange(width, device=device)
            local = pooling.local_causal(positions, block)
            mask = local if mask is None else pooling.never_empty(mask & local)
        return mask

    def _after_inputs(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the output of `body` for targets that follow their inputs (`prepend_mode`)."""
        targets = features["targets"]
        if targets.segments is not None:
            raise HParamsError(
                "prepend_mode: these are packed examples, whose inputs do not stand beside their "
                "targets. Use the problem that is not packed."
            )
        ids = features[next(iter(self.features.inputs))].values  # [B, S]
        lengths = pooling.padding_mask(ids).sum(1)  # [B]
        memory = memory_mask = mask = None
        if self.has_encoder:
            memory, there = self._encode(features)
            memory_mask = pooling.attend_to(there)
        x = pooling.prepend(self._embedded(ids), targets.embedded, lengths)  # [B, S + 1 + T, H]
        if self._sees_inputs_whole:
            mask = pooling.full_over_inputs(lengths, x.size(1))
        rows = ModelInput(ids, x, torch.ones_like(x[..., 0], dtype=torch.bool))
        hidden = self._decode(rows, mask, memory, memory_mask)
        states, prepended = pooling.at_targets(hidden, lengths, targets.values.size(1)), None
        if self.training and not self._sees_inputs_whole:
            prepended = Prepended(hidden[:, : ids.size(1)], ids)
        return {"targets": Hidden(states, penalty=take_penalties(self), prepended=prepended)}

    @property
    def _sees_inputs_whole(self) -> bool:
        return self.hparams.prepend_mode == "prepend_inputs_full_attention"

    def _embedded(self, ids: Tensor) -> Tensor:
        """Returns the decoder embeddings of ids.  [B, T] -> [B, T, H]."""
        return self.embed("targets", ids)

    def _decode(
        self,
        targets: ModelInput,
        mask: Tensor | None,
        memory: Tensor | None,
        memory_mask: Tensor | None,
        x: Tensor | None = None,
    ) -> Tensor:
        """Returns the decoder's output; see `DecoderLayer.forward`.  [B, T, H].

        Args:
          targets: what is decoded.
          mask: mask of attention to the targets.
          memory: output of the encoder.
          memory_mask: its mask.
          x: the decoder's inputs; None: the targets shifted right.
        """
        if x is None:
            x = pooling.shift_right(targets.embedded, first_input(self), targets.positions)
        x = self.dropout(self.positions(x, targets.positions))
        mark_data(self.decoder, targets.mask)
        x = self._run_decoder(x, targets, mask, memory, memory_mask)
        return self.decoder_output(x)

    def _run_decoder(
        self,
        x: Tensor,
        targets: ModelInput,
        mask: Tensor | None,
        memory: Tensor | None,
        memory_mask: Tensor | None,
    ) -> Tensor:
        """Runs the layers of the decoder; see `DecoderLayer.forward`.

        Args:
          x: what the decoder reads: shifted embeddings, with positions, [B, T, H].
          targets: mask and positions of the targets.
          mask: attention mask, [B or 1, 1, T, T] bool; None is causal.
          memory: output of the encoder, [B, S, H], or None.
          memory_mask: mask of the memory, [B, 1, 1 or T, S] bool.

        Returns:
          [B, T, H].
        """
        near = self._bounded(mask, targets.positions, is_masked=True)
        for layer in self.decoder:
            x = layer(x, near, memory, memory_mask)
        return x

    def _encode(self, features: ModelInputs) -> tuple[Tensor, Tensor]:
        """Returns the output of the encoder and its mask.  [B, S, H], [B, S] bool."""
        joined = self.join(features)
        x = joined.x
        if self.hparams.use_target_space_embedding:
            x = x + self.target_space[self.features.target_space_id]
        x = self.dropout(x)
        mask = pooling.attend_to(joined.mask)
        if (segments := self.join.segments(features)) is not None:
            mask = pooling.same_segment(segments, segments)
        if self.hparams.is_local:
            is_masked = self.hparams.self_attention_type == "local_mask_right"
            mask = pooling.never_empty(
                mask & self._local_mask(joined.positions, is_masked=is_masked)
            )
        mark_data(self.encoder, joined.mask)
        return self.encoder_output(self._run_encoder(x, mask, joined)), joined.mask

    def _local_mask(self, positions: Tensor, *, is_masked: bool) -> Tensor:
        """Returns the mask of local attention in the encoder, [B or 1, 1, S, S] bool."""
        block = self.hparams.attention_loc_block_length
        if is_masked:
            return pooling.local_causal(positions, block)
        return pooling.local_around(positions, block, self.hparams.attention_loc_block_width)

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        """Runs the layers of the encoder.

        Args:
          x: [B, S, H].
          mask: attention mask, [B, 1, 1 or S, S] bool.
          joined: mask and positions of the inputs.

        Returns:
          [B, S, H].
        """
        is_masked = self.hparams.self_attention_type == "local_mask_right"
        near = self._bounded(mask, joined.positions, is_masked=is_masked)
        for layer in self.encoder:
            x = layer(x, near)
        return x

    def _bounded(
        self, mask: Tensor | None, positions: Tensor | None, *, is_masked: bool
    ) -> Tensor | LocalMask | None:
        """Returns a mask of local attention with its bounds, and others as they are.

        Args:
          mask: [B or 1, 1, T, T] bool, or None.
          positions: of packed rows [B, T], else [T] or None.
          is_masked: True for `local_causal`, False for `local_around`.
        """
        if mask is None or not self.hparams.is_local:
            return mask
        block = self.hparams.attention_loc_block_length
        before = block if is_masked else self.hparams.attention_loc_block_width
        after = 0 if is_masked else before
        if positions is not None and positions.dim() > 1:  # blocks of packed texts begin anywhere
            before += block - 1
            after += 0 if is_masked else block - 1
        return LocalMask(mask, block, before, after)

    def encode(self, batch: dict[str, Tensor]) -> TransformerState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        if not self.features.has_inputs:
            return TransformerState(self._caches(batch["targets"].size(0)), [], None)
        inputs = {name: batch[name] for name in batch if name not in self.features.targets}
        memories: list[Memory] = []
        prefixes: list[Prefix] = []
        memory_mask = None
        if self.has_encoder:
            memory, there = self._encode(self.bottom(inputs))
            memories = self._remember(memory)
            memory_mask = pooling.attend_to(there)
        ids = batch[next(iter(self.features.inputs))]
        if self.hparams.prepend_mode != "none":
            prefixes = self._read(ids, memories, memory_mask)
        return TransformerState(self._caches(ids.size(0)), memories, memory_mask, prefixes=prefixes)

    def _read(
        self, ids: Tensor, memories: list[Memory], memory_mask: Tensor | None
    ) -> list[Prefix]:
        """Returns the keys and values of prepended inputs in each layer of the decoder.

        The first position is the start, which sees the inputs only with full attention.

        Args:
          ids: ids of the inputs, [B, S].
          memories: keys and values of the memory of each layer, if there is an encoder.
          memory_mask: mask of the memory, [B, 1, 1, S] bool.
        """
        there = nn.functional.pad(pooling.padding_mask(ids), (1, 0), value=True)  # [B, 1 + S]
        mask = pooling.attend_to(there) if self._sees_inputs_whole else None
        x = nn.functional.pad(self._embedded(ids), (0, 0, 1, 0))
        x = self.dropout(self.positions(x))
        prefixes = []
        for i, layer in enumerate(self.decoder):
            memory = memories[i] if memories else None
            x, (keys, values) = layer.read(x, mask, memory, memory_mask)
            prefixes.append(Prefix(keys.contiguous(), values.contiguous(), there))
        return prefixes

    def _remember(self, memory: Tensor) -> list[Memory]:
        """Returns keys and values of the encoder's output [B, S, H] for each layer."""
        return [layer.memory_attention.remember(memory) for layer in self.decoder]

    def _caches(self, rows: int) -> list[KeyValueCache]:
        return [self._cache(layer.attention, rows) for layer in self.decoder]

    def _cache(self, attention: Any, rows: int) -> KeyValueCache:
        block = self.hparams.attention_loc_block_length if self.hparams.is_local else 0
        cache: KeyValueCache = dataclasses.replace(attention.cache(rows), block=block)
        return cache

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Runs a decoding step; see `T2TModel.step`."""
        positions = state.position
        if state.prefixes:  # a row's own inputs end where they end
            lengths = state.prefixes[0].mask.sum(1).repeat_interleave(state.hypotheses, 0)  # [R]
            positions = lengths[:, None] + positions
        x = self._embedded(ids[:, None])  # [R, 1, H]
        if (start := first_input(self)) is not None:
            x = torch.where((ids == PAD)[:, None, None], start.to(x.dtype), x)
        seen: list[Tensor] | None = [] if state.watches else None
        x = self._run_step(self.positions(x, positions), state, seen)
        if seen and state.memory_mask is not None:
            weights = seen[0].mean(1)  # [B, K, S]
            mask = state.memory_mask[:, 0].expand_as(weights)
            attended = Attended(weights.flatten(0, 1), mask.flatten(0, 1))
            state = dataclasses.replace(state, attended=attended)
        return self.top(Hidden(self.decoder_output(x).squeeze(1)), "targets"), state  # [R, V]

    def _run_step(self, x: Tensor, state: TransformerState, seen: list[Tensor] | None) -> Tensor:
        """Runs the layers of the decoder for one position.

        Args:
          x: [R, 1, H].
          state: its caches are extended.
          seen: list to append the last layer's encoder-decoder attention weights to.

        Returns:
          [R, 1, H].
        """
        for i, layer in enumerate(self.decoder):
            memory = state.memories[i] if state.memories else None
            prefix = state.prefixes[i] if state.prefixes else None
            watch = seen if layer is self.decoder[-1] else None
            windows = state.windows[i] if state.windows else None
            x = layer.step(x, state.caches[i], memory, state.memory_mask, prefix, watch, windows)
        return x


@register_model
class TransformerScorer(Transformer):
    """`transformer`, whose checkpoints and sets are interchangeable with it."""
