"""Hyperparameters of Transformer layers; see `layers/transformer_layer.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from t2t_torch.hparam import HParams
from t2t_torch.params import hp

if TYPE_CHECKING:
    from typing import Self


class TransformerLayerHParams(HParams):
    """Transformer layers: attention and feed-forward sublayers, positions."""

    computes: ClassVar[bool] = True

    num_heads: int = hp(8, "Attention heads; divides hidden_size.", low=1)
    filter_size: int = hp(2048, "Width inside the feed-forward sublayers.", low=1)
    attention_dropout: float = hp(
        0.0,
        "Probability of zeroing an attention weight; training only.",
        low=0,
        below=1,
        computes=False,
    )
    relu_dropout: float = hp(
        0.0,
        "Probability of zeroing a unit inside a feed-forward sublayer.",
        low=0,
        below=1,
        computes=False,
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
