"""Hyperparameters of the Transformer with memory, with tensor2tensor's sets."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparams.transformer import transformer_big
from t2t_torch.hparams.transformer_lm import TransformerLmHParams, transformer_lm_tiny
from t2t_torch.registry import register_hparams


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
    return TransformerMemoryHParams.starting_from(transformer_big()).replace(
        optimizer="adafactor",
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=10_000,
        num_heads=4,
        num_hidden_layers=8,
        shared_embedding_and_softmax_weights=False,
        attention_dropout=0.1,
        layer_prepostprocess_dropout=0.2,
        relu_dropout=0.1,
        label_smoothing=0.0,
        stream_length=64,
        stream_rows=64,
        pos="none",
        self_attention_type="dot_product_relative",
        max_relative_position=128,
        num_memory_items=64,
    )


@register_hparams
def transformer_memory_tiny() -> TransformerMemoryHParams:
    """`transformer_lm_tiny` with a memory of one block, for tests and quick trials."""
    tiny = TransformerMemoryHParams.starting_from(transformer_lm_tiny())
    return tiny.replace(
        pos="none",
        self_attention_type="dot_product_relative",
        max_relative_position=2 * tiny.stream_length,
    )
