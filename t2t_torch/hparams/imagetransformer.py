"""Hyperparameters of the Image Transformer."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TransformerLayerHParams, with_noam
from t2t_torch.registry import register_hparams


class ImagetransformerHParams(TransformerLayerHParams):
    """Image Transformer: layers and the blocks of its attention."""

    num_decoder_layers: int = hp(
        0, "Layers.  0: num_hidden_layers.", low=0, high=10_000, computes=False
    )
    block_length: int = hp(
        256,
        "Values in a block; a value attends to its block and the one before it.",
        low=1,
        computes=True,
    )
    label_smoothing: float = hp(
        0.0,
        "0: each place has ids that are not possible, and they have no probability.",
        low=0,
        high=0,
    )
    unconditional: bool = hp(False, "Pictures are generated without reading the inputs.")


@register_hparams
def imagetransformer_base() -> ImagetransformerHParams:
    """Twelve layers of 512.  tensor2tensor, models/image_transformer.py."""
    return with_noam(ImagetransformerHParams()).replace(
        hidden_size=512,
        filter_size=512,
        num_hidden_layers=6,
        num_decoder_layers=12,
        batch_size=4,
        initializer_gain=0.2,
        layer_prepostprocess_dropout=0.0,
    )


@register_hparams
def imagetransformer_cifar10_base() -> ImagetransformerHParams:
    """tensor2tensor: 2.90 bits per dimension on CIFAR-10, without classes.

    Parmar et al. 2018, arXiv:1802.05751, table 4.
    """
    return imagetransformer_base().replace(
        num_heads=4,
        filter_size=2048,
        learning_rate=0.5,
        layer_prepostprocess_dropout=0.3,
        unconditional=True,
    )


@register_hparams
def imagetransformer_imagenet32_base() -> ImagetransformerHParams:
    """tensor2tensor: 3.77 bits per dimension on ImageNet of 32 x 32 pixels."""
    return imagetransformer_cifar10_base().replace(layer_prepostprocess_dropout=0.1)


@register_hparams
def imagetransformer_sep_channels_8l() -> ImagetransformerHParams:
    """Layers of 256; tensor2tensor's set of this name has twelve layers, too."""
    return imagetransformer_base().replace(
        num_heads=4, hidden_size=256, filter_size=256, num_hidden_layers=8
    )


@register_hparams
def imagetransformer_base_8l_8h_big_cond_dr03_dan() -> ImagetransformerHParams:
    """Eight layers of 512, with classes; tensor2tensor: 2.99 bits per dimension on CIFAR-10."""
    return imagetransformer_sep_channels_8l().replace(
        hidden_size=512,
        num_heads=8,
        filter_size=2048,
        num_decoder_layers=8,
        layer_prepostprocess_dropout=0.3,
    )


@register_hparams
def imagetransformer_tiny() -> ImagetransformerHParams:
    """Two layers of 64, for tests and small pictures."""
    return imagetransformer_base().replace(
        num_decoder_layers=2, hidden_size=64, filter_size=128, num_heads=4, block_length=64
    )
