"""Hparams sets of `electra`."""

from __future__ import annotations

from typing import Self

from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import for_trials, one_cycle
from t2t_torch.hparams.transformer_encoder import (
    TransformerEncoderHParams,
    transformer_encoder_small,
)
from t2t_torch.params import share
from t2t_torch.registry import register_hparams


class ElectraHParams(TransformerEncoderHParams):
    """ELECTRA: a small generator beside the encoder."""

    generator_share: float = share(
        0.25, "Width of the generator's layers, as a fraction of the encoder's."
    )
    discriminator_weight: float = hp(
        50.0, "Weight of the loss of recognizing replaced tokens.", low=0
    )

    def of_generator(self) -> Self:
        """Returns the hyperparameters of the generator's layers."""
        heads = max(1, round(self.num_heads * self.generator_share))
        width = max(1, round(self.hidden_size * self.generator_share / heads)) * heads
        size = max(1, round(self.filter_size * self.generator_share))
        return self.replace(hidden_size=width, num_heads=heads, filter_size=size)


@register_hparams
def electra_small() -> ElectraHParams:
    """Twelve layers of 256.  Clark et al. 2020, table 6; embeddings are as wide as the layers.

    There no hidden token is read as a random one, and 0.15 of them are read as they are:
    `mask_random_share=0,mask_kept_share=0.15`.
    """
    small = ElectraHParams.starting_from(transformer_encoder_small())
    return one_cycle(small, 0.0005, 10_000).replace(
        num_hidden_layers=12,
        layer_prepostprocess_dropout=0.1,
        symbol_dropout=0.0,
        weight_decay=0.01,
        optimizer="adam_w",
        optimizer_adam_epsilon=1e-6,
        optimizer_adam_beta2=0.999,
    )


@register_hparams
def electra_tiny() -> ElectraHParams:
    """Two layers of 64, for tests and quick trials."""
    tiny = electra_small().replace(hidden_size=64, filter_size=256, num_heads=2)
    return for_trials(tiny.replace(num_hidden_layers=2))
