"""Hyperparameters of the joint CNN."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparams.bsequential_cnn_tagger import (
    BsequentialCnnTaggerHParams,
    bsequential_cnn_tagger_base,
    bsequential_cnn_tagger_tiny,
)
from t2t_torch.registry import register_hparams


class JointCnnHParams(BsequentialCnnTaggerHParams):
    """Joint CNN: filters of the sentence, as many per width as the word filters."""

    sentence_kernel_sizes: tuple[int, ...] = hp(
        (3, 4), "Words that filters of the whole sentence see."
    )


@register_hparams
def joint_cnn_base() -> JointCnnHParams:
    """100 filters each of 3 and 4 words, for the sentence and for words, dropout 0.4, a softmax.

    Aly et al. 2018, arXiv:1812.08729, figure 3; sizes of PyText's JointCNNRepresentation.
    """
    return JointCnnHParams.starting_from(bsequential_cnn_tagger_base())


@register_hparams
def joint_cnn_tiny() -> JointCnnHParams:
    """32 filters, for tests and quick trials."""
    return JointCnnHParams.starting_from(bsequential_cnn_tagger_tiny())
