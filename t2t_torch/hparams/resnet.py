"""Hyperparameters of residual networks."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import ImageHParams, one_cycle
from t2t_torch.registry import register_hparams


class ResnetHParams(ImageHParams):
    """Residual network: blocks and their sizes."""

    layer_sizes: tuple[int, ...] = hp(
        (3, 4, 6, 3), "Blocks of each group; each group after the first halves the picture."
    )
    filter_sizes: tuple[int, ...] = hp(
        (64, 64, 128, 256, 512), "Filters of the first convolution, then of each group."
    )
    bottleneck_ratios: tuple[int, ...] = hp(
        (4, 4, 4, 4),
        "block_fn=bottleneck: filters of the last convolution of a block / its others.",
    )
    block_fn: Literal["residual", "bottleneck", "pooled"] = hp(
        "bottleneck",
        "residual: two convolutions of 3 x 3, norms before them; bottleneck: 1 x 1, 3 x 3, 1 x 1, "
        "norms after them; pooled: two of 3 x 3, norms after them, and each group begins with max "
        "pooling.",
    )
    is_cifar: bool = hp(
        False,
        "For small pictures: the first convolution has stride 1 and no pooling follows it.",
        computes=True,
    )
    initial_kernel_size: int = hp(
        7,
        "Side of the first convolution, in pixels; 3 is usual for small pictures.",
        low=1,
        high=15,
    )
    initial_stride: int = hp(
        0,
        "Stride of the first convolution.  0: 1 if is_cifar, else 2.",
        low=0,
        high=4,
        computes=True,
    )
    final_norm: bool = hp(
        False,
        "A norm and ReLU before the average of all places, as He et al. 2016 have for norms before "
        "convolutions; tensor2tensor has none.",
    )
    average_mirrored: bool = hp(
        False,
        "Evaluation, prediction and exported graphs average the logits of a picture and of its "
        "mirror image: two passes.  Only if image_augmentation has flip.",
        computes=True,
    )


@register_hparams
def resnet_base() -> ResnetHParams:
    """ResNet-50 with tensor2tensor's values, for ImageNet in batches of 8 x 128.

    tensor2tensor, models/resnet.py, resnet_50: 120,000 steps.
    """
    return ResnetHParams().replace(
        initializer="normal_unit_scaling",
        initializer_gain=2.0,
        optimizer="momentum",
        optimizer_momentum_nesterov=True,
        weight_decay=1e-4,
        clip_grad_norm=0.0,
        learning_rate=0.4,
        learning_rate_decay_scheme="cosine",
        learning_rate_cosine_cycle_steps=120_000,
        batch_size=128,
        image_standardization="imagenet",
    )


@register_hparams
def resnet_50() -> ResnetHParams:
    """ResNet-50, the same as `resnet_base`."""
    return resnet_base()


@register_hparams
def resnet_18() -> ResnetHParams:
    """ResNet-18.  He et al. 2016, arXiv:1512.03385, table 1."""
    return resnet_base().replace(block_fn="residual", layer_sizes=(2, 2, 2, 2))


@register_hparams
def resnet_34() -> ResnetHParams:
    """ResNet-34."""
    return resnet_base().replace(block_fn="residual")


@register_hparams
def resnet_101() -> ResnetHParams:
    """ResNet-101."""
    return resnet_base().replace(layer_sizes=(3, 4, 23, 3))


@register_hparams
def resnet_152() -> ResnetHParams:
    """ResNet-152."""
    return resnet_base().replace(layer_sizes=(3, 8, 36, 3))


@register_hparams
def resnet_200() -> ResnetHParams:
    """ResNet-200.  He et al. 2016, arXiv:1603.05027."""
    return resnet_base().replace(layer_sizes=(3, 24, 36, 3))


@register_hparams
def resnet_imagenet_34() -> ResnetHParams:
    """tensor2tensor's set of this name: groups of 2, 4, 8 and 2 residual blocks."""
    return resnet_base().replace(block_fn="residual", layer_sizes=(2, 4, 8, 2))


@register_hparams
def resnet_imagenet_102() -> ResnetHParams:
    """tensor2tensor's set of this name: groups of 3, 8, 36 and 3 residual blocks."""
    return resnet_imagenet_34().replace(layer_sizes=(3, 8, 36, 3))


@register_hparams
def resnet_cifar_15() -> ResnetHParams:
    """Three groups of two residual blocks, for 32 x 32 pixels.

    tensor2tensor's values.  Its loss of these sets ignores label_smoothing, which is 0.1 there.
    """
    return resnet_base().replace(
        block_fn="residual",
        is_cifar=True,
        layer_sizes=(2, 2, 2),
        filter_sizes=(16, 32, 64, 128),
        image_standardization="per_image",
        label_smoothing=0.0,
    )


@register_hparams
def resnet_cifar_32() -> ResnetHParams:
    """Three groups of five residual blocks, for 32 x 32 pixels; tensor2tensor's values."""
    return resnet_cifar_15().replace(layer_sizes=(5, 5, 5))


def _one_cycle(hparams: ResnetHParams, peak: float, warmup: int) -> ResnetHParams:
    """Returns a copy with a warm-up to `peak` and half a cosine from there to the end of the run.

    The usual recipe for small pictures: He et al. 2019, arXiv:1812.01187, section 5 (no cycle), and
    github.com/davidcpage/cifar10-fast, with Nesterov momentum and weight decay.
    """
    return one_cycle(hparams, peak, warmup).replace(
        initial_kernel_size=3, final_norm=True, weight_decay=5e-4, label_smoothing=0.1
    )


@register_hparams
def resnet_mnist() -> ResnetHParams:
    """Three groups of one block at half the size, for 28 x 28 grey pixels; about ten epochs."""
    return _one_cycle(resnet_cifar_15(), peak=0.1, warmup=500).replace(
        initial_kernel_size=5,
        initial_stride=2,
        layer_sizes=(1, 1, 1),
        filter_sizes=(24, 24, 48, 96),
        image_augmentation=("crop:2",),
    )


@register_hparams
def resnet_sound() -> ResnetHParams:
    """Three groups of one block of 32 to 128 filters over spectrograms; batches of 40 s.

    For the classification of sounds of up to 30 s on a CPU.
    """
    return resnet_mnist().replace(
        initial_kernel_size=3,
        filter_sizes=(16, 32, 64, 128),
        image_augmentation=(),
        batch_size=4000,
        max_length=3000,
        min_length_bucket=50,
        optimizer="adam_w",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.99,
        optimizer_adam_epsilon=1e-8,
        weight_decay=0.05,
        learning_rate_constant=0.003,
        learning_rate_warmup_steps=150,
        audio_num_mel_bins=40,
        audio_normalization="sound",
        num_zeropad_frames=0,
        audio_time_masks=2,
        audio_time_mask_frames=10,
        audio_frequency_masks=2,
        audio_frequency_mask_bins=6,
    )


@register_hparams
def resnet_cifar_18() -> ResnetHParams:
    """ResNet-18 for 32 x 32 pixels, as usual for CIFAR: 3 x 3 first, four groups, cutout.

    200 epochs of 390 steps.  DeVries and Taylor 2017, arXiv:1708.04552, report an error of 3.99 %
    on CIFAR-10 with crops, mirror images and cutout of 16 pixels, with steps in place of a cosine.
    """
    return _one_cycle(resnet_cifar_15(), peak=0.1, warmup=2000).replace(
        layer_sizes=(2, 2, 2, 2),
        filter_sizes=(64, 64, 128, 256, 512),
        image_augmentation=("crop:4", "flip", "cutout:16"),
    )


@register_hparams
def resnet_cifar_small() -> ResnetHParams:
    """Four groups of one block of 32 to 256 filters, for 32 x 32 pixels on a CPU.

    The recipe of `resnet_cifar_18` with half its filters and half its blocks; for 10,000 pictures
    about 65 epochs, 5,000 steps.
    """
    return resnet_cifar_18().replace(
        learning_rate_warmup_steps=500,
        layer_sizes=(1, 1, 1, 1),
        filter_sizes=(32, 32, 64, 128, 256),
        image_augmentation=("crop:4", "flip", "cutout:8"),
        activation_dtype="auto",
    )


@register_hparams
def resnet_cifar_fast() -> ResnetHParams:
    """Three pooled groups of 48 to 256 filters, for 10,000 pictures of 32 x 32 pixels in minutes.

    25 to 50 epochs, 1,750 to 4,000 steps.  Weight decay is four times that of `resnet_cifar_18`,
    as the weights shrink in few steps.
    """
    return resnet_cifar_small().replace(
        block_fn="pooled",
        final_norm=False,
        learning_rate_warmup_steps=350,
        layer_sizes=(1, 1, 1),
        filter_sizes=(24, 48, 128, 256),
        average_mirrored=True,
        weight_decay=2e-3,
    )
