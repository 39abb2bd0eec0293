"""The set that every other starts from."""

from __future__ import annotations

from t2t_torch.hparam import HParams
from t2t_torch.registry import register_hparams


@register_hparams
def basic_params1() -> HParams:
    """tensor2tensor's defaults, layers/common_hparams.py: they are the fields' own."""
    return HParams()
