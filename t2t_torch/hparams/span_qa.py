"""Hyperparameters of the extractive question answering model."""

from __future__ import annotations

from t2t_torch.hparam_groups import TokenHParams, for_trials, with_adam
from t2t_torch.params import hp
from t2t_torch.registry import register_hparams


class SpanQaHParams(TokenHParams):
    """Question answering: word features; hidden_size is per LSTM direction."""

    num_hidden_layers: int = hp(
        3, "Layers of LSTM, for the question and for the text.", low=1, high=10_000
    )
    match_feature: bool = hp(
        True, "Adds to a word whether its id occurs in the question, also with a learned weight."
    )


@register_hparams
def span_qa_base() -> SpanQaHParams:
    """Three layers of 2 x 128 over vectors of 300, dropout 0.3, a rate of 0.002.

    Chen et al. 2017, arXiv:1704.00051, section 5.1, with Adam in place of Adamax.
    """
    return with_adam(SpanQaHParams.plain()).replace(
        embedding_size=300,
        hidden_size=128,
        batch_size=8192,
        max_length=400,
        layer_prepostprocess_dropout=0.3,
        shared_embedding=True,
        clip_grad_norm=10.0,
        optimizer_adam_beta2=0.999,
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.002,
    )


@register_hparams
def span_qa_tiny() -> SpanQaHParams:
    """One layer of 2 x 32, for tests and quick trials."""
    return for_trials(span_qa_base()).replace(
        embedding_size=32,
        hidden_size=32,
        num_hidden_layers=1,
        batch_size=2048,
        layer_prepostprocess_dropout=0.0,
    )
