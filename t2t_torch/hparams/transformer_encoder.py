"""Hyperparameters of the Transformer encoder."""

from __future__ import annotations

from typing import ClassVar, Literal

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import ImageHParams, TransformerLayerHParams, one_cycle
from t2t_torch.registry import register_hparams


class TransformerEncoderHParams(TransformerLayerHParams):
    """Transformer encoder: its sizes."""

    computes: ClassVar[bool] = True

    num_heads: int = hp(4, "Attention heads; divides hidden_size.", low=1)
    filter_size: int = hp(1024, "Width inside the feed-forward sublayers.", low=1)
    num_encoder_layers: int = hp(
        0,
        "Layers, as sets of `transformer` name them.  0: num_hidden_layers.",
        low=0,
        high=10_000,
        computes=False,
    )
    use_target_space_embedding: bool = hp(
        False,
        "Adds an embedding of the problem's target space to the encoder's input, as tensor2tensor.",
    )
    summary: Literal["mean", "first"] = hp(
        "mean", "What the output for classes and numbers is of: all positions, or the first."
    )


@register_hparams
def transformer_encoder_small() -> TransformerEncoderHParams:
    """Two pre-norm layers of 256, for tens of thousands of examples from scratch."""
    return one_cycle(TransformerEncoderHParams(), 0.001, 200).replace(
        hidden_size=256,
        num_hidden_layers=2,
        max_length=512,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        layer_prepostprocess_dropout=0.2,
        attention_dropout=0.1,
        relu_dropout=0.1,
        symbol_dropout=0.05,
        label_smoothing=0.0,
        shared_embedding=True,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=0.0,
        clip_grad_norm=1.0,
        optimizer_adam_epsilon=1e-9,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
    )


@register_hparams
def transformer_encoder_base() -> TransformerEncoderHParams:
    """Six layers of 512.  Vaswani et al. 2017, table 3, row "base"."""
    return transformer_encoder_small().replace(
        hidden_size=512,
        num_hidden_layers=6,
        num_heads=8,
        filter_size=2048,
        learning_rate_constant=0.0005,
        learning_rate_warmup_steps=1000,
    )


@register_hparams
def transformer_encoder_tiny() -> TransformerEncoderHParams:
    """Two layers of 64, for tests and quick trials."""
    return transformer_encoder_small().replace(
        hidden_size=64, filter_size=256, num_heads=2, learning_rate_constant=0.003
    )


@register_hparams
def transformer_encoder_query_document() -> TransformerEncoderHParams:
    """Two layers of 128 for multi_query_document, in batches of about 30 pairs or articles.

    Aly et al. 2018, arXiv:1812.08729, figure 4: relevance, query classes and document classes with
    shared subwords and layers.  Inputs are truncated to 128 subwords.
    """
    return transformer_encoder_small().replace(
        hidden_size=128, filter_size=512, batch_size=1536, max_length=128
    )


@register_hparams
def transformer_encoder_image() -> TransformerEncoderHParams:
    """Three layers of 128 for small images, split into patches; batches of 128."""
    return transformer_encoder_small().replace(
        hidden_size=128,
        filter_size=512,
        num_hidden_layers=3,
        batch_size=128,
        symbol_dropout=0.0,
        layer_prepostprocess_dropout=0.1,
        shared_embedding=False,
    )


class TransformerRegressorHParams(TransformerEncoderHParams):
    """Transformer regressor."""


@register_hparams
def transformer_regressor_small() -> TransformerRegressorHParams:
    """`transformer_encoder_small` for numbers."""
    return TransformerRegressorHParams.starting_from(transformer_encoder_small())


class VitHParams(TransformerEncoderHParams, ImageHParams):
    """Vision Transformer: patches."""

    patch_size: int = hp(
        0,
        "Side of a patch in pixels; divides both sides of the picture.  0: 7, 8, 4, 5 or 6.",
        low=0,
    )


def _of_width(hidden_size: int, layers: int, patch_size: int) -> VitHParams:
    return one_cycle(VitHParams(), 1e-3, 10_000).replace(
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
