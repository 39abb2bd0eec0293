"""Hyperparameters of Transformer language models, with those of attention_lm and of memory."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import one_cycle, with_noam
from t2t_torch.hparams.transformer import TransformerHParams, transformer_big
from t2t_torch.registry import register_hparams


class TransformerLmHParams(TransformerHParams):
    """Transformer language model: the Transformer's hyperparameters."""

    predict_first: bool = hp(
        True,
        "The first id of a text is predicted, from zeros or decoder_start_id; False: it is given, "
        "as in GPT-2, and all ids are equally probable in its place.",
        computes=True,
    )


def _of_width(hparams: TransformerLmHParams, hidden_size: int) -> TransformerLmHParams:
    """Returns a copy of a given width with GPT's proportions: heads of 64, filters of 4 x width."""
    return hparams.replace(
        hidden_size=hidden_size, num_heads=hidden_size // 64, filter_size=4 * hidden_size
    )


@register_hparams
def transformer_lm_base() -> TransformerLmHParams:
    """Twelve pre-norm layers of 768: GPT's.  Radford et al. 2018, "Model specifications"."""
    return one_cycle(_of_width(TransformerLmHParams(), 768), 2.5e-4, 2000).replace(
        num_hidden_layers=12,
        batch_size=8192,
        stream_length=512,
        stream_rows=64,
        eval_stream_rows=8,
        shared_embedding_and_softmax_weights=True,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        attention_dropout=0.1,
        label_smoothing=0.0,
        initializer="normal_unit_scaling",
        initializer_gain=1.0,
        clip_grad_norm=1.0,
        weight_decay=0.01,
        optimizer="adam_w",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        optimizer_adam_epsilon=1e-8,
    )


@register_hparams
def transformer_lm_small() -> TransformerLmHParams:
    """Four layers of 256, for a million tokens on a CPU."""
    return _of_width(transformer_lm_base(), 256).replace(
        num_hidden_layers=4,
        batch_size=4096,
        stream_length=128,
        stream_rows=32,
        learning_rate_constant=1e-3,
        learning_rate_warmup_steps=200,
    )


@register_hparams
def transformer_lm_tiny() -> TransformerLmHParams:
    """Two layers of 64, for tests and quick trials."""
    return _of_width(transformer_lm_small(), 64).replace(
        num_heads=2,
        num_hidden_layers=2,
        batch_size=1024,
        stream_length=64,
        stream_rows=16,
        layer_prepostprocess_dropout=0.0,
        attention_dropout=0.0,
        learning_rate_constant=3e-3,
        learning_rate_warmup_steps=10,
    )


@register_hparams
def transformer_lm_tiny_relative_v2() -> TransformerLmHParams:
    """`transformer_lm_tiny` with vectors of each head for distances."""
    return transformer_lm_tiny().replace(
        pos="none", self_attention_type="dot_product_relative_v2", max_relative_position=16
    )


@register_hparams
def transformer_lm_relative() -> TransformerLmHParams:
    """`transformer_lm_small` with relative positions.  Shaw et al. 2018, arXiv:1803.02155."""
    return transformer_lm_small().relative(64)


@register_hparams
def transformer_lm_ptb() -> TransformerLmHParams:
    """Four layers of 384 on `languagemodel_ptb10k`: high dropout for its one million words."""
    return _of_width(transformer_lm_small(), 384).replace(
        layer_prepostprocess_dropout=0.4,
        attention_dropout=0.2,
        relu_dropout=0.2,
        symbol_dropout=0.1,
        weight_decay=0.05,
        activation_dtype="auto",
    )


@register_hparams
def transformer_lm_shakespeare() -> TransformerLmHParams:
    """Six layers of 384 on `languagemodel_tiny_shakespeare_characters`: 5,000 steps.

    Sizes, dropout and rates of github.com/karpathy/nanoGPT, config/train_shakespeare_char.py, whose
    result is 1.4697 nats per character.
    """
    return _of_width(transformer_lm_base(), 384).replace(
        num_hidden_layers=6,
        stream_length=256,
        layer_prepostprocess_dropout=0.2,
        attention_dropout=0.2,
        weight_decay=0.1,
        optimizer_adam_beta2=0.99,
        learning_rate_constant=1e-3,
        learning_rate_warmup_steps=100,
        activation_dtype="auto",
    )


@register_hparams
def transformer_lm_modern() -> TransformerLmHParams:
    """`transformer_lm_shakespeare` with what later models brought, and as many weights."""
    return transformer_lm_shakespeare().modernized().replace(filter_size=1024)


class AttentionLmHParams(TransformerLmHParams):
    """Language model with post-norm layers."""


@register_hparams
def attention_lm_base() -> AttentionLmHParams:
    """Six post-norm layers of 1024."""
    return with_noam(AttentionLmHParams()).replace(
        hidden_size=1024,
        filter_size=4096,
        num_hidden_layers=6,
        batch_size=8192,
        max_length=256,
        learning_rate_warmup_steps=2000,
        label_smoothing=0.0,
    )


@register_hparams
def attention_lm_small() -> AttentionLmHParams:
    """Four layers of 512 with more dropout."""
    return attention_lm_base().replace(
        num_hidden_layers=4, hidden_size=512, filter_size=2048, layer_prepostprocess_dropout=0.5
    )


@register_hparams
def attention_lm_tiny() -> AttentionLmHParams:
    """Two layers of 128, for tests and quick trials."""
    return attention_lm_base().replace(
        num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4, batch_size=2048
    )


class AttentionLmMoeHParams(AttentionLmHParams):
    """Language model with post-norm layers, for mixtures of experts.

    In tensor2tensor `moe_layers` has no effect: its sets are of a plain language model.  For
    experts set `ffn_layer=moe`.
    """


@register_hparams
def attention_lm_moe_base() -> AttentionLmMoeHParams:
    """Four post-norm layers of 1024."""
    return AttentionLmMoeHParams.starting_from(attention_lm_base()).replace(
        num_hidden_layers=4, filter_size=2048
    )


@register_hparams
def attention_lm_moe_small() -> AttentionLmMoeHParams:
    """Four layers of 512."""
    return attention_lm_moe_base().replace(hidden_size=512)


@register_hparams
def attention_lm_moe_tiny() -> AttentionLmMoeHParams:
    """`attention_lm_moe_small`, which it differs from in the number of experts only."""
    return attention_lm_moe_small()


class TransformerMemoryHParams(TransformerLmHParams):
    """Transformer with memory: a language model of streams; see `stream_length`."""

    num_memory_items: int = hp(
        0, "Positions of each layer that the next batch sees.  0: stream_length.", low=0
    )

    @property
    def memory_items(self) -> int:
        """Positions that a layer remembers."""
        return self.num_memory_items or self.stream_length


@register_hparams
def transformer_wikitext103_l4k_memory_v0() -> TransformerMemoryHParams:
    """Eight layers of 1024 over blocks of 64 tokens, 64 streams."""
    return (
        TransformerMemoryHParams.starting_from(transformer_big())
        .relative(128)
        .replace(
            optimizer="adafactor",
            learning_rate_schedule="rsqrt_decay",
            learning_rate_warmup_steps=10_000,
            num_heads=4,
            num_hidden_layers=8,
            shared_embedding_and_softmax_weights=False,
            layer_prepostprocess_dropout=0.2,
            label_smoothing=0.0,
            stream_length=64,
            stream_rows=64,
            num_memory_items=64,
        )
    )


@register_hparams
def transformer_memory_tiny() -> TransformerMemoryHParams:
    """`transformer_lm_tiny` with a memory of one block, for tests and quick trials."""
    tiny = TransformerMemoryHParams.starting_from(transformer_lm_tiny())
    return tiny.relative(2 * tiny.stream_length)
