"""Image Transformer: generates pictures value by value, with local attention.

Parmar et al. 2018, arXiv:1802.05751, with attention in one dimension; tensor2tensor,
models/image_transformer.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, PixelSequence, Text
from t2t_torch.hparams.imagetransformer import ImagetransformerHParams
from t2t_torch.layers import pooling
from t2t_torch.layers.attention import KeyValueCache, SelfAttention, join_heads
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.recurrent import RowState
from t2t_torch.layers.transformer_layer import EncoderLayer, Preprocess, check_unread, sinusoids
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import EOS, NUM_RESERVED

_UNREAD = ("ffn_layer", "qk_norm", "num_key_value_heads", "embedding_norm", "output_norm")
"""Hyperparameters that its layers do not read."""


class LocalAttention(SelfAttention):
    """Causal attention to the block of a position and the one before it.

    tensor2tensor's `local_mask_right`: a sequence shorter than two blocks is one block.

    Args:
      hparams: hidden_size, num_heads, attention_dropout, attention_bias, block_length.
      length: number of positions of a sequence.
    """

    def __init__(self, hparams: ImagetransformerHParams, length: int) -> None:
        super().__init__(
            hparams.hidden_size,
            hparams.num_heads,
            hparams.attention_dropout,
            bias=hparams.attention_bias,
        )
        is_short = length < 2 * hparams.block_length
        self.block_length = length if is_short else hparams.block_length

    def forward(self, x: Tensor, mask: Any = None, *, causal: bool = True) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        rows, length, _ = x.shape
        size = self.block_length
        blocks = -(-length // size)
        x = F.pad(x, (0, 0, 0, blocks * size - length))
        q, k, v = (
            torch.unflatten(part, 2, (blocks, size)).transpose(1, 2).flatten(0, 1)
            for part in self._project(x)
        )  # [B * blocks, N, size, D] each
        keys, values = (self._with_block_before(part, blocks) for part in (k, v))
        place = torch.arange(size, device=x.device)
        allowed = torch.arange(-size, size, device=x.device) <= place[:, None]  # [size, 2 size]
        is_first = torch.arange(rows * blocks, device=x.device) % blocks == 0
        exists = torch.arange(2 * size, device=x.device) >= size
        seen = allowed & (exists | ~is_first[:, None, None, None])  # [B * blocks, 1, size, 2 size]
        mixed = join_heads(self.weights(q, keys, values, seen))
        return self.output(torch.unflatten(mixed, 0, (rows, blocks)).flatten(1, 2)[:, :length])

    def _with_block_before(self, x: Tensor, blocks: int) -> Tensor:
        """Returns each block after the one before it.  -> [B * blocks, N, 2 size, D]."""
        own = torch.unflatten(x, 0, (-1, blocks))
        before = F.pad(own, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]  # [B, blocks, N, size, D]
        return torch.cat([before, own], 3).flatten(0, 1)

    def next(self, x: Tensor, cache: KeyValueCache, position: int) -> Tensor:
        """Attends from one new position.  [R, 1, H] -> [R, 1, H].

        Args:
          x: the position.
          cache: extended by it.
          position: its index.
        """
        q, k, v = self._project(x)
        first = max(0, position // self.block_length - 1) * self.block_length
        keys, values = (part[first:].permute(1, 2, 0, 3) for part in cache.append(k, v))
        out: Tensor = self.output(join_heads(self.weights(q, keys, values)))
        return out


class Layer(EncoderLayer):
    """Local attention and a feed-forward sublayer.

    Args:
      hparams: those of the model.
      length: number of positions of a sequence.
    """

    attention: LocalAttention

    def __init__(self, hparams: ImagetransformerHParams, length: int) -> None:
        super().__init__(hparams, attention=LocalAttention(hparams, length))

    def next(self, x: Tensor, cache: KeyValueCache, position: int) -> Tensor:
        """Runs one new position; see `LocalAttention.next`.  [R, 1, H] -> [R, 1, H]."""
        attended = self.attention.next(self.attention_before(x), cache, position)
        return self.after_attention(self.attention_after(x, attended))


@dataclasses.dataclass
class ImageState(RowState):
    """Decoding state of R rows; see `State`.

    Attributes:
      caches: key-value cache of each layer.
      given: vector of the inputs, [R, 1, H].
      position: index of the next value.
    """

    caches: list[KeyValueCache]
    given: Tensor
    position: int = 0


@register_model
class Imagetransformer(T2TModel):
    """Generates a picture, given a class or nothing.

    Positions before the end allow only values of pixels, the end only `EOS`: so the loss is that of
    the values alone.
    """

    HParams = ImagetransformerHParams
    hparams: ImagetransformerHParams
    produces = (PixelSequence,)
    reads = (Text,)
    texts = (0, 1)

    def __init__(self, hparams: ImagetransformerHParams, features: Features) -> None:
        if hparams.unconditional:
            features = dataclasses.replace(features, inputs={})
        if hparams.pos not in ("timing", "none"):
            raise HParamsError(f"pos={hparams.pos}: imagetransformer has timing and none.")
        for name in ("confidence_penalty", "r_drop_alpha", "r3f_weight"):
            if getattr(hparams, name):
                raise HParamsError(
                    f"{name}={getattr(hparams, name)} reads the probabilities of all ids, and some "
                    f"are not possible at each place of a picture. Set {name}=0."
                )
        check_unread(hparams, _UNREAD, "imagetransformer")
        super().__init__(hparams, features)
        (image,) = features.targets.values()
        assert isinstance(image, PixelSequence)
        self.size, self.columns = image.size, image.width * image.channels
        count = hparams.num_decoder_layers or hparams.num_hidden_layers
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.decoder: Any = nn.ModuleList(Layer(hparams, self.size) for _ in range(count))
        self.decoder_output = Preprocess(hparams)
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        (target,) = self.features.targets
        x = F.pad(features[target].embedded, (0, 0, 1, 0))[:, :-1]
        places = torch.arange(x.size(1), device=x.device)
        x = self.dropout(x + self._positions(places) + self._given(features, x))
        for layer in self.decoder:
            x = layer(x, None)
        mask = self._allowed(places).expand(x.size(0), -1, -1)
        return {target: Hidden(self.decoder_output(x), mask)}

    def encode(self, batch: dict[str, Tensor]) -> ImageState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        inputs = {name: ids for name, ids in batch.items() if name in self.features.inputs}
        first = next(iter(batch.values()))
        like = next(self.parameters()).new_zeros(len(first), 1, self.hparams.hidden_size)
        given = self._given(self.bottom(inputs), like)
        caches = [layer.attention.cache(len(first)) for layer in self.decoder]
        return ImageState(caches, given + like)

    def step(self, ids: Tensor, state: ImageState) -> tuple[Tensor, ImageState]:
        """Runs a decoding step; see `T2TModel.step`."""
        (target,) = self.features.targets
        position = state.position
        place = torch.tensor([position], device=ids.device)
        x = state.given + self._positions(place)
        if position:
            x = x + self.modality(target).bottom(ids[:, None], position - 1)  # type: ignore[misc]
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x = layer.next(x, cache, position)
        states = self.decoder_output(x).squeeze(1)
        mask = self._allowed(place).expand(len(ids), -1)
        after = dataclasses.replace(state, position=position + 1)
        return self.top(Hidden(states, mask), target), after

    def _given(self, features: ModelInputs, x: Tensor) -> Tensor:
        """Returns the mean vector of the inputs, zeros without any.  -> [B, 1, H]."""
        given = x.new_zeros(1, 1, x.size(2))
        for name in self.features.inputs:
            one = features[name]
            given = given + pooling.mean(one.embedded, one.mask)[:, None]
        return given

    def _allowed(self, places: Tensor) -> Tensor:
        """Returns which ids are possible at places of a picture.  [T] -> [T, V] bool."""
        (image,) = self.features.targets.values()
        ids = torch.arange(image.vocab_size, device=places.device)
        is_end = (places >= self.size)[:, None]
        return torch.where(is_end, ids == EOS, ids >= NUM_RESERVED)

    def _positions(self, places: Tensor) -> Tensor:
        """Returns waves of the row and of the column.  [T] -> [T, H].

        tensor2tensor's `add_timing_signal_nd` in two dimensions; a column is a value of a pixel.
        """
        size = self.hparams.hidden_size
        if self.hparams.pos == "none":
            return torch.zeros(len(places), size, device=places.device)
        width = size // 4 * 2
        both = places // self.columns, places % self.columns
        waves = torch.cat([sinusoids(place, width) for place in both], 1)
        return F.pad(waves, (0, size - 2 * width))
