"""Modality of texts that are predicted frame by frame, by connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.hparam import HParams
from t2t_torch.layers.ctc import BLANK, collapsed, ctc_losses, target_ids
from t2t_torch.layers.pooling import padding_mask
from t2t_torch.modality import BatchPrediction, ExtraLossInputs, Hidden, Loss, Modality
from t2t_torch.text.encoder import EOS, PAD

_CERTAIN = 30.0  # logit of the predicted id, for metrics
_IMPOSSIBLE = -1e9  # logit of the end of a text, and at padding of all ids but the blank


class CtcModality(Modality):
    """Modality of a text with one output for each frame: hidden [B, S, H] -> logits [B, S, V].

    The targets keep their `EOS`, which is not predicted.  A model chooses it instead of the
    modality of its feature.

    Args:
      size: V.
      hparams: hidden_size.
    """

    bottom: None

    def __init__(self, size: int, hparams: HParams) -> None:
        super().__init__()
        self.bottom = None
        self.top = nn.Linear(hparams.hidden_size, size)

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Creates the modality of a target."""
        return cls(feature.vocab_size, hparams)

    def mask(self, values: Tensor) -> Tensor:
        """Returns the mask of ids that are not padding.  [B, T] -> [B, T] bool."""
        return padding_mask(values)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 for each predicted id, else 0.  [B, T] -> [B, T]."""
        return target_ids(targets).float()

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the output of `top`, never `EOS`; at padding the blank is certain.  [B, S, V]."""
        logits: Tensor = self.top(hidden.states).float()
        ids = torch.arange(logits.size(-1), device=logits.device)
        logits = torch.where(ids == EOS, _IMPOSSIBLE, logits)
        if hidden.mask is None:
            return logits
        blank = torch.where(ids == BLANK, 0.0, _IMPOSSIBLE)
        return torch.where(hidden.mask[..., None], logits, blank)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the negative log-likelihood per predicted id; padding frames cost nothing."""
        everywhere = torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)
        values = ctc_losses(logits, everywhere, targets)
        values = values.masked_fill(values > -_IMPOSSIBLE / 2, 0.0)  # more ids than frames
        counted = self.item_weights(targets, None)
        if weights is not None:
            values, counted = values * weights, counted * weights[:, None]
        return Loss(values.sum(), counted.sum())

    def training_loss(
        self,
        hidden: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        extra: ExtraLossInputs | None = None,
    ) -> Loss:
        """Returns the loss of hidden states, [B, S, H]; see `loss`."""
        mask = None if extra is None else extra.mask
        return self.loss(self.logits(Hidden(hidden, mask)), targets, weights)

    def readable(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns logits whose maxima are the greedy text, `EOS` and padding.

        They have more positions than the targets: by this, metrics know that the text was predicted
        without them.

        Args:
          logits: [B, S, V].
          targets: [B, T].

        Returns:
          [B, S + T + 1, V].
        """
        ids = collapsed(logits.argmax(-1))
        order = (ids == PAD).long().sort(dim=1, stable=True).indices
        ids = F.pad(ids.gather(1, order), (0, 1 + targets.size(1)))
        ends = (ids != PAD).sum(1, keepdim=True)
        ids = ids.scatter(1, ends, EOS)
        return _CERTAIN * F.one_hot(ids, logits.size(-1)).float()

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the greedy text of each example; the score is the path's log-probability, [B]."""
        best, frames = logits.float().log_softmax(-1).max(-1)
        return BatchPrediction(collapsed(frames), None, best.sum(-1))
