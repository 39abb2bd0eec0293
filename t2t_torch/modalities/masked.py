"""Modality of hidden tokens: a softmax that shares the table of the text's embeddings.

Devlin et al. 2019, arXiv:1810.04805: a hidden state is transformed before it is compared with the
embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import UsageError
from t2t_torch.features import MaskedTokens
from t2t_torch.hparam import HParams
from t2t_torch.modalities.text import Softmax, TextModality, embedding
from t2t_torch.modality import BatchPrediction, Hidden, Modality


class TiedSoftmax(Softmax):
    """Output layer of the logits of hidden tokens.

    Args:
      weight: embeddings, [V', E].
      width: of the hidden states.
      order: rows of `weight` of the V ids; None: all rows in their order.
    """

    order: Tensor | None

    def __init__(self, weight: nn.Parameter, width: int, order: Tensor | None = None) -> None:
        super().__init__(weight)
        size = len(weight) if order is None else len(order)
        self.bias = nn.Parameter(torch.zeros(size))
        self.transform = nn.Linear(width, weight.size(1))
        self.norm = nn.LayerNorm(weight.size(1))
        self.register_buffer("order", order, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., V] float32."""
        made, rows = self.as_product(hidden)
        return F.linear(made, rows).float()

    def as_product(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Returns hidden states and a matrix with whose product they give the logits."""
        assert self.bias is not None
        hidden = self.norm(F.gelu(self.transform(hidden)))
        rows = self.weight if self.order is None else self.weight[self.order]
        ones = hidden.new_ones(*hidden.shape[:-1], 1)
        return torch.cat([hidden, ones], -1), torch.cat([rows, self.bias[:, None]], 1)


class MaskedTokensModality(TextModality):
    """Modality of hidden tokens; tokens that are not hidden have no weight."""

    serves = MaskedTokens

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> MaskedTokensModality:
        """Creates a modality with a table of its own, in place of which `share` puts another."""
        return cls(None, TiedSoftmax(embedding(feature, hparams).weight, hparams.hidden_size))

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns this class: the states of a body are never logits of hidden tokens."""
        return cls

    def share(self, weight: nn.Parameter, order: Tensor | None = None) -> None:
        """Takes the embeddings of the text; see `TiedSoftmax`."""
        self.top = TiedSoftmax(weight, self.top.transform.in_features, order)

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the output of `top`; padding has no weight in a loss."""
        logits: Tensor = self.top(hidden.states)
        return logits

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Raises UsageError: texts to predict for have no hidden tokens."""
        raise UsageError(
            "this model restores tokens that are hidden while a text is read, and predicts nothing "
            "else. Let it begin another one:  t2t-trainer --problem=OTHER --warm_start_from=RUN"
        )

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of the mean of the probabilities."""
        return Modality.mean(self, logits)
