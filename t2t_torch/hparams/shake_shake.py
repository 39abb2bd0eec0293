"""Hyperparameters of Shake-Shake networks."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import ImageHParams
from t2t_torch.params import share
from t2t_torch.registry import register_hparams


class ShakeShakeHParams(ImageHParams):
    """Shake-Shake: branches of a block, and how they are mixed."""

    hidden_size: int = hp(32, "Filters of the first of three groups; a multiple of 16.", low=16)
    num_hidden_layers: int = hp(26, "Convolutions of the network: 6 n + 2.", low=8, high=10_000)
    shake_shake_num_branches: int = hp(
        2, "Branches of a block, whose weights are random in training; 1: none is.", low=1
    )
    shake_shake_concat: bool = hp(
        False, "Branches are joined by a convolution of 1 x 1 instead of added."
    )
    shake_drop_prob: float = share(
        1.0,
        "ShakeDrop: probability that the last block keeps its branches in training, 1 for the "
        "first; a dropped one is scaled by -1 ... 1, its gradient by 0 ... 1.  1: all are kept.",
        computes=True,
    )


@register_hparams
def shakeshake_small() -> ShakeShakeHParams:
    """26 convolutions, 2 x 32 filters; tensor2tensor: about 96 % on CIFAR-10 in 700,000 steps.

    tensor2tensor, models/shake_shake.py.
    """
    return ShakeShakeHParams().replace(
        batch_size=128,
        layer_prepostprocess_dropout=0.0,
        label_smoothing=0.0,
        clip_grad_norm=0.0,
        learning_rate_decay_scheme="cosine",
        learning_rate_cosine_cycle_steps=700_000,
        learning_rate=0.2,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=1e-4,
        optimizer="momentum",
    )


@register_hparams
def shake_shake_quick() -> ShakeShakeHParams:
    """tensor2tensor's set for a quick trial: Adam, one cosine of 1,000 steps."""
    return shakeshake_small().replace(
        optimizer="adam", learning_rate_cosine_cycle_steps=1000, learning_rate=0.5, batch_size=100
    )


@register_hparams
def shakeshake_big() -> ShakeShakeHParams:
    """2 x 96 filters.  Gastaldi 2017, arXiv:1705.07485, table 1."""
    return shakeshake_small().replace(hidden_size=96)


@register_hparams
def shakeshake_tpu() -> ShakeShakeHParams:
    """tensor2tensor's values for 180,000 steps of 8 x 128 pictures."""
    return shakeshake_big().replace(learning_rate_cosine_cycle_steps=180_000, learning_rate=0.6)
