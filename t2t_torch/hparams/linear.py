"""Hyperparameters of the linear model."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import FittedHParams
from t2t_torch.registry import register_hparams


class LinearHParams(FittedHParams):
    """Linear model of n-grams: the table, and the fit."""

    ngram_buckets: int = hp(
        2**20,
        "Rows of the table that n-grams share by hashing; fewer if it had more than 2^24 numbers.",
        low=8,
        computes=True,
    )
    fit_costs: tuple[float, ...] = hp(
        (0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
        "Weights of the loss beside the L2 norm, ascending.  Of several, the one with the least "
        "loss on held-out training rows is taken.",
    )


@register_hparams
def linear_base() -> LinearHParams:
    """Fitted before the first step, which changes nothing: --train_steps is 1 if not given.

    Wang and Manning 2012, ACL: n-grams scaled by class ratios, squared hinge, L2.  To train
    further by gradients, set learning_rate_constant and --train_steps.
    """
    return LinearHParams.fitted()


@register_hparams
def linear_tiny() -> LinearHParams:
    """4,096 rows for n-grams, for tests and quick trials."""
    return linear_base().replace(ngram_buckets=2**12)
