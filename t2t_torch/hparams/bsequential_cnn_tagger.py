"""Hyperparameters of the bidirectional sequential CNN tagger."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, for_trials, with_adam
from t2t_torch.registry import register_hparams


class BsequentialCnnTaggerHParams(TokenHParams):
    """Sequential CNN: context of each word; hidden_size is per side."""

    context_size: int = hp(
        6, "Words of the past, and of the future; the word is in both.", low=1, computes=True
    )
    around_size: int = hp(1, "Words on each side that surround a word.", low=0, computes=True)
    kernel_sizes: tuple[int, ...] = hp((3, 4), "Words that filters see.")
    num_filters: int = hp(100, "Filters of each width.", low=1)


@register_hparams
def bsequential_cnn_tagger_base() -> BsequentialCnnTaggerHParams:
    """Contexts of five words, 100 filters each of 3 and 4 words, dropout 0.4, a softmax.

    Sizes of PyText (models/representations/bseqcnn.py; Aly et al. 2018, arXiv:1812.08729); past and
    future contexts include the word itself as in Vu 2016, arXiv:1606.07783.
    """
    return with_adam(BsequentialCnnTaggerHParams.plain()).replace(
        hidden_size=200,
        batch_size=1024,
        max_length=256,
        layer_prepostprocess_dropout=0.4,
        tag_constraints="decode",
        clip_grad_norm=5.0,
        learning_rate_constant=0.002,
    )


@register_hparams
def bsequential_cnn_tagger_crf() -> BsequentialCnnTaggerHParams:
    """The same with a CRF."""
    return bsequential_cnn_tagger_base().replace(tag_decoder="crf")


@register_hparams
def bsequential_cnn_tagger_tiny() -> BsequentialCnnTaggerHParams:
    """Contexts of three words and 32 filters, for tests and quick trials."""
    return for_trials(bsequential_cnn_tagger_base()).replace(
        hidden_size=32,
        embedding_size=32,
        character_size=16,
        context_size=4,
        num_filters=32,
        layer_prepostprocess_dropout=0.2,
    )
