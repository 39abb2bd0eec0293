"""Hyperparameters of the linear tagger."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import FittedHParams
from t2t_torch.registry import register_hparams


class LinearCrfHParams(FittedHParams):
    """Linear tagger: the table of features, and the fit."""

    feature_buckets: int = hp(
        2**20,
        "Rows of the table that features share by hashing; fewer if it had more than 2^24 numbers.",
        low=8,
        computes=True,
    )
    fit_epochs: int = hp(6, "Passes of the fit over the training rows.", low=1)
    fit_l2: tuple[float, ...] = hp(
        (0.1, 0.5),
        "Weights of the L2 norm, halved, beside the sum of the losses of sentences.  Of several, "
        "the one with the least loss on held-out training rows is taken.",
    )


@register_hparams
def linear_crf_base() -> LinearCrfHParams:
    """Fitted before the first step, which changes nothing: --train_steps is 1 if not given.

    Lafferty et al. 2001, with the features of Ratnaparkhi 1996: words, affixes, shapes, windows.
    """
    return LinearCrfHParams.fitted().replace(tag_decoder="crf")


@register_hparams
def linear_crf_tiny() -> LinearCrfHParams:
    """4,096 rows for features, for tests and quick trials."""
    return linear_crf_base().replace(feature_buckets=2**12)
