"""The Transformer's encoder layer and its parts: sublayers, positions, joined inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.hparam import HParams
from t2t_torch.layers.attention import SelfAttention
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.tokens import ModelInputs, WordPlaces

# What stands before and after each sublayer: norms, dropout, the residual connection.


class Preprocess(nn.Module):
    """Operations of `layer_preprocess_sequence` in its order: n is a layer norm, d dropout.

    Pre-norm is "n" before and "da" after; post-norm is "none" before and "dan" after.

    Args:
      hparams: hidden_size, norm_epsilon, layer_preprocess_sequence, layer_prepostprocess_dropout.

    Raises:
      HParamsError: the sequence holds another letter.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__()
        self.sequence = _parse(hparams, "layer_preprocess_sequence", "nd")
        if "n" in self.sequence:
            self.norm = nn.LayerNorm(hparams.hidden_size, eps=hparams.norm_epsilon)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        for letter in self.sequence:
            x = self.norm(x) if letter == "n" else self.dropout(x)
        return x


class Postprocess(nn.Module):
    """Operations of `layer_postprocess_sequence`: those of `Preprocess`, and a adds the input.

    Args:
      hparams: hidden_size, norm_epsilon, layer_postprocess_sequence, layer_prepostprocess_dropout.

    Raises:
      HParamsError: the sequence holds another letter.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__()
        self.sequence = _parse(hparams, "layer_postprocess_sequence", "dan")
        if "n" in self.sequence:
            self.norm = nn.LayerNorm(hparams.hidden_size, eps=hparams.norm_epsilon)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)

    def forward(self, residual: Tensor, x: Tensor) -> Tensor:
        """Returns the sublayer's result `x` joined with its input `residual`.  [B, T, H] each."""
        for letter in self.sequence:
            if letter == "a":
                x = residual + x
            else:
                x = self.norm(x) if letter == "n" else self.dropout(x)
        return x


def _parse(hparams: HParams, field: str, letters: str) -> str:
    sequence: str = getattr(hparams, field)
    if sequence == "none":
        return ""
    unknown = sorted(set(sequence) - set(letters))
    if unknown or len(set(sequence)) != len(sequence):
        raise HParamsError(
            f"{field}={sequence!r}: expected 'none' or letters of {letters!r}, each at most once "
            "(n layer norm, d dropout, a add the residual)."
        )
    return sequence


# The position-wise network between attentions.


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between.  Vaswani et al. 2017, section 3.3.

    Args:
      hidden_size: H, in and out.
      filter_size: F, in between.
      dropout: probability of zeroing an activation after the ReLU; TRAIN only.
    """

    def __init__(self, hidden_size: int, filter_size: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, filter_size)
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(filter_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        return self.outer(self.dropout(self.inner(x).relu()))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network.  Vaswani et al. 2017, section 3.1.

    Args:
      hparams: hidden_size, and what stands before and after each sublayer.
      num_heads: N.
      filter_size: F.
      attention_dropout: probability of zeroing an attention weight.
      relu_dropout: probability of zeroing a unit inside the feed-forward network.
      max_relative_position: of `SelfAttention`.
    """

    def __init__(
        self,
        hparams: HParams,
        *,
        num_heads: int,
        filter_size: int,
        attention_dropout: float,
        relu_dropout: float,
        max_relative_position: int = 0,
    ) -> None:
        super().__init__()
        self.attention_before = Preprocess(hparams)
        self.attention = SelfAttention(
            hparams.hidden_size, num_heads, attention_dropout, max_relative_position
        )
        self.attention_after = Postprocess(hparams)
        self.feed_forward_before = Preprocess(hparams)
        self.feed_forward = FeedForward(hparams.hidden_size, filter_size, relu_dropout)
        self.feed_forward_after = Postprocess(hparams)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]; `mask` [B, 1, 1 or S, S] bool."""
        x = self.attention_after(x, self.attention(self.attention_before(x), mask))
        return self.feed_forward_after(x, self.feed_forward(self.feed_forward_before(x)))


# Where a token stands.


_MAX_TIMESCALE = 1.0e4  # tensor2tensor, `get_timing_signal_1d`


def sinusoids(positions: Tensor, hidden_size: int) -> Tensor:
    """Returns tensor2tensor's timing signal: sines, then cosines, not interleaved.

    Wavelengths grow from 2 pi to 2 pi * 10,000 in a geometric row.  Vaswani et al. 2017, section
    3.5, with the two halves side by side.

    Args:
      positions: [...] integers, from 0.
      hidden_size: width of the signal.

    Returns:
      [..., hidden_size] float32; an odd last channel is 0.
    """
    scales = hidden_size // 2
    increment = math.log(_MAX_TIMESCALE) / max(scales - 1, 1)
    steps = torch.arange(scales, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(steps * -increment)  # [..., scales]
    signal = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return torch.nn.functional.pad(signal, (0, hidden_size % 2))


# The inputs of an example as one sequence: texts one after another, numbers, pictures.


class Joined(NamedTuple):
    """Several inputs as one sequence.

    Attributes:
      x: [B, S, H].
      mask: [B, S] bool.
      places: for each input the range of positions that it has, [first, last).
    """

    x: Tensor
    mask: Tensor
    places: dict[str, tuple[int, int]]


NUM_SPACES = 32
"""Rows of tensor2tensor's table of target spaces."""


class JoinInputs(nn.Module):
    """Puts the inputs of an example into one sequence.

    Each text has positions of its own and, if there are several inputs, a vector that says which
    it is.  What is known of each word (its shape, its characters) is added at the word's first id.

    Args:
      features: the problem's; all inputs are joined.
      hidden_size: H.
      timing: whether sinusoids are added to texts.

    Attributes:
      names: the inputs that have positions of their own, in their order.
      places: where the words of texts stand.
    """

    def __init__(self, features: Features, hidden_size: int, *, timing: bool) -> None:
        super().__init__()
        inputs = features.inputs
        self._timing = timing
        self._of_words = {name: f.aligned_to for name, f in inputs.items() if f.aligned_to}
        self.names = [name for name in inputs if name not in self._of_words]
        self._texts = {name for name in self.names if inputs[name].is_sequence}
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
        parts, masks = [], []
        places = {}
        end = 0
        for name in self.names if names is None else names:
            x = self._embedded(name, features)
            if len(self.names) > 1:
                x = x + self.which[self.names.index((as_if or {}).get(name, name))]
            parts.append(x)
            masks.append(features[name].mask)
            places[name] = (end, end + x.size(1))
            end += x.size(1)
        return Joined(torch.cat(parts, 1), torch.cat(masks, 1), places)

    def segments(self, features: ModelInputs) -> Tensor | None:
        """Returns the segment of each position, all inputs; None if nothing is packed.  [B, S]."""
        segments = [features[name].segments for name in self.names]
        known = [its for its in segments if its is not None]
        return torch.cat(known, 1) if known else None

    def _embedded(self, name: str, features: ModelInputs) -> Tensor:
        """Returns an input with what is known of its words, and its positions.  [B, S, H]."""
        x = features[name].embedded
        for word_feature, text in self._of_words.items():
            if text == name:
                words = features[word_feature].embedded
                x = x + self.places.at_ids(name, words, x, features).to(x.dtype)
        if not self._timing or name not in self._texts:
            return x
        positions = features[name].positions
        if positions is None:
            positions = torch.arange(x.size(1), device=x.device)
        return x + sinusoids(positions, x.size(-1))
