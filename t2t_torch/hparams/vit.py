"""Hyperparameters of the Vision Transformer."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import ImageHParams
from t2t_torch.hparams.transformer_encoder import TransformerEncoderHParams
from t2t_torch.registry import register_hparams


class VitHParams(TransformerEncoderHParams, ImageHParams):
    """Vision Transformer: patches."""

    patch_size: int = hp(
        0,
        "Side of a patch in pixels; divides both sides of the picture.  0: 7, 8, 4, 5 or 6.",
        low=0,
    )


def _of_width(hidden_size: int, layers: int, patch_size: int) -> VitHParams:
    return VitHParams().replace(
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_heads=max(1, hidden_size // 64),
        filter_size=4 * hidden_size,
        patch_size=patch_size,
        pos="none",  # patches have learnt positions
        ffn_activation="gelu",
        attention_bias=True,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        layer_prepostprocess_dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        label_smoothing=0.0,
        image_standardization="range",
        initializer="xavier",
        batch_size=1024,
        optimizer="adam_w",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        weight_decay=1e-4,
        clip_grad_norm=1.0,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_constant=1e-3,
        learning_rate_warmup_steps=10_000,
    )


@register_hparams
def vit_small() -> VitHParams:
    """ViT-S/16, by the recipe of Beyer et al. 2022, arXiv:2205.01580: 90 epochs of ImageNet.

    Classes are read from the mean of all places.
    """
    return _of_width(384, 12, 16).replace(
        image_augmentation=("resized_crop:0.05", "flip", "rand_augment:2:10"), mixup_alpha=0.2
    )


@register_hparams
def vit_base() -> VitHParams:
    """ViT-B/16.  Dosovitskiy et al. 2021, arXiv:2010.11929, table 1."""
    return _of_width(768, 12, 16)


@register_hparams
def vit_large() -> VitHParams:
    """ViT-L/16.  Dosovitskiy et al. 2021, table 1."""
    return _of_width(1024, 24, 16)


@register_hparams
def vit_tiny() -> VitHParams:
    """Three layers of 128 for small pictures; patches of 7, 8, 4, 5 or 6 pixels; batches of 128."""
    return _of_width(128, 3, 0).replace(
        num_heads=4,
        batch_size=128,
        layer_prepostprocess_dropout=0.1,
        learning_rate_warmup_steps=200,
    )
