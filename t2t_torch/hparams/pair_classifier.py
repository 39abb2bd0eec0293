"""Hyperparameters of the pair classifier."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam_groups import SentenceHParams, for_trials, with_adam
from t2t_torch.params import hp
from t2t_torch.registry import register_hparams


class PairClassifierHParams(SentenceHParams):
    """Pair classifier: comparison of two texts."""

    tied_encoders: bool = hp(True, "Both texts go through one encoder.", computes=True)
    alignment: Literal["none", "inputs", "contexts", "esim"] = hp(
        "none",
        "Each token looks at the other text.  inputs, contexts: by what the tokens are, or are "
        "where they stand; esim: likewise, and a second LSTM reads what was found.",
    )
    match_feature: bool = hp(
        False,
        "Adds to a token whether its id occurs in the other text, and to the comparison which "
        "share of each text does, by learned weights of ids.",
    )
    mean_too: bool = hp(False, "Beside what is pooled stands the mean.")
    mlp_layers: int = hp(
        1, "Hidden layers of hidden_size units above the comparison.", low=1, high=10_000
    )


@register_hparams
def pair_classifier_base() -> PairClassifierHParams:
    """A BiLSTM of 2 x 2,048 with max pooling, one hidden layer of 512, like InferSent.

    Conneau et al. 2017, arXiv:1705.02364, section 3.3, with Adam in place of SGD.
    """
    return with_adam(PairClassifierHParams.plain()).replace(
        embedding_size=300,
        encoder_size=2048,
        num_hidden_layers=1,
        hidden_size=512,
        batch_size=2048,
        max_length=256,
        shared_embedding=True,
        clip_grad_norm=5.0,
        learning_rate_constant=0.001,
    )


@register_hparams
def pair_classifier_esim() -> PairClassifierHParams:
    """ESIM: BiLSTMs of 2 x 300 before and after alignment, max and mean pooling, dropout 0.5.

    Chen et al. 2017, arXiv:1609.06038, section 5.
    """
    return pair_classifier_base().replace(
        encoder_size=300,
        hidden_size=300,
        alignment="esim",
        mean_too=True,
        layer_prepostprocess_dropout=0.5,
        learning_rate_constant=0.0004,
    )


@register_hparams
def pair_classifier_small() -> PairClassifierHParams:
    """A BiLSTM of 2 x 64 with alignment and exact matches, for thousands of pairs from scratch."""
    return pair_classifier_base().replace(
        embedding_size=100,
        encoder_size=64,
        hidden_size=64,
        alignment="contexts",
        match_feature=True,
        mean_too=True,
        layer_prepostprocess_dropout=0.3,
        ema_decay=0.99,
    )


@register_hparams
def pair_classifier_sick() -> PairClassifierHParams:
    """For `sick_words`, 1,000 steps: both targets with one encoder, 4,500 pairs."""
    return pair_classifier_small().replace(layer_prepostprocess_dropout=0.4)


@register_hparams
def pair_classifier_wikiqa() -> PairClassifierHParams:
    """For `answer_ranking_wikiqa_counts` and `_words`, 400 steps: sentences of 786 questions."""
    return pair_classifier_small()


@register_hparams
def pair_classifier_tiny() -> PairClassifierHParams:
    """32 units, for tests and quick trials."""
    return for_trials(pair_classifier_small()).replace(
        embedding_size=32,
        encoder_size=32,
        hidden_size=32,
        layer_prepostprocess_dropout=0.1,
        ema_decay=0.0,
    )
