"""Ids of a vocabulary: an embedding in, a softmax out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Feature, Text
from t2t_torch.hparam import HParams
from t2t_torch.layers.cross_entropy import cross_entropy, linear_cross_entropy
from t2t_torch.layers.masks import padding_mask
from t2t_torch.modality import Loss, Modality
from t2t_torch.text.encoder import PAD


class Embedding(nn.Module):
    """A table of vectors.  Id 0, the padding, is the zero vector whatever its row holds.

    Args:
      vocab_size: V, rows.
      hidden_size: H.
      scale: what a vector is multiplied by.
      symbol_dropout: probability of taking padding for an id; TRAIN only, and nothing is scaled up
        for it (tensor2tensor, `symbol_bottom`).
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, scale: float, symbol_dropout: float
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, hidden_size) * hidden_size**-0.5)
        self.scale = scale
        self.symbol_dropout = symbol_dropout

    def forward(self, ids: Tensor) -> Tensor:
        """[...] ids -> [..., H]."""
        if self.training and self.symbol_dropout:
            kept = torch.rand(ids.shape, device=ids.device) >= self.symbol_dropout
            ids = torch.where(kept, ids, PAD)
        present = (ids != PAD).to(self.weight.dtype) * self.scale
        return F.embedding(ids, self.weight) * present[..., None]


class Softmax(nn.Module):
    """Logits: the product with a table of vectors, no bias.

    Args:
      weight: [V, H]; an embedding's table where the two are shared.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., V] float32."""
        return F.linear(hidden, self.weight).float()


class TextModality(Modality):
    """Ids of a vocabulary: an embedding in, a softmax out; padding has no weight in the loss.

    Args:
      hparams: label_smoothing.
      bottom: the embedding.
      top: the softmax; None for an input.
    """

    serves = Text

    def __init__(self, hparams: HParams, bottom: Embedding, top: Softmax | None) -> None:
        super().__init__()
        self.bottom = bottom
        if top is not None:
            self.top = top
        self.label_smoothing = hparams.label_smoothing

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> TextModality:
        """Makes one that shares nothing; see `build_modalities`."""
        bottom = embedding(padded_size(feature, hparams), hparams)
        top = Softmax(embedding(padded_size(feature, hparams), hparams).weight)
        return cls(hparams, bottom, top if is_target else None)

    def mask(self, values: Tensor) -> Tensor:
        """Returns where there are ids.  [B, S] -> [B, S] bool."""
        return padding_mask(values)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the summed cross entropy and the tokens.  [B, T, V], [B, T]; smoothed in
        TRAIN.
        """
        label_smoothing = self.label_smoothing if self.training else 0.0
        present = (targets != PAD).float()
        if weights is not None:
            present = present * weights[:, None]
        losses = cross_entropy(logits, targets, label_smoothing)
        return Loss((losses * present).sum(), present.sum())

    def training_loss(self, hidden: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the loss of `loss(top(hidden), targets)`, without making all logits.  [B, T,
        H].
        """
        if weights is not None:
            return self.loss(self.top(hidden), targets, weights)
        label_smoothing = self.label_smoothing if self.training else 0.0
        present = targets.flatten().nonzero().squeeze(1)  # [tokens]; PAD is 0
        total = linear_cross_entropy(
            hidden.flatten(0, 1).index_select(0, present),
            self.top.weight,  # type: ignore[arg-type]
            targets.flatten().index_select(0, present),
            label_smoothing,
        )
        return Loss(total, total.new_tensor(float(len(present))))


def padded_size(feature: Feature, hparams: HParams) -> int:
    """Returns the rows of a feature's table: its vocabulary, rounded up to `vocab_divisor`."""
    return -(-feature.vocab_size // hparams.vocab_divisor) * hparams.vocab_divisor


def embedding(vocab_size: int, hparams: HParams) -> Embedding:
    """Returns a new table of the hparams' width."""
    scale = hparams.hidden_size**0.5 if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
    return Embedding(vocab_size, hparams.hidden_size, scale, hparams.symbol_dropout)
