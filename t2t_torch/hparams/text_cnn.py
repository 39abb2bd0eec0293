"""Hyperparameters of the convolutional text classifier."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, with_adam
from t2t_torch.registry import register_hparams


class TextCnnHParams(TokenHParams):
    """Convolutions over words, and the norm limit of the softmax."""

    kernel_sizes: tuple[int, ...] = hp((3, 4, 5), "Words that the filters of each kind see.")
    num_filters: int = hp(100, "Filters of each kind.", low=1)
    pad_windows: bool = hp(
        True,
        "A text is padded on both sides, and each window with a word counts; False: only windows "
        "full of words, as in tensor2tensor.",
        computes=True,
    )
    max_norm: float = hp(
        3.0,
        "After each step a class's softmax weights are scaled down to this L2 norm.  0: never.",
        low=0,
    )


@register_hparams
def text_cnn_base() -> TextCnnHParams:
    """Kim 2014, arXiv:1408.5882, section 3.1: CNN-rand, for short sentences.

    Vectors of 300, 100 filters each of 3, 4 and 5 words, dropout 0.5, Adadelta.
    """
    return TextCnnHParams.plain().replace(
        embedding_size=300,
        batch_size=1000,  # about 50 sentences of 20 words
        max_length=400,
        layer_prepostprocess_dropout=0.5,
        clip_grad_norm=0.0,
        optimizer="adadelta",
        learning_rate_schedule="constant",
    )


@register_hparams
def text_cnn_static() -> TextCnnHParams:
    """The same with fixed word vectors: Kim 2014, CNN-static.

    Set the vectors with pretrained_embeddings.
    """
    return text_cnn_base().replace(freeze=("modalities.*bottom",))


@register_hparams
def text_cnn_tiny() -> TextCnnHParams:
    """16 filters of each width over vectors of 32, for tests and quick trials."""
    return text_cnn_base().replace(
        embedding_size=32,
        num_filters=16,
        layer_prepostprocess_dropout=0.2,
        optimizer="adam",
        learning_rate_constant=0.003,
    )


@register_hparams
def text_cnn_small() -> TextCnnHParams:
    """For thousands of texts: Adam, weight averaging, and a fifth of the words dropped."""
    return with_adam(text_cnn_base()).replace(
        symbol_dropout=0.2, ema_decay=0.99, learning_rate_constant=0.001
    )


@register_hparams
def text_cnn_ag_news() -> TextCnnHParams:
    """For topic_ag_news_words, 900 steps: 64 filters of each width, a fifth of the words dropped.

    Adam and weight averaging replace Adadelta.
    """
    return with_adam(text_cnn_base()).replace(
        embedding_size=128,
        num_filters=64,
        batch_size=2048,
        symbol_dropout=0.2,
        ema_decay=0.99,
        learning_rate_constant=0.003,
        learning_rate_warmup_steps=50,
    )
