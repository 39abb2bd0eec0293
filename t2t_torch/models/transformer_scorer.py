"""tensor2tensor's transformer_scorer: a Transformer that scores given targets.

Every model here does: `t2t-decoder` with targets prints their log-probabilities.
"""

from __future__ import annotations

from t2t_torch.models.transformer import Transformer
from t2t_torch.registry import register_model


@register_model
class TransformerScorer(Transformer):
    """`transformer`, whose checkpoints and sets are interchangeable with it."""
