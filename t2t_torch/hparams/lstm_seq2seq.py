"""Hyperparameters of LSTM encoder-decoders, with tensor2tensor's sets of models/lstm.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from t2t_torch.features import Feature
from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TokenHParams, one_cycle
from t2t_torch.params import probability
from t2t_torch.registry import register_hparams

if TYPE_CHECKING:
    from typing import Self


class LSTMSeq2seqHParams(TokenHParams):
    """LSTM encoder-decoder: input dropout."""

    num_hidden_layers: int = hp(
        2, "Layers of LSTM, of the encoder and of the decoder.", low=1, high=10_000
    )
    embedding_size: int = hp(
        0, "Width of a token's own vector, read or written.  0: hidden_size.", low=0
    )
    dropout: float = probability(0.2, "Probability of zeroing a unit that an LSTM layer reads.")

    def input_width(self, feature: Feature) -> int:
        """Returns the width of a feature's vectors."""
        if feature.is_text and not self.embedding_size:
            return self.hidden_size
        return super().input_width(feature)

    def of_decoder(self) -> Self:
        """Returns the settings of a decoder over both directions of an encoder: twice the units."""
        return self.replace(
            hidden_size=2 * self.hidden_size, embedding_size=self.embedding_size or self.hidden_size
        )


@register_hparams
def lstm_seq2seq() -> LSTMSeq2seqHParams:
    """Two layers of 128, tensor2tensor's set: a constant learning rate of 0.0002."""
    return LSTMSeq2seqHParams().replace(
        batch_size=1024,
        hidden_size=128,
        initializer="uniform_unit_scaling",
        initializer_gain=1.0,
        weight_decay=0.0,
    )


@register_hparams
def lstm_seq2seq_sutskever() -> LSTMSeq2seqHParams:
    """Four layers of 1,000.  Sutskever et al. 2014, arXiv:1409.3215, section 3.4.

    Plain SGD at a rate of 0.7, gradients clipped to a norm of 5, weights uniform in +-0.08.  The
    paper averages the loss over sentences, this library over tokens; the rate is halved from the
    fifth epoch on.
    """
    return lstm_seq2seq().replace(
        hidden_size=1000,
        num_hidden_layers=4,
        dropout=0.0,
        label_smoothing=0.0,
        multiply_embedding_mode="none",
        initializer="uniform",
        initializer_gain=0.8,
        optimizer="sgd",
        learning_rate_schedule="constant",
        learning_rate_constant=0.7,
        clip_grad_norm=5.0,
        batch_size=4096,
    )


@register_hparams
def lstm_seq2seq_tiny() -> LSTMSeq2seqHParams:
    """One layer of 64, for tests and quick trials."""
    return lstm_seq2seq().replace(
        hidden_size=64,
        num_hidden_layers=1,
        dropout=0.1,
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.003,
        learning_rate_warmup_steps=10,
        optimizer_adam_beta1=0.9,
    )


class LSTMSeq2seqAttentionHParams(LSTMSeq2seqHParams):
    """Attention of the LSTM decoder."""

    computes: ClassVar[bool] = True

    attention_mechanism: Literal["bahdanau", "luong"] = hp(
        "bahdanau", "How well a state and a position match.  bahdanau: a layer; luong: a product."
    )
    attention_layer_size: int = hp(
        0, "Width of what a head hands on of a state and its context.  0: hidden_size.", low=0
    )
    num_heads: int = hp(1, "Heads of the attention, each with a layer of its own.", low=1)
    output_attention: bool = hp(
        True, "The softmax reads what the attention hands on, else the LSTM's own output."
    )

    attention_activation: Literal["none", "tanh"] = hp(
        "none",
        "What the attention hands on passes through it.  tanh: Luong et al. 2015, equation 5.",
    )
    bidirectional_encoder: bool = hp(
        False, "The encoder reads in both directions, each with hidden_size / 2 units."
    )
    reverse_inputs: bool = hp(True, "An encoder of one direction reads the last token first.")
    input_feeding: bool = hp(
        True, "A step of the decoder reads what the attention handed on in the step before."
    )
    attention_bias: bool = hp(
        False, "The layers of the attention that read a state have biases; luong: the last one."
    )
    decoder_start_id: int = hp(
        -1, "Id whose embedding is the first input of the decoder.  -1: a vector of zeros.", low=-1
    )

    @property
    def head_size(self) -> int:
        """Returns the output width of an attention head."""
        return self.attention_layer_size or self.hidden_size

    def of_decoder(self) -> Self:
        """See `LSTMSeq2seqHParams.of_decoder`; a head keeps its width."""
        return super().of_decoder().replace(attention_layer_size=self.head_size)


@register_hparams
def lstm_bahdanau_attention() -> LSTMSeq2seqAttentionHParams:
    """Two layers of 128 with the attention of Bahdanau et al. 2015; tensor2tensor's set."""
    return LSTMSeq2seqAttentionHParams.starting_from(lstm_seq2seq())


@register_hparams
def lstm_attention() -> LSTMSeq2seqAttentionHParams:
    """Bahdanau's attention, as in tensor2tensor."""
    return lstm_bahdanau_attention()


@register_hparams
def lstm_luong_attention() -> LSTMSeq2seqAttentionHParams:
    """Luong's attention ("general", Luong et al. 2015); tensor2tensor's set."""
    return lstm_bahdanau_attention().replace(attention_mechanism="luong")


@register_hparams
def lstm_bahdanau_attention_multi() -> LSTMSeq2seqAttentionHParams:
    """Four heads of Bahdanau's attention; tensor2tensor's set."""
    return lstm_bahdanau_attention().replace(num_heads=4)


@register_hparams
def lstm_luong_attention_multi() -> LSTMSeq2seqAttentionHParams:
    """Four layers over Luong's attention; tensor2tensor's set."""
    return lstm_luong_attention().replace(num_heads=4)


@register_hparams
def lstm_seq2seq_attention_luong() -> LSTMSeq2seqAttentionHParams:
    """Four layers of 1,000 with dropout.  Luong et al. 2015, arXiv:1508.04025, section 4.1.

    Plain SGD at a rate of 1, gradients clipped to a norm of 5, weights uniform in +-0.1.  The
    paper averages the loss over sentences, this library over tokens; the rate is halved from the
    ninth epoch on.
    """
    return LSTMSeq2seqAttentionHParams.starting_from(lstm_seq2seq_sutskever()).replace(
        attention_mechanism="luong", dropout=0.2, initializer_gain=1.0, learning_rate_constant=1.0
    )


@register_hparams
def lstm_seq2seq_attention_tiny() -> LSTMSeq2seqAttentionHParams:
    """One layer of 64, for tests and quick trials."""
    return LSTMSeq2seqAttentionHParams.starting_from(lstm_seq2seq_tiny()).replace(
        attention_mechanism="luong"
    )


@register_hparams
def lstm_seq2seq_attention_dates() -> LSTMSeq2seqAttentionHParams:
    """One layer of 128 that learns `dates_to_iso` in one or two minutes on two cores."""
    return lstm_seq2seq_attention_tiny().replace(
        hidden_size=128,
        batch_size=2048,
        label_smoothing=0.0,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay",
        learning_rate_constant=0.005,
        clip_grad_norm=1.0,
    )


@register_hparams
def lstm_seq2seq_attention_multi30k() -> LSTMSeq2seqAttentionHParams:
    """Two layers of 256 for tens of thousands of sentence pairs: high dropout, cosine to zero.

    Set `--train_steps`, the length of the cosine schedule.
    """
    return one_cycle(lstm_luong_attention(), 0.002, 200).replace(
        hidden_size=256,
        batch_size=4096,
        dropout=0.4,
        multiply_embedding_mode="none",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.98,
        clip_grad_norm=1.0,
    )
