"""Vision Transformer: a Transformer encoder over the patches of a picture.

Dosovitskiy et al. 2021, arXiv:2010.11929, without the class token: classes are read from the mean
of all places, as in Beyer et al. 2022, arXiv:2205.01580 (`summary`).
"""

from __future__ import annotations

from t2t_torch.features import ClassLabel, Image, MultiLabel, Real, SoftLabel
from t2t_torch.hparams.vit import VitHParams
from t2t_torch.models.transformer_encoder import TransformerEncoder
from t2t_torch.registry import register_model


@register_model
class Vit(TransformerEncoder):
    """`transformer_encoder` for pictures, with a patch size and scaling of pixels."""

    HParams = VitHParams
    hparams: VitHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Image,)
    reads_packed = False
    texts = (0, 0)
