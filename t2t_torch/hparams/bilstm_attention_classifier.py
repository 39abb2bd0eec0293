"""Hyperparameters of the self-attentive BiLSTM classifier."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, for_trials, with_adam
from t2t_torch.registry import register_hparams


class BilstmAttentionClassifierHParams(TokenHParams):
    """Bidirectional LSTMs with multi-hop attention."""

    num_hidden_layers: int = hp(1, "Layers of LSTM.", low=1, high=10_000)
    lstm_size: int = hp(128, "Units of each direction of an LSTM.", low=1)
    attention_size: int = hp(64, "Units of the attention, d_a of the paper.", low=1)
    attention_hops: int = hp(
        4, "Hops: means of a text with weights of their own, r of the paper.", low=1
    )
    attention_penalty: float = hp(
        1.0,
        "Factor on ||A A^T - I||^2, added to an example's loss in TRAIN: hops look at different "
        "places.",
        low=0,
    )


@register_hparams
def bilstm_attention_classifier_base() -> BilstmAttentionClassifierHParams:
    """Lin et al. 2017, arXiv:1703.03130, section 4: 30 hops of 350 units, a ReLU layer of 3,000.

    LSTMs of 300 units per direction over vectors of 300; plain SGD at 0.06.  Learns slowly from
    scratch: after 800 steps it is below naive Bayes (docs/reference/models.md).
    """
    return BilstmAttentionClassifierHParams.plain().replace(
        embedding_size=300,
        lstm_size=300,
        attention_size=350,
        attention_hops=30,
        hidden_size=3000,
        batch_size=2048,
        max_length=400,
        layer_prepostprocess_dropout=0.5,
        weight_decay=1e-4,
        clip_grad_norm=0.5,
        optimizer="sgd",
        learning_rate_schedule="constant",
        learning_rate_constant=0.06,
    )


@register_hparams
def bilstm_attention_classifier_small() -> BilstmAttentionClassifierHParams:
    """LSTMs of 128, 4 hops of 64 units, a ReLU layer of 128, Adam: tens of thousands of texts."""
    return with_adam(bilstm_attention_classifier_base()).replace(
        embedding_size=128,
        lstm_size=128,
        attention_size=64,
        attention_hops=4,
        attention_penalty=0.1,
        hidden_size=128,
        weight_decay=0.0,
        clip_grad_norm=1.0,
        learning_rate_constant=0.002,
    )


@register_hparams
def bilstm_attention_classifier_tiny() -> BilstmAttentionClassifierHParams:
    """LSTMs of 32 and 2 hops, for tests and quick trials."""
    return for_trials(bilstm_attention_classifier_small()).replace(
        embedding_size=32,
        lstm_size=32,
        attention_size=16,
        attention_hops=2,
        hidden_size=32,
        layer_prepostprocess_dropout=0.2,
    )


@register_hparams
def bilstm_attention_classifier_ag_news() -> BilstmAttentionClassifierHParams:
    """For topic_ag_news_words, 1,200 steps: LSTMs of 64, a fifth of the words dropped."""
    return bilstm_attention_classifier_small().replace(
        embedding_size=100,
        lstm_size=64,
        symbol_dropout=0.2,
        ema_decay=0.99,
        learning_rate_constant=0.004,
    )


@register_hparams
def bilstm_attention_classifier_imdb() -> BilstmAttentionClassifierHParams:
    """For sentiment_imdb_words: LSTMs of 64 over the first 256 words, in batches of 32 reviews."""
    return bilstm_attention_classifier_ag_news().replace(batch_size=8192, max_input_seq_length=256)
