"""Hyperparameters of word models: widths of the parts of a token embedding.

The embedding of a token is concatenated with the embeddings of the features of its word; see
`layers/tokens.py`.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from t2t_torch.features import (
    Feature,
    Gazetteer,
    Real,
    Text,
    WordCharacters,
    WordLabel,
    WordReal,
    WordShape,
)
from t2t_torch.hparam import HParams
from t2t_torch.params import hp

_P = TypeVar("_P", bound="TokenHParams")


class TokenHParams(HParams):
    """Tokens: the parts of their vectors."""

    embedding_size: int = hp(100, "Width of a token's own vector.", low=1)
    character_size: int = hp(50, "Width of what a word's characters or bytes add.", low=1)
    shape_size: int = hp(8, "Width of what a word's shape adds.", low=1)
    word_label_size: int = hp(16, "Width of what a given label of a word (its tag) adds.", low=1)
    gazetteer_size: int = hp(16, "Width of what a word's gazetteer entries add.", low=1)
    word_dense_size: int = hp(64, "Width of what the numbers of a word become.", low=1)
    dense_size: int = hp(16, "Width of what the numbers of an example become.", low=1)

    @classmethod
    def plain(cls: type[_P]) -> _P:
        """Returns the base of most sets, without tensor2tensor's defaults for translation.

        Embeddings are not scaled, there is no label smoothing and no weight decay.
        """
        return cls().replace(
            multiply_embedding_mode="none",
            initializer="uniform_unit_scaling",
            initializer_gain=1.0,
            label_smoothing=0.0,
            weight_decay=0.0,
        )

    @property
    def text_size(self) -> int:
        """Returns the width of the vectors of a text: token and contextual embeddings."""
        return self.embedding_size + (self.contextual_size if self.contextual_embeddings else 0)

    def input_width(self, feature: Feature) -> int:
        """Returns the width of the part of the embedding for a feature."""
        for kind, width in (
            (Text, self.text_size),
            (WordCharacters, self.character_size),
            (WordShape, self.shape_size),
            (WordLabel, self.word_label_size),
            (Gazetteer, self.gazetteer_size),
            (WordReal, self.word_dense_size),
            (Real, self.dense_size),
        ):
            if isinstance(feature, kind):
                return width
        return self.hidden_size


class SentenceHParams(TokenHParams):
    """Sentences: what makes one vector of a text; see `layers/sentence_encoder.py`."""

    encoder: Literal["lstm", "cnn", "none"] = hp(
        "lstm",
        "lstm: LSTMs in both directions; cnn: convolutions of one width; none: a text's vectors "
        "are those of its tokens.",
    )
    encoder_size: int = hp(128, "Units of each direction of an LSTM, or filters.", low=1)
    kernel_size: int = hp(3, "cnn: positions that a filter sees.", low=1)
    sentence_pooling: Literal["max", "mean", "attention"] = hp(
        "max", "How a text's vectors become one; attention: weights are learnt.", computes=True
    )


def with_adam(hparams: _P) -> _P:
    """Returns a copy with Adam, 100 steps of warm-up and a cosine schedule to zero."""
    return hparams.replace(
        optimizer="adam",
        optimizer_adam_epsilon=1e-8,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.99,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_warmup_steps=100,
    )
