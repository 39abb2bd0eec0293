"""Evolved Transformer: layers with convolutions, found by architecture search.

So et al. 2019, "The Evolved Transformer", arXiv:1901.11117, in tensor2tensor's form.  Convolutions
of the encoder see zeros at padding, those of the decoder only earlier positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, Text
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.evolved_transformer import EvolvedTransformerHParams
from t2t_torch.layers.attention import CrossAttention, KeyValueCache
from t2t_torch.layers.convolution import SeparableConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.transformer_layer import (
    Joined,
    Postprocess,
    Preprocess,
    check_unread,
    self_attention,
    with_relative_keys,
)
from t2t_torch.models.transformer import Memory, Transformer, TransformerState
from t2t_torch.registry import register_model

_FIRST, _FINAL = 10, 6  # earlier positions that the decoder's convolutions see
_UNREAD = ("ffn_layer", "ffn_gated", "ffn_activation", "ffn_bias")
"""Hyperparameters of feed-forward sublayers, which its layers do not have."""
_MOST_HEADS = 16  # of the decoder's first attention, which has twice num_heads


class _Sublayers(nn.Module):
    """Base class of both layers.

    Args:
      hparams: hyperparameters.
    """

    def __init__(self, hparams: EvolvedTransformerHParams) -> None:
        super().__init__()
        self.hparams, self.size = hparams, hparams.hidden_size
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)

    def _before(self, size: int = 0) -> Preprocess:
        hparams = self.hparams.replace(hidden_size=size) if size else self.hparams
        return Preprocess(hparams)

    def _after(self) -> Postprocess:
        return Postprocess(self.hparams)


class EvolvedEncoderLayer(_Sublayers):
    """Gated linear unit, convolutions, self-attention, feed-forward network.

    Args:
      hparams: hyperparameters.
    """

    def __init__(self, hparams: EvolvedTransformerHParams) -> None:
        super().__init__(hparams)
        size, wide, half = self.size, 4 * self.size, self.size // 2
        self.unit_before, self.unit_after = self._before(), self._after()
        self.unit_values, self.unit_gates = nn.Linear(size, size), nn.Linear(size, size)
        self.conv_before, self.conv_after = self._before(), self._after()
        self.conv_left = nn.Linear(size, wide)
        self.conv_right = nn.Conv1d(size, half, 3, padding=1)
        self.conv_between = self._before(wide)
        self.conv_final = SeparableConvolution(wide, half, 9)
        self.attention_before, self.attention_after = self._before(), self._after()
        self.attention = with_relative_keys(self_attention(hparams, hparams.furthest), hparams)
        self.dense_before, self.dense_after = self._before(), self._after()
        self.dense_inner, self.dense_outer = nn.Linear(size, wide), nn.Linear(wide, size)

    def forward(self, x: Tensor, mask: Tensor, there: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]; masks of attention [B, 1, 1, S] and of the data [B, S] bool."""
        kept = there[..., None].to(x.dtype)
        y = self.unit_before(x)
        x = self.unit_after(x, self.unit_values(y) * self.unit_gates(y).sigmoid())
        y = self.conv_before(x) * kept
        left = self.dropout(F.relu(self.conv_left(y)))
        right = self.dropout(F.relu(self.conv_right(y.transpose(1, 2)).transpose(1, 2)))
        y = self.conv_between(left + _widened(right, left.size(-1))) * kept
        y = self.conv_final(F.pad(y, (0, 0, 4, 4)))
        x = self.conv_after(x, _widened(y, self.size))
        x = self.attention_after(x, self.attention(self.attention_before(x), mask))
        y = self.dropout(F.relu(self.dense_inner(self.dense_before(x))))
        return self.dense_after(x, self.dense_outer(y))


def _widened(x: Tensor, size: int) -> Tensor:
    """Returns units with zeros behind them.  [..., W] -> [..., size]."""
    return F.pad(x, (0, size - x.size(-1)))


Windows = list[Tensor]
"""What the convolutions of a decoder layer see of earlier positions: [R, 10, H], [R, 6, 2 H]."""


class EvolvedDecoderLayer(_Sublayers):
    """Two attentions at once, convolutions, self-attention, attention to the encoder, and a
    feed-forward network.

    Args:
      hparams: hyperparameters.
      has_memory: True if there is an encoder.
    """

    def __init__(self, hparams: EvolvedTransformerHParams, *, has_memory: bool) -> None:
        super().__init__(hparams)
        size, wide, half = self.size, 2 * self.size, self.size // 2
        heads = max(min(2 * hparams.num_heads, _MOST_HEADS), hparams.num_heads)
        self.first_before = self._before()
        doubled = hparams.replace(num_heads=heads)
        self.first_attention = with_relative_keys(
            self_attention(doubled, hparams.furthest), doubled
        )
        if has_memory:
            self.first_memory, self.second_memory = (
                CrossAttention(
                    size, hparams.num_heads, hparams.attention_dropout, bias=hparams.attention_bias
                )
                for _ in range(2)
            )
            self.memory_before, self.memory_after = self._before(), self._after()
        else:
            self.first_after = self._after()
        self.conv_before, self.conv_after = self._before(), self._after()
        self.conv_left = SeparableConvolution(size, wide, _FIRST + 1)
        self.conv_right = SeparableConvolution(size, half, _FINAL + 1)
        self.conv_between = self._before(wide)
        self.conv_final = SeparableConvolution(wide, size, _FINAL + 1)
        self.attention_before, self.attention_after = self._before(), self._after()
        self.attention = with_relative_keys(self_attention(hparams, hparams.furthest), hparams)
        self.dense_before, self.dense_after = self._before(), self._after()
        self.dense_inner, self.dense_outer = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.dense_between = self._before(4 * size)

    def remember(self, memory: Tensor) -> list[Memory]:
        """Returns keys and values of the encoder's output for both attentions to it."""
        return [self.first_memory.remember(memory), self.second_memory.remember(memory)]

    def forward(
        self, x: Tensor, mask: Tensor | None, memory: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor:
        """Runs a teacher-forced pass; see `models/transformer.py`.  [B, T, H]."""
        memories = None if memory is None else self.remember(memory)

        def attend(number: int, y: Tensor) -> Tensor:
            attention = (self.first_attention, self.attention)[number]
            attended: Tensor = attention(y, mask, causal=mask is None)
            return attended

        def window(number: int, y: Tensor) -> Tensor:
            return F.pad(y, (0, 0, (_FIRST, _FINAL)[number], 0))

        return self._run(x, attend, window, memories, memory_mask)

    def step(
        self,
        x: Tensor,
        caches: list[KeyValueCache],
        windows: Windows,
        memories: list[Memory] | None,
        memory_mask: Tensor | None,
        seen: list[Tensor] | None,
    ) -> Tensor:
        """Runs a decoding step; extends the caches and moves the windows.

        Args:
          x: inputs, [R, 1, H].
          caches: of the first and of the second self-attention.
          windows: of the convolutions; replaced.
          memories: keys and values of both attentions to the encoder, of B sentences.
          memory_mask: mask of the memory, [B, 1, 1, S] bool.
          seen: list to append the second attention's weights to, [B, N, K, S].

        Returns:
          [R, 1, H].
        """

        def attend(number: int, y: Tensor) -> Tensor:
            return (self.first_attention, self.attention)[number].step(y, caches[number])

        def window(number: int, y: Tensor) -> Tensor:
            whole = torch.cat([windows[number], y], 1)
            windows[number] = whole[:, 1:]
            return whole

        return self._run(x, attend, window, memories, memory_mask, seen)

    def _run(
        self,
        x: Tensor,
        attend: Callable[[int, Tensor], Tensor],
        window: Callable[[int, Tensor], Tensor],
        memories: list[Memory] | None,
        memory_mask: Tensor | None,
        seen: list[Tensor] | None = None,
    ) -> Tensor:
        """Runs all sublayers.

        Args:
          x: [B, T, H].
          attend: runs the first or second self-attention.
          window: returns inputs of the first or second convolutions with what comes before.
          memories: as in `step`.
          memory_mask: as in `step`.
          seen: as in `step`.

        Returns:
          [B, T, H].
        """
        y = self.first_before(x)
        left = attend(0, y)
        if memories is None or memory_mask is None:
            x = self.first_after(x, left)
        else:
            right = _to_memory(self.first_memory, y, memories[0], memory_mask)
            x = x + self.dropout(left) + self.dropout(right)
        given = window(0, self.conv_before(x))
        left = self.dropout(F.relu(self.conv_left(given)))
        right = self.dropout(self.conv_right(given[:, _FIRST - _FINAL :]))
        y = self.conv_between(left + _widened(right, left.size(-1)))
        x = self.conv_after(x, self.conv_final(window(1, y)))
        x = self.attention_after(x, attend(1, self.attention_before(x)))
        if memories is not None and memory_mask is not None:
            y = self.memory_before(x)
            if seen is not None:
                rows = y.view(memory_mask.size(0), -1, y.size(-1))
                seen.append(self.second_memory.attention_of(rows, memories[1], memory_mask))
            x = self.memory_after(x, _to_memory(self.second_memory, y, memories[1], memory_mask))
        y = self.dropout(F.silu(self.dense_inner(self.dense_before(x))))
        return self.dense_after(x, self.dense_outer(self.dense_between(y)))


def _to_memory(attention: CrossAttention, x: Tensor, memory: Memory, mask: Tensor) -> Tensor:
    """Attends to the memories of B sentences from [B, T, H], or from [B * K, 1, H]."""
    attended: Tensor = attention(x.view(mask.size(0), -1, x.size(-1)), memory, mask)
    return attended.view_as(x)


@register_model
class EvolvedTransformer(Transformer):
    """Encoder and decoder of evolved layers; without inputs only the decoder."""

    HParams = EvolvedTransformerHParams
    hparams: EvolvedTransformerHParams
    reads = (Text, OfWords)
    texts = (0, 1)
    reads_packed = False
    prepends = False

    def __init__(self, hparams: EvolvedTransformerHParams, features: Features) -> None:
        check_unread(hparams, _UNREAD, "evolved_transformer")
        super().__init__(hparams, features)

    def _encoder_layer(self) -> nn.Module:
        return EvolvedEncoderLayer(self.hparams)

    def _decoder_layer(self) -> nn.Module:
        return EvolvedDecoderLayer(self.hparams, has_memory=self.has_encoder)

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        for layer in self.encoder:
            x = layer(x, mask, joined.mask)
        return x

    def _remember(self, memory: Tensor) -> list[Memory]:
        return [one for layer in self.decoder for one in layer.remember(memory)]

    def _caches(self, rows: int) -> list[KeyValueCache]:
        return [
            self._cache(attention, rows)
            for layer in self.decoder
            for attention in (layer.first_attention, layer.attention)
        ]

    def encode(self, batch: dict[str, Tensor]) -> TransformerState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        state = super().encode(batch)
        size, like = self.hparams.hidden_size, state.caches[0].keys
        rows = state.caches[0].rows
        windows = [
            [like.new_zeros(rows, _FIRST, size), like.new_zeros(rows, _FINAL, 2 * size)]
            for _ in self.decoder
        ]
        return dataclasses.replace(state, windows=windows)

    def _run_step(self, x: Tensor, state: TransformerState, seen: list[Tensor] | None) -> Tensor:
        for i, layer in enumerate(self.decoder):
            both = slice(2 * i, 2 * i + 2)
            memories = state.memories[both] or None
            watch = seen if layer is self.decoder[-1] else None
            x = layer.step(
                x, state.caches[both], state.windows[i], memories, state.memory_mask, watch
            )
        return x
