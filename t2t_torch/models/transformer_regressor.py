"""tensor2tensor's transformer_regressor: the encoder and a linear map of its mean to numbers."""

from __future__ import annotations

from t2t_torch.features import Real
from t2t_torch.hparams.transformer_regressor import TransformerRegressorHParams
from t2t_torch.models.transformer_encoder import TransformerEncoder
from t2t_torch.registry import register_model


@register_model
class TransformerRegressor(TransformerEncoder):
    """`transformer_encoder` for numbers only."""

    HParams = TransformerRegressorHParams
    hparams: TransformerRegressorHParams
    produces = (Real,)
