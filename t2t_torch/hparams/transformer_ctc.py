"""Hyperparameters of the Transformer for speech with connectionist temporal classification."""

from __future__ import annotations

from t2t_torch.hparam import hp
from t2t_torch.hparams.transformer import TransformerHParams, transformer_speech_tiny
from t2t_torch.registry import register_hparams


class TransformerCtcHParams(TransformerHParams):
    """CTC: how much of the loss it is."""

    ctc_weight: float = hp(
        1.0,
        "Weight of CTC in the loss, as in ESPnet; the decoder has the rest.  1: no decoder.",
        above=0,
        high=1,
    )
    label_smoothing: float = hp(
        0.0, "Probability spread over the wrong ids of the decoder; training only.", low=0, below=1
    )


@register_hparams
def transformer_ctc_tiny() -> TransformerCtcHParams:
    """Three layers of 128 and CTC alone, for an hour of speech on a CPU."""
    return TransformerCtcHParams.model_validate(transformer_speech_tiny().model_dump()).replace(
        num_hidden_layers=3, label_smoothing=0.0, batch_size=4000
    )


@register_hparams
def transformer_ctc_joint_tiny() -> TransformerCtcHParams:
    """The same with two decoder layers, trained jointly.  Watanabe et al. 2017, ESPnet's 0.3."""
    return transformer_ctc_tiny().replace(ctc_weight=0.3, num_decoder_layers=2, label_smoothing=0.1)


@register_hparams
def transformer_ctc_base() -> TransformerCtcHParams:
    """Twelve encoder layers of 256 and six of a decoder, for a hundred hours of speech.

    ESPnet's transformer of LibriSpeech 100 h: 256 units, 4 heads, CTC weight 0.3.
    """
    return transformer_ctc_joint_tiny().replace(
        hidden_size=256,
        filter_size=2048,
        num_encoder_layers=12,
        num_decoder_layers=6,
        batch_size=40000,
        audio_num_mel_bins=80,
        audio_num_filters=128,
        audio_time_masks=5,
        audio_time_mask_frames=40,
        audio_frequency_mask_bins=27,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
        learning_rate_warmup_steps=15000,
    )
