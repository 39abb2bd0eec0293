"""Hyperparameters of the pairwise ranker."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam_groups import SentenceHParams, for_trials, with_adam
from t2t_torch.params import hp
from t2t_torch.registry import register_hparams


class PairwiseRankerHParams(SentenceHParams):
    """Pairwise ranker: scoring of query and document; hidden_size is the size of their vectors."""

    tied_encoders: bool = hp(True, "Queries and documents go through one encoder.", computes=True)
    score: Literal["cosine", "dot", "mlp"] = hp(
        "cosine",
        "Of two vectors: cosine; dot, over the root of their size; mlp: one hidden layer over "
        "both, their difference and their product.",
        computes=True,
    )
    score_scale: float = hp(
        10.0, "What a cosine or product is multiplied by at first; it is learnt.", above=0
    )
    match_feature: bool = hp(
        False,
        "Beside the score stand the shares of each text that occur in the other, by learnt weights "
        "of ids.",
    )
    in_batch_negatives: bool = hp(
        False, "The documents of the other queries in a batch are wrong ones, too; training only."
    )


@register_hparams
def pairwise_ranker_base() -> PairwiseRankerHParams:
    """Cosine similarity of vectors of 64 with a margin loss, like PyText's pairwise ranking.

    PyText 0.3.3, models/query_document_pairwise_ranking_model.py: one encoder for all texts.
    """
    return with_adam(PairwiseRankerHParams.plain()).replace(
        encoder_size=100,
        num_hidden_layers=1,
        max_length=256,
        loss="margin_ranking",
        score_scale=1.0,
        layer_prepostprocess_dropout=0.2,
        shared_embedding=True,
        clip_grad_norm=5.0,
        learning_rate_constant=0.001,
    )


@register_hparams
def pairwise_ranker_dense_retrieval() -> PairwiseRankerHParams:
    """Two encoders with dot product and in-batch negatives.

    Karpukhin et al. 2020, arXiv:2004.04906, with BiLSTMs in place of BERT.
    """
    return pairwise_ranker_base().replace(
        tied_encoders=False,
        score="dot",
        loss="cross_entropy",
        in_batch_negatives=True,
        hidden_size=128,
    )


@register_hparams
def pairwise_ranker_relevance() -> PairwiseRankerHParams:
    """For labelled query-document pairs: a perceptron over both vectors and their interaction."""
    return pairwise_ranker_base().replace(score="mlp", loss="", match_feature=True)


@register_hparams
def pairwise_ranker_tiny() -> PairwiseRankerHParams:
    """32 units, for tests and quick trials; for ranking and for labels."""
    return for_trials(pairwise_ranker_base()).replace(
        embedding_size=32,
        encoder_size=32,
        hidden_size=32,
        loss="",
        score_scale=10.0,
        layer_prepostprocess_dropout=0.0,
    )
