"""Universal Transformer encoder for targets other than texts.

Dehghani et al. 2019, "Universal Transformers", arXiv:1807.03819.
"""

from __future__ import annotations

from torch import Tensor

from t2t_torch.features import Features
from t2t_torch.hparams.universal_transformer_encoder import UniversalTransformerEncoderHParams
from t2t_torch.layers.depth_recurrence import DepthRecurrence, run_encoder, without_feed_forward
from t2t_torch.layers.transformer_layer import Joined
from t2t_torch.models.transformer_encoder import TransformerEncoder
from t2t_torch.registry import register_model


@register_model
class UniversalTransformerEncoder(TransformerEncoder):
    """`transformer_encoder` with one block of layers, applied several times."""

    HParams = UniversalTransformerEncoderHParams
    hparams: UniversalTransformerEncoderHParams

    def __init__(self, hparams: UniversalTransformerEncoderHParams, features: Features) -> None:
        block = hparams.replace(
            num_hidden_layers=hparams.num_inrecurrence_layers, num_encoder_layers=0
        )
        if hparams.add_position_timing_signal and hparams.pos == "timing":
            block = block.replace(pos="none")
        super().__init__(block, features)
        self.hparams = hparams
        self.encoder_recurrence = DepthRecurrence(hparams)
        without_feed_forward(self.encoder, hparams)

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        """Runs all steps.  [B, S, H]."""
        return run_encoder(self.encoder_recurrence, self.encoder, x, mask, joined)
