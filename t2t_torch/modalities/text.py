"""Ids of a vocabulary: an embedding in, a softmax out."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Feature, Text
from t2t_torch.hparam import HParams
from t2t_torch.layers.chunks import sum_in_chunks
from t2t_torch.layers.cross_entropy import linear_cross_entropy, rows_at_a_time
from t2t_torch.layers.masks import padding_mask
from t2t_torch.modality import Beside, Hidden, Loss, Modality
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
      bottom: the embedding.
      top: the softmax; None for an input.
    """

    serves = Text
    default_loss = "cross_entropy"
    is_distribution = True

    def __init__(self, bottom: Embedding, top: Softmax | None) -> None:
        super().__init__()
        self.bottom = bottom
        if top is not None:
            self.top = top

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> TextModality:
        """Makes one that shares nothing; see `build_modalities`."""
        bottom = embedding(padded_size(feature, hparams), hparams)
        top = Softmax(embedding(padded_size(feature, hparams), hparams).weight)
        return cls(bottom, top if is_target else None)

    def mask(self, values: Tensor) -> Tensor:
        """Returns where there are ids.  [B, S] -> [B, S] bool."""
        return padding_mask(values)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 where there are ids.  [B, T] -> [B, T]."""
        return (targets != PAD).float()

    def training_loss(
        self,
        hidden: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        beside: Beside | None = None,
    ) -> Loss:
        """Returns what is trained on, without ever making all logits.  [B, T, H]."""
        objective, beside = self.objective, beside or Beside()
        assert objective is not None
        present = _present(targets)
        if present is None:
            counted = self.counted(targets)
            weights = counted if weights is None else counted * weights[:, None]
        elif weights is not None:
            weights = weights[:, None].expand_as(targets)

        def rows(values: Tensor) -> Tensor:
            flat = values.flatten(0, 1)
            return flat if present is None else flat.index_select(0, present)

        ids = rows(targets)
        row_weights = None if weights is None else rows(weights)
        label_smoothing = objective.loss.label_smoothing_alone if objective.is_plain else None
        if label_smoothing is not None and beside.taught is None:
            total = linear_cross_entropy(
                rows(hidden), self._table, ids, label_smoothing, row_weights
            )
        else:
            taught = None if beside.taught is None else rows(beside.taught.states)
            states = [rows(one) for one in (hidden, *beside.passes)]
            total = sum_in_chunks(
                functools.partial(self._sum, beside.teacher),
                [ids, row_weights, taught, *states],
                rows_at_a_time(len(self._table), states[0].element_size(), hidden.device),
            )
        weight = total.new_tensor(float(len(ids))) if row_weights is None else row_weights.sum()
        return Loss(total, weight)

    def _sum(
        self,
        teacher: Modality | None,
        ids: Tensor,
        row_weights: Tensor | None,
        taught: Tensor | None,
        *states: Tensor,
    ) -> Tensor:
        """Returns what is trained on, summed over positions.  [N], [N], [N, H], [N, H] each."""
        guided = None
        if teacher is not None and taught is not None:
            with torch.no_grad():
                guided = teacher.top(taught)
        logits = [self.top(one) for one in states]
        values = self.training_values(logits, ids, guided, 1)
        return values.sum() if row_weights is None else (values * row_weights).sum()

    @torch.no_grad()
    def sample(self, hidden: Hidden) -> Tensor:
        """Returns an id drawn for each position by its probability, never `PAD`.  -> [B, T]."""
        states = hidden.states.flatten(0, 1)
        drawn = []
        chunk = rows_at_a_time(len(self._table), states.element_size(), states.device)
        for rows in states.split(chunk):
            logits = self.top(rows)
            # The largest of logits and Gumbel noise is a draw from the softmax.
            noise = torch.empty_like(logits).exponential_().log()
            logits = logits - noise
            logits[:, PAD] = -torch.inf
            drawn.append(logits.argmax(-1))
        return torch.cat(drawn).view(hidden.states.shape[:2])

    @property
    def _table(self) -> Tensor:
        table: Tensor = self.top.weight  # type: ignore[assignment]
        return table


def _present(targets: Tensor) -> Tensor | None:
    """Returns the positions that are no padding, [tokens], on a CPU; None is all positions.

    On a GPU their number would be waited for; there padding is computed, too, with no weight.
    """
    if targets.device.type != "cpu":
        return None
    return targets.flatten().nonzero().squeeze(1)  # PAD is 0


def padded_size(feature: Feature, hparams: HParams) -> int:
    """Returns the rows of a feature's table: its vocabulary, rounded up to `vocab_divisor`."""
    return -(-feature.vocab_size // hparams.vocab_divisor) * hparams.vocab_divisor


def embedding(vocab_size: int, hparams: HParams) -> Embedding:
    """Returns a new table of the hparams' width."""
    scale = hparams.hidden_size**0.5 if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
    return Embedding(vocab_size, hparams.hidden_size, scale, hparams.symbol_dropout)
