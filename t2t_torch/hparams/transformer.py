"""The Transformer's hyperparameters and tensor2tensor's sets of them, models/transformer.py."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam import HParams, hp
from t2t_torch.registry import register_hparams


class TransformerHParams(HParams):
    """Transformer: attention and feed-forward sublayers."""

    num_heads: int = hp(8, "Attention heads; divides hidden_size.", low=1)
    filter_size: int = hp(2048, "Width inside the feed-forward sublayers.", low=1)
    attention_dropout: float = hp(
        0.0, "Probability of zeroing an attention weight; training only.", low=0, below=1
    )
    relu_dropout: float = hp(
        0.0, "Probability of zeroing a unit inside a feed-forward sublayer.", low=0, below=1
    )
    num_encoder_layers: int = hp(0, "Layers of the encoder.  0: num_hidden_layers.", low=0)
    num_decoder_layers: int = hp(0, "Layers of the decoder.  0: num_hidden_layers.", low=0)
    pos: Literal["timing", "none"] = hp("timing", "timing: sinusoids are added to embeddings.")
    use_target_space_embedding: bool = hp(
        True, "Adds an embedding of the problem's target space to the encoder's input."
    )


@register_hparams
def transformer_base_v1() -> TransformerHParams:
    """The base model with post-norm.  Vaswani et al. 2017, table 3, row "base"."""
    return TransformerHParams().replace(
        hidden_size=512,
        batch_size=4096,
        max_length=256,
        clip_grad_norm=0.0,
        optimizer_adam_epsilon=1e-9,
        learning_rate_schedule="legacy",
        learning_rate_decay_scheme="noam",
        learning_rate=0.1,
        learning_rate_warmup_steps=4000,
        initializer_gain=1.0,
        num_hidden_layers=6,
        initializer="uniform_unit_scaling",
        weight_decay=0.0,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        label_smoothing=0.1,
        shared_embedding_and_softmax_weights=True,
    )


@register_hparams
def transformer_base_v2() -> TransformerHParams:
    """Pre-norm, dropout everywhere and a longer warm-up: trains more stably."""
    return transformer_base_v1().replace(
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_warmup_steps=8000,
        learning_rate=0.2,
    )


@register_hparams
def transformer_base_v3() -> TransformerHParams:
    """The schedule of v2 written as factors, and a slower second moment."""
    return transformer_base_v2().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
    )


@register_hparams
def transformer_base() -> TransformerHParams:
    """The newest version of the base model."""
    return transformer_base_v3()


@register_hparams
def transformer_big() -> TransformerHParams:
    """The big model.  Vaswani et al. 2017, table 3, row "big"."""
    return transformer_base().replace(
        hidden_size=1024,
        filter_size=4096,
        batch_size=2048,  # Fits a GPU of 12 GB.
        num_heads=16,
        layer_prepostprocess_dropout=0.3,
    )


@register_hparams
def transformer_base_single_gpu() -> TransformerHParams:
    """The base model on one GPU: smaller batches, a longer warm-up."""
    return transformer_base().replace(
        batch_size=1024,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16000,
    )


@register_hparams
def transformer_big_single_gpu() -> TransformerHParams:
    """The big model on one GPU."""
    return transformer_big().replace(
        layer_prepostprocess_dropout=0.1,
        learning_rate_warmup_steps=16000,
    )


@register_hparams
def transformer_small() -> TransformerHParams:
    """Two layers of 256."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=256, filter_size=1024, num_heads=4
    )


@register_hparams
def transformer_tiny() -> TransformerHParams:
    """Two layers of 128."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4
    )


@register_hparams
def transformer_test() -> TransformerHParams:
    """Two layers of 16, for tests."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2
    )


@register_hparams
def transformer_multi30k() -> TransformerHParams:
    """Three layers of 256 for tens of thousands of sentence pairs: much dropout, cosine to zero.

    Meant for 4,000 to 10,000 steps on a CPU that multiplies bfloat16, or on any GPU; give
    `--train_steps`, which the cosine runs to.
    """
    return transformer_small().replace(
        num_hidden_layers=3,
        layer_prepostprocess_dropout=0.3,
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_constant=0.002,
        learning_rate_warmup_steps=1000,
        optimizer_adam_beta2=0.98,
        clip_grad_norm=1.0,
        activation_dtype="bfloat16",
    )


@register_hparams
def transformer_dates() -> TransformerHParams:
    """Two layers of 128 that learn `dates_to_iso` in a minute or two on two cores."""
    return transformer_tiny().replace(
        batch_size=2048,
        layer_prepostprocess_dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        label_smoothing=0.0,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_constant=0.002,
        learning_rate_warmup_steps=100,
        optimizer_adam_beta2=0.98,
        clip_grad_norm=1.0,
    )
