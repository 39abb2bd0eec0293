"""Hyperparameters that models share: of tokens, Transformer layers, recurrence in depth, pictures.

`layers/tokens.py`, `layers/transformer_layer.py`, `layers/depth_recurrence.py` and
`modalities/image.py` read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

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
from t2t_torch.params import Params, hp, probability

if TYPE_CHECKING:
    from typing import Self


_P = TypeVar("_P", bound="TokenHParams")
_H = TypeVar("_H", bound=HParams)


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


class FittedHParams(HParams):
    """Models that fit themselves before the first step, which then changes nothing."""

    fits: ClassVar[bool] = True

    @classmethod
    def fitted(cls) -> Self:
        """Returns the base of the sets: one pass over a batch, at a rate of 0."""
        return cls().replace(
            multiply_embedding_mode="none",
            label_smoothing=0.0,
            weight_decay=0.0,
            clip_grad_norm=0.0,
            batch_size=4096,
            max_length=100_000,
            optimizer="sgd",
            learning_rate_schedule="constant",
            learning_rate_warmup_steps=0,
            learning_rate_constant=0.0,
        )


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


def with_adam(hparams: _H) -> _H:
    """Returns a copy with Adam, 100 steps of warm-up and a cosine schedule to zero."""
    return hparams.replace(
        optimizer="adam",
        optimizer_adam_epsilon=1e-8,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.99,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_warmup_steps=100,
    )


def one_cycle(hparams: _H, peak: float, warmup: int) -> _H:
    """Returns a copy with a warm-up to `peak`, and a cosine schedule to zero."""
    return hparams.replace(
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_constant=peak,
        learning_rate_warmup_steps=warmup,
    )


def for_trials(hparams: _H) -> _H:
    """Returns a copy for tests and quick trials: a rate of 0.005 after 10 steps of warm-up."""
    return hparams.replace(learning_rate_constant=0.005, learning_rate_warmup_steps=10)


def with_noam(hparams: _H) -> _H:
    """Returns a copy with the optimization of tensor2tensor's first Transformers: Adam, noam."""
    return hparams.replace(
        clip_grad_norm=0.0,
        optimizer_adam_epsilon=1e-9,
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        learning_rate_decay_scheme="noam",
        learning_rate=0.1,
        learning_rate_warmup_steps=4000,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=0.0,
    )


class TransformerLayerHParams(HParams):
    """Transformer layers: attention and feed-forward sublayers, positions."""

    computes: ClassVar[bool] = True

    num_heads: int = hp(8, "Attention heads; divides hidden_size.", low=1)
    filter_size: int = hp(2048, "Width inside the feed-forward sublayers.", low=1)
    attention_dropout: float = probability(
        0.0, "Probability of zeroing an attention weight; training only.", computes=False
    )
    relu_dropout: float = probability(
        0.0, "Probability of zeroing a unit inside a feed-forward sublayer.", computes=False
    )
    attention_bias: bool = hp(False, "The linear maps of attention have biases.")
    ffn_bias: bool = hp(True, "The linear maps of feed-forward sublayers have biases.")
    ffn_activation: Literal[
        "relu", "gelu", "gelu_tanh", "silu", "quick_gelu", "relu_squared", "tanh", "linear"
    ] = hp(
        "relu",
        "Activation function of feed-forward sublayers; gelu_tanh and quick_gelu approximate gelu.",
    )
    ffn_gated: bool = hp(
        False, "The activation is multiplied by a second linear map of the input (GLU)."
    )
    pos: Literal[
        "timing", "sinusoids", "sinusoids_interleaved", "learned", "rotary", "alibi", "none"
    ] = hp(
        "timing",
        "Positions.  Vectors added to embeddings: timing: sines, then cosines, with "
        "tensor2tensor's frequencies; sinusoids: those of Vaswani et al. 2017; "
        "sinusoids_interleaved: each sine before its cosine; learned: a table.  In self-attention: "
        "rotary: queries and keys are rotated; alibi: scores fall with the distance.",
    )
    position_offset: int = hp(0, "Added to each position of timing and sinusoids.", low=0)
    max_source_positions: int = hp(
        0,
        "Positions of an input; later ones have the vector of the last.  0: as many as it has; "
        "pos=learned needs a number.",
        low=0,
    )
    embedding_norm: bool = hp(False, "Norm after embeddings and positions.")
    norm_type: Literal["layer", "rms"] = hp(
        "layer", "Kind of all norms: layer norm, or root mean square."
    )
    num_key_value_heads: int = hp(
        0,
        "Heads of keys and values in self-attention, shared by groups of num_heads; 1 is "
        "multi-query attention.  0: num_heads.",
        low=0,
    )
    output_norm: bool = hp(
        True, "A norm before sublayers (layer_preprocess_sequence) is after the last layer, too."
    )
    qk_norm: bool = hp(False, "RMS norm of each head's queries and keys in self-attention.")
    ffn_layer: Literal["dense_relu_dense", "moe", "local_moe"] = hp(
        "dense_relu_dense",
        "Kind of feed-forward sublayers.  moe: a mixture of experts, gates as in Switch, GShard "
        "and Mixtral; local_moe: with tensor2tensor's noisy gates.",
    )
    moe_num_experts: int = hp(16, "Experts of a mixture.", low=1)
    moe_k: int = hp(2, "Experts of each position.", low=1)
    moe_loss_coef: float = hp(
        1e-3,
        "Factor on the load-balancing loss of each mixture, in the training loss.",
        low=0,
        computes=False,
    )
    moe_overhead_train: float = hp(
        1.0,
        "moe: capacity of an expert in training, as a multiple of an equal share of the positions; "
        "what is above it skips the expert.  0: no limit, as in evaluation.",
        low=0,
        computes=False,
    )

    def modernized(self) -> Self:
        """Returns a copy with rotary positions, RMS norms, SwiGLU, a norm of queries and keys.

        A gated sublayer has three matrices: two thirds of `filter_size` keep the number of weights.
        """
        return self.replace(
            pos="rotary",
            norm_type="rms",
            ffn_activation="silu",
            ffn_gated=True,
            ffn_bias=False,
            qk_norm=True,
        )


class RecurrenceHParams(Params):
    """Recurrence in depth: one block of layers, applied several times."""

    computes: ClassVar[bool] = True

    recurrence_type: Literal["basic", "act", "highway", "skip", "dwa", "gru", "lstm"] = hp(
        "basic",
        "State of a position after a step.  basic: the block's output; act: it stops after as many "
        "steps as it needs; highway and skip: gated with the state before, or with the first; dwa: "
        "the block reads a sum over the states before; gru and lstm: a recurrent cell replaces the "
        "feed-forward network.",
    )
    num_rec_steps: int = hp(0, "Steps.  0: num_hidden_layers.", low=0, high=10_000)
    num_inrecurrence_layers: int = hp(1, "Layers of the block.", low=1, high=10_000)
    add_position_timing_signal: bool = hp(
        True, "Each step adds sinusoids of the position, and pos=timing adds nothing."
    )
    add_step_timing_signal: bool = hp(
        True, "Each step adds a vector of its number.  gru and lstm need none."
    )
    step_timing_signal_type: Literal["learned", "sinusoid"] = hp("learned", "Kind of that vector.")
    gates_inputs: str = hp(
        "i",
        "highway and skip: what the gates read.  i: the block's first input; s: the state; t: the "
        "block's output.",
        pattern="^[sti]+$",
    )
    transform_bias_init: float = hp(
        -1.0, "highway and skip: initial bias of the gate of the block's output.", computes=False
    )
    couple_carry_transform_gates: bool = hp(
        True, "highway and skip: the two gates sum to 1, else each is learned."
    )
    depth_embedding: bool = hp(True, "dwa: a learned vector of its step is added to each state.")
    dwa_elements: bool = hp(True, "dwa: each unit of a state has a weight, else each position.")
    add_ffn_unit_to_the_transition_function: bool = hp(
        False, "gru and lstm: a feed-forward network comes before the cell."
    )
    lstm_forget_bias: float = hp(1.0, "lstm: added to the forget gate.")
    act_type: Literal["basic", "accumulated", "global", "random"] = hp(
        "basic",
        "act: halting.  basic: each position, the output is a running mean of the states; "
        "accumulated: it is their weighted sum; global: all positions so far halt together; "
        "random: as basic, with random probabilities in training.",
    )
    act_max_steps: int = hp(
        0, "act: most steps of a position.  0: 2 num_hidden_layers.", low=0, high=10_000
    )
    act_halting_bias_init: float = hp(
        1.0, "act: initial bias of the halting probability.", computes=False
    )
    act_epsilon: float = hp(
        0.01, "act: a position halts when its probability is above 1 - this.", above=0, below=1
    )
    act_loss_weight: float = hp(
        0.01,
        "act: factor on the mean number of steps and remainder in the training loss.",
        low=0,
        computes=False,
    )

    def steps(self, num_hidden_layers: int) -> int:
        """Returns the greatest number of steps.

        Args:
          num_hidden_layers: for settings of 0.
        """
        if self.recurrence_type == "act":
            return self.act_max_steps or 2 * num_hidden_layers
        return self.num_rec_steps or num_hidden_layers


class ImageHParams(HParams):
    """Pictures: scaling of pixels."""

    image_standardization: Literal["per_image", "per_channel", "imagenet", "range", "none"] = hp(
        "per_image",
        "Scaling of the bytes of a picture.  per_image: by its own mean and standard deviation; "
        "per_channel: by those of each of its channels; imagenet: by ImageNet's, of each channel; "
        "range: to -1 ... 1; none: 0 ... 255.",
        computes=True,
    )
