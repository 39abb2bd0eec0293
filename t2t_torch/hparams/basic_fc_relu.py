"""Hyperparameters of fully connected networks on pixels."""

from __future__ import annotations

from t2t_torch.hparam_groups import ImageHParams
from t2t_torch.registry import register_hparams


class BasicFcReluHParams(ImageHParams):
    """Fully connected layers: their number and width."""


@register_hparams
def basic_fc_small() -> BasicFcReluHParams:
    """Two layers of 256.  tensor2tensor, models/basic.py; its `dropout` is 0."""
    return BasicFcReluHParams().replace(
        batch_size=128,
        hidden_size=256,
        num_hidden_layers=2,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=0.0,
        layer_prepostprocess_dropout=0.0,
    )
