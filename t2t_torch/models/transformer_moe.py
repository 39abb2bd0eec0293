"""tensor2tensor's transformer_moe: a Transformer whose layers have types.

Unlike there, separable convolutions of the encoder see zeros at padding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Features, Text
from t2t_torch.hparams.transformer_moe import TransformerMoeHParams
from t2t_torch.layers.attention import KeyValueCache
from t2t_torch.layers.convolution import SeparableConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.pooling import never_empty
from t2t_torch.layers.transformer_layer import EncoderLayer, Joined
from t2t_torch.model import ModelInput
from t2t_torch.models.transformer import DecoderLayer, Transformer, TransformerState
from t2t_torch.registry import register_model

_KERNELS = (3, 31)  # tensor2tensor's sep and sepm


class SeparableFeedForward(nn.Module):
    """Two separable convolutions with a ReLU between.

    Args:
      hparams: hidden_size, filter_size, relu_dropout.
      is_causal: True if no position sees later ones.
    """

    def __init__(self, hparams: TransformerMoeHParams, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.sizes = (hparams.hidden_size, hparams.filter_size)
        self.inner = SeparableConvolution(*self.sizes, _KERNELS[0])
        self.outer = SeparableConvolution(*self.sizes[::-1], _KERNELS[1])
        self.dropout = Dropout(hparams.relu_dropout)

    def windows(self, like: Tensor, rows: int) -> list[Tensor]:
        """Returns what both convolutions see before the first position, zeros."""
        return [
            like.new_zeros(rows, kernel - 1, size)
            for kernel, size in zip(_KERNELS, self.sizes, strict=True)
        ]

    def forward(
        self, x: Tensor, windows: list[Tensor] | None = None, there: Tensor | None = None
    ) -> Tensor:
        """[B, T, H] -> [B, T, H].

        Args:
          x: inputs.
          windows: of a decoding step, what the convolutions see of earlier positions; replaced.
          there: positions with data, [B, T] bool; None: all.
        """
        y = self.dropout(F.relu(self.inner(self._padded(0, x, windows, there))))
        found: Tensor = self.outer(self._padded(1, y, windows, there))
        return found

    def _padded(
        self, number: int, x: Tensor, windows: list[Tensor] | None, there: Tensor | None
    ) -> Tensor:
        """Returns the inputs of a convolution with what is before and behind them."""
        if there is not None:
            x = x * there[..., None].to(x.dtype)
        if windows is not None:
            x = torch.cat([windows[number], x], 1)
            windows[number] = x[:, 1:]
            return x
        more = _KERNELS[number] - 1
        before = more if self.is_causal else more // 2
        return F.pad(x, (0, 0, before, more - before))


class TypedEncoderLayer(EncoderLayer):
    """Encoder layer whose convolutions do not read padding."""

    def forward(self, x: Tensor, mask: Any, there: Tensor | None = None) -> Tensor:
        """[B, S, H] -> [B, S, H]; masks of attention and of the data [B, S] bool."""
        x = self.attention_after(x, self.attention(self.attention_before(x), mask))
        is_separable = isinstance(self.feed_forward, SeparableFeedForward)
        return self.after_attention(x, *((None, there) if is_separable else ()))


@register_model
class TransformerMoe(Transformer):
    """Transformer with layers of full and local attention, convolutions and experts."""

    HParams = TransformerMoeHParams
    hparams: TransformerMoeHParams
    reads = (Text,)
    texts = (0, 1)
    reads_packed = False
    prepends = False

    def __init__(self, hparams: TransformerMoeHParams, features: Features) -> None:
        self._types = {side: hparams.layers(of_decoder=side) for side in (False, True)}
        self._next = {side: iter(types) for side, types in self._types.items()}
        encoder, decoder = map(len, self._types.values())
        counted = hparams.replace(num_encoder_layers=encoder, num_decoder_layers=decoder)
        super().__init__(counted, features)
        self.hparams = hparams

    def _encoder_layer(self) -> nn.Module:
        return self._typed(TypedEncoderLayer, of_decoder=False)

    def _decoder_layer(self) -> nn.Module:
        return self._typed(DecoderLayer, of_decoder=True, has_memory=self.has_encoder)

    def _typed(self, kind: Any, *, of_decoder: bool, **more: Any) -> nn.Module:
        """Returns the next layer of a side."""
        hparams = self.hparams
        layer_type = next(self._next[of_decoder])
        layer: nn.Module = kind(hparams.of_layer(layer_type), **more)
        if layer_type.network.startswith("sep"):
            is_causal = layer_type.network == "sepm"
            layer.feed_forward = SeparableFeedForward(hparams, is_causal=is_causal)
        return layer

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        for layer, kind in zip(self.encoder, self._types[False], strict=True):
            visible = mask
            if kind.attention.startswith("loc"):
                local = self._local_mask(joined.positions, is_masked=kind.attention == "locm")
                visible = never_empty(mask & local)
            x = layer(x, visible, joined.mask)
        return x

    def _run_decoder(
        self,
        x: Tensor,
        targets: ModelInput,
        mask: Tensor | None,
        memory: Tensor | None,
        memory_mask: Tensor | None,
    ) -> Tensor:
        for layer, kind in zip(self.decoder, self._types[True], strict=True):
            visible = mask
            if kind.attention == "locm":
                local = self._local_mask(torch.arange(x.size(1), device=x.device), is_masked=True)
                visible = local if mask is None else mask & local
            x = layer(x, visible, memory, memory_mask)
        return x

    def _caches(self, rows: int) -> list[KeyValueCache]:
        block = self.hparams.attention_loc_block_length
        return [
            dataclasses.replace(cache, block=block if kind.attention == "locm" else 0)
            for cache, kind in zip(super()._caches(rows), self._types[True], strict=True)
        ]

    def encode(self, batch: dict[str, Tensor]) -> TransformerState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        state = super().encode(batch)
        like, rows = state.caches[0].keys, state.caches[0].rows
        networks: list[Any] = [layer.feed_forward for layer in self.decoder]
        windows = [
            one.windows(like, rows) if isinstance(one, SeparableFeedForward) else []
            for one in networks
        ]
        return dataclasses.replace(state, windows=windows)
