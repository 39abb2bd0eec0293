"""Hyperparameters of the BiLSTM tagger."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, for_trials, with_adam
from t2t_torch.registry import register_hparams


class BilstmTaggerHParams(TokenHParams):
    """BiLSTM tagger: dropout; hidden_size is per direction."""

    num_hidden_layers: int = hp(1, "Layers of LSTM.", low=1, high=10_000)
    locked_dropout: bool = hp(
        False, "All positions of a sentence lose the same units (variational dropout)."
    )


@register_hparams
def bilstm_tagger_base() -> BilstmTaggerHParams:
    """One layer of 100 per direction, dropout 0.5, a CRF.

    Lample et al. 2016, arXiv:1603.01360, section 5.1, with Adam in place of SGD.
    """
    return with_adam(BilstmTaggerHParams.plain()).replace(
        hidden_size=100,
        batch_size=1024,
        max_length=256,
        layer_prepostprocess_dropout=0.5,
        tag_decoder="crf",
        tag_constraints="decode",
        clip_grad_norm=5.0,
        learning_rate_constant=0.002,
    )


@register_hparams
def bilstm_tagger_tiny() -> BilstmTaggerHParams:
    """32 units per direction, for tests and quick trials."""
    return for_trials(bilstm_tagger_base()).replace(
        hidden_size=32, embedding_size=32, character_size=16, layer_prepostprocess_dropout=0.2
    )


@register_hparams
def bilstm_tagger_ud() -> BilstmTaggerHParams:
    """For pos_ud_english_ewt (204,577 words), 1,200 steps: `bilstm_tagger_small`."""
    return bilstm_tagger_small()


@register_hparams
def bilstm_tagger_small() -> BilstmTaggerHParams:
    """One layer of 200 for thousands of sentences, from scratch.

    Character filters span 2 to 5 characters.  A tenth of the word vectors are dropped, which makes
    the model rely on characters.
    """
    return bilstm_tagger_base().replace(
        hidden_size=200,
        embedding_size=128,
        character_size=128,
        character_kernels=(2, 3, 4, 5),
        batch_size=2048,
        layer_prepostprocess_dropout=0.4,
        symbol_dropout=0.1,
        learning_rate_constant=0.003,
    )


@register_hparams
def bilstm_tagger_conll2000() -> BilstmTaggerHParams:
    """One layer of 200 for chunking_conll2000_pos (190,000 words); 1,400 steps are 14 epochs.

    Character filters span 2 to 5 characters.  Dropout uses one mask for all words of a sentence
    (Gal and Ghahramani 2016, arXiv:1512.05287).  Tuned on the EVAL split.
    """
    return bilstm_tagger_base().replace(
        hidden_size=200,
        character_size=128,
        character_kernels=(2, 3, 4, 5),
        word_label_size=32,
        batch_size=2048,
        symbol_dropout=0.1,
        locked_dropout=True,
        ema_decay=0.998,
    )
