"""The Transformer's encoder layer and its parts: sublayers, positions, joined inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.features.feature import find_alignments, select_sequences
from t2t_torch.hparam_groups import TransformerLayerHParams
from t2t_torch.layers.attention import LocalMask, RelativeKeys, RMSNorm, SelfAttention
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.mixture_of_experts import ACTIVATIONS, MixtureOfExperts
from t2t_torch.layers.tokens import ModelInputs, WordPlaces


def make_norm(hparams: TransformerLayerHParams) -> nn.Module:
    """Returns a norm of vectors of `hidden_size`: layer norm, or root mean square (`norm_type`)."""
    kind = RMSNorm if hparams.norm_type == "rms" else nn.LayerNorm
    return kind(hparams.hidden_size, eps=hparams.norm_epsilon)


class _Operations(nn.Module):
    """Norm and dropout of a sequence of letters.

    Args:
      hparams: hidden_size, norm_type, norm_epsilon, layer_prepostprocess_dropout.

    Attributes:
      field: name of the hyperparameter with the sequence.

    Raises:
      HParamsError: the sequence repeats a letter.
    """

    field: ClassVar[str]

    def __init__(self, hparams: TransformerLayerHParams) -> None:
        super().__init__()
        written: str = getattr(hparams, self.field)  # its letters are checked by its pattern
        self.sequence = "" if written == "none" else written
        if len(set(self.sequence)) != len(self.sequence):
            raise HParamsError(
                f"{self.field}={written!r}: expected each letter at most once (n layer norm, d "
                "dropout, a add the residual)."
            )
        if "n" in self.sequence:
            self.norm = make_norm(hparams)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)


class Preprocess(_Operations):
    """Operations of `layer_preprocess_sequence` in its order: n is a norm, d dropout.

    Pre-norm is "n" before and "da" after; post-norm is "none" before and "dan" after.

    Args:
      hparams: hidden_size, norm_type, norm_epsilon, layer_preprocess_sequence,
        layer_prepostprocess_dropout.
    """

    field = "layer_preprocess_sequence"
    __call__: Callable[..., Tensor]

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        for letter in self.sequence:
            x = self.norm(x) if letter == "n" else self.dropout(x)
        return x


class Postprocess(_Operations):
    """Operations of `layer_postprocess_sequence`: those of `Preprocess`, and a adds the input.

    Args:
      hparams: hidden_size, norm_type, norm_epsilon, layer_postprocess_sequence,
        layer_prepostprocess_dropout.
    """

    field = "layer_postprocess_sequence"
    __call__: Callable[..., Tensor]

    def forward(self, residual: Tensor, x: Tensor) -> Tensor:
        """Returns the sublayer's result `x` joined with its input `residual`.  [B, T, H] each."""
        for letter in self.sequence:
            if letter == "a":
                x = residual + x
            else:
                x = self.norm(x) if letter == "n" else self.dropout(x)
        return x


def stack_output(hparams: TransformerLayerHParams) -> Preprocess:
    """Returns the operations after the last layer: those before a sublayer, or none."""
    if not hparams.output_norm:
        hparams = hparams.replace(layer_preprocess_sequence="none")
    return Preprocess(hparams)


class FeedForward(nn.Module):
    """Two linear maps with an activation function between.  Vaswani et al. 2017, section 3.3.

    Gated: Dauphin et al. 2017, arXiv:1612.08083; Shazeer 2020, arXiv:2002.05202.

    Args:
      hparams: hidden_size, filter_size, relu_dropout (of the activations), ffn_activation,
        ffn_gated, ffn_bias.
    """

    def __init__(self, hparams: TransformerLayerHParams) -> None:
        super().__init__()
        size, width, bias = hparams.hidden_size, hparams.filter_size, hparams.ffn_bias
        self.inner = nn.Linear(size, width, bias=bias)
        if hparams.ffn_gated:
            self.gate = nn.Linear(size, width, bias=bias)
        self.activation = ACTIVATIONS[hparams.ffn_activation]
        self.gated = hparams.ffn_gated
        self.dropout = Dropout(hparams.relu_dropout)
        self.outer: Callable[[Tensor], Tensor] = nn.Linear(width, size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        y = self.activation(self.inner(x))
        if self.gated:
            y = y * self.gate(x)
        return self.outer(self.dropout(y))


def feed_forward(hparams: TransformerLayerHParams) -> nn.Module:
    """Returns a feed-forward sublayer, as `ffn_layer` says."""
    is_dense = hparams.ffn_layer == "dense_relu_dense"
    return FeedForward(hparams) if is_dense else MixtureOfExperts(hparams)


def self_attention(
    hparams: TransformerLayerHParams, max_relative_position: int = 0
) -> SelfAttention:
    """Returns a layer of self-attention.

    Args:
      hparams: sizes, heads, dropout, biases, norms and positions.
      max_relative_position: of `SelfAttention`.
    """
    pos = hparams.pos
    return SelfAttention(
        hparams.hidden_size,
        hparams.num_heads,
        hparams.attention_dropout,
        max_relative_position,
        bias=hparams.attention_bias,
        num_key_value_heads=hparams.num_key_value_heads,
        qk_norm=hparams.qk_norm,
        positions=pos if pos == "rotary" or pos == "alibi" else "none",
    )


def with_relative_keys(attention: SelfAttention, hparams: Any) -> SelfAttention:
    """Adds the vectors of `self_attention_type=dot_product_relative_v2` to an attention."""
    if hparams.self_attention_type == "dot_product_relative_v2":
        size = hparams.hidden_size // attention.num_heads
        attention.relative = RelativeKeys(attention.num_heads, size, hparams.max_relative_position)
    return attention


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network.  Vaswani et al. 2017, section 3.1.

    Args:
      hparams: sizes, dropouts, and what stands before and after each sublayer.
      max_relative_position: of `SelfAttention`.
      attention: the self-attention, if not the one of the hyperparameters.
    """

    def __init__(
        self,
        hparams: TransformerLayerHParams,
        max_relative_position: int = 0,
        attention: Any = None,
    ) -> None:
        super().__init__()
        self.attention_before = Preprocess(hparams)
        self.attention = attention or self_attention(hparams, max_relative_position)
        self.attention_after = Postprocess(hparams)
        self.feed_forward_before = Preprocess(hparams)
        self.feed_forward = feed_forward(hparams)
        self.feed_forward_after = Postprocess(hparams)

    def forward(self, x: Tensor, mask: Tensor | LocalMask | None) -> Tensor:
        """[B, S, H] -> [B, S, H]; `mask` [B, 1, 1 or S, S] bool."""
        x = self.attention_after(x, self.attention(self.attention_before(x), mask))
        return self.after_attention(x)

    def after_attention(self, x: Tensor, *more: Any) -> Tensor:
        """Runs the feed-forward sublayer; `more` is what its network reads besides.  [B, S, H]."""
        return self.feed_forward_after(x, self.feed_forward(self.feed_forward_before(x), *more))


_OF_ATTENTION = ("none", "rotary", "alibi")  # kinds of positions without vectors of embeddings
_MAX_TIMESCALE = 1.0e4  # tensor2tensor, `get_timing_signal_1d`


def sinusoids(positions: Tensor, hidden_size: int, frequency_step: float | None = None) -> Tensor:
    """Returns the sines, then the cosines of positions, not interleaved.

    Wavelengths grow from 2 pi in a geometric row.  Vaswani et al. 2017, section 3.5, with the two
    halves side by side.

    Args:
      positions: [...] integers, from 0.
      hidden_size: width of the signal.
      frequency_step: logarithm of the quotient of neighbouring frequencies; default: so that the
        last wavelength is 2 pi * 10,000, as in tensor2tensor's timing signal and in fairseq.

    Returns:
      [..., hidden_size] float32; an odd last channel is 0.
    """
    scales = hidden_size // 2
    if frequency_step is None:
        frequency_step = math.log(_MAX_TIMESCALE) / max(scales - 1, 1)
    steps = torch.arange(scales, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(steps * -frequency_step)  # [..., scales]
    return F.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, hidden_size % 2))


class Positions(nn.Module):
    """Adds a vector to each embedding by its position; `pos` of the hyperparameters.

    Args:
      hparams: hidden_size, norm_epsilon, pos, position_offset, embedding_norm.
      limit: number of positions; later ones have the vector of the last.  0: no limit.

    Raises:
      HParamsError: positions are learned and have no limit.
    """

    def __init__(self, hparams: TransformerLayerHParams, limit: int) -> None:
        super().__init__()
        self.kind, self.limit = hparams.pos, limit
        self.offset = hparams.position_offset
        if self.kind == "learned":
            if not limit:
                raise HParamsError(
                    "pos=learned has a table of positions. Set its size: "
                    "--hparams=max_source_positions=512,max_target_positions=512."
                )
            size = hparams.hidden_size
            self.table = nn.Parameter(torch.randn(limit, size) * size**-0.5)
        self.norm: nn.Module | None = None
        if hparams.embedding_norm:
            self.norm = make_norm(hparams)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Returns embeddings with positions, normalized if that is set.

        Args:
          x: [B, T, H].
          positions: [T] or [B, T] integers; None: from 0.
        """
        if self.kind not in _OF_ATTENTION:
            if positions is None:
                positions = torch.arange(x.size(1), device=x.device)
            x = x + self.vectors(positions, x.size(-1))
        return x if self.norm is None else self.norm(x)

    def vectors(self, positions: Tensor, size: int) -> Tensor:
        """Returns the vectors of positions.  [...] -> [..., size]."""
        if self.limit:
            positions = positions.clamp(max=self.limit - 1)
        if self.kind == "learned":
            return F.embedding(positions, self.table)
        positions = positions + self.offset
        if self.kind == "timing":
            return sinusoids(positions, size)
        signal = sinusoids(positions, size, 2 * math.log(_MAX_TIMESCALE) / size)
        if self.kind == "sinusoids_interleaved":
            halves = torch.unflatten(signal[..., : size // 2 * 2], -1, (2, -1))
            signal = F.pad(halves.transpose(-1, -2).flatten(-2), (0, size % 2))
        return signal


class Joined(NamedTuple):
    """Several inputs as one sequence.

    Attributes:
      x: [B, S, H].
      mask: [B, S] bool.
      places: for each input the range of positions that it has, [first, last).
      positions: of each element in its own input, or in its packed example; [S] or [B, S].
    """

    x: Tensor
    mask: Tensor
    places: dict[str, tuple[int, int]]
    positions: Tensor


def check_unread(hparams: TransformerLayerHParams, names: Sequence[str], model: str) -> None:
    """Checks that hyperparameters that a model's layers do not read have their defaults.

    Args:
      hparams: hyperparameters.
      names: those that are not read.
      model: name of the model, for the message.

    Raises:
      HParamsError: another value is set.
    """
    for name in names:
        default = type(hparams).model_fields[name].default
        if (value := getattr(hparams, name)) != default:
            raise HParamsError(f"{name}={value}: layers of {model} have {default!r} only.")


NUM_SPACES = 32
"""Rows of tensor2tensor's table of target spaces."""


class JoinInputs(nn.Module):
    """Puts the inputs of an example into one sequence.

    Each text has positions of its own and, if there are several inputs, a vector that says which
    it is.  What is known of each word (its shape, its characters) is added at the word's first id.

    Args:
      features: the problem's; all inputs are joined.
      hidden_size: H.
      positions: what is added to each text.

    Attributes:
      names: the inputs that have positions of their own, in their order.
      places: where the words of texts stand.
    """

    def __init__(self, features: Features, hidden_size: int, positions: Positions) -> None:
        super().__init__()
        inputs = features.inputs
        self.positions = positions
        self._of_words = find_alignments(inputs)
        self.names = [name for name in inputs if name not in self._of_words]
        self._texts = select_sequences(inputs).keys() - self._of_words
        self.places = WordPlaces(features)
        if len(self.names) > 1:
            table = torch.randn(len(self.names), hidden_size) * hidden_size**-0.5
            self.which = nn.Parameter(table)

    def forward(
        self,
        features: ModelInputs,
        names: Sequence[str] | None = None,
        as_if: Mapping[str, str] | None = None,
    ) -> Joined:
        """Joins the inputs, or those that are named.

        Args:
          features: the output of `T2TModel.bottom`.
          names: of inputs, in the order in which they are joined; None is all.
          as_if: for an input the one whose vector says which it is, if not its own.
        """
        parts, positions, places = [], [], {}
        masks: list[Tensor] = []
        end = 0
        for name in self.names if names is None else names:
            which = None
            if len(self.names) > 1:
                which = self.which[self.names.index((as_if or {}).get(name, name))]
            x = self._embedded(name, features, which)
            parts.append(x)
            masks.append(features[name].mask)
            own = features[name].positions
            positions.append(torch.arange(x.size(1), device=x.device) if own is None else own)
            places[name] = (end, end + x.size(1))
            end += x.size(1)
        rank = max(own.dim() for own in positions)
        positions = [own if own.dim() == rank else own.expand(x.size(0), -1) for own in positions]
        return Joined(torch.cat(parts, 1), torch.cat(masks, 1), places, torch.cat(positions, -1))

    def segments(self, features: ModelInputs) -> Tensor | None:
        """Returns the segment of each position, all inputs; None if nothing is packed.  [B, S]."""
        known = [its for its in [features[name].segments for name in self.names] if its is not None]
        return torch.cat(known, 1) if known else None

    def _embedded(self, name: str, features: ModelInputs, which: Tensor | None) -> Tensor:
        """Returns an input with what is known of its words, and its positions.

        Args:
          name: the input.
          features: all inputs.
          which: vector that says which input it is, [H].

        Returns:
          [B, S, H].
        """
        x = features[name].embedded
        for word_feature, text in self._of_words.items():
            if text == name:
                words = features[word_feature].embedded
                x = x + self.places.at_ids(name, words, x, features).to(x.dtype)
        is_normalized = name in self._texts and self.positions.norm is not None
        if which is not None and is_normalized:
            x = x + which
        if name in self._texts:
            x = self.positions(x, features[name].positions)
        return x + which if which is not None and not is_normalized else x
