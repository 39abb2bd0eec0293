"""Modalities of sounds, as spectrograms, and of texts that are predicted by frame (CTC).

Connectionist temporal classification has a loss, greedy decoding and prefix beam search: Graves et
al. 2006, "Connectionist Temporal Classification".  The blank is the id of padding, 0; the end of a
text is not an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import Audio
from t2t_torch.features.audio import LOUDEST, NO_SAMPLE
from t2t_torch.hparam import HParams
from t2t_torch.layers.audio import LogMel, SpecAugment, normalized
from t2t_torch.layers.pooling import padding_mask
from t2t_torch.modalities.image import reads_pixels
from t2t_torch.modality import BatchPrediction, Hidden, InputModality, Loss, Modality
from t2t_torch.text.encoder import EOS, PAD

BLANK = PAD

_NORM_EPSILON = 1e-6
_PADDED = 8  # frames before the convolutions, so that short sounds have an output


class ShorteningConvolutions(nn.Module):
    """Two strided convolutions and one over all frequencies, each with layer norm and ReLU.

    tensor2tensor's `speech_recognition_bottom`.  An output is of 40 ms and sees 150 ms.

    Args:
      bins: number of mel filters.
      channels: channels of the spectrogram.
      filters: filters of the first two convolutions.
      hidden_size: H.
    """

    def __init__(self, bins: int, channels: int, filters: int, hidden_size: int) -> None:
        super().__init__()
        heights = ((bins - 3) // 2 + 1 - 3) // 2 + 1
        self.first = nn.Conv2d(channels, filters, 3, 2, bias=False)
        self.second = nn.Conv2d(filters, filters, 3, 2, bias=False)
        self.last = nn.Conv2d(filters, hidden_size, (3, heights), bias=False)
        self.norms = nn.ModuleList(
            nn.LayerNorm(width, eps=_NORM_EPSILON) for width in (filters, filters, hidden_size)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Returns the outputs, 0 at padding.

        Args:
          x: spectrograms, [B, F, bins, channels], 0 at padding.
          lengths: valid frames, [B].

        Returns:
          [B, S, H], where S = `shortened(F)`.
        """
        x = F.pad(x, (0, 0, 0, 0, 0, _PADDED)).permute(0, 3, 1, 2)  # [B, C, F, bins], channels last
        x = self._norm(0, self.first(x))
        x = self._norm(1, self.second(x))
        mask = mask_of(shortened(lengths), x.size(2))
        x = F.pad(x * mask[:, None, :, None], (0, 0, 0, 2))
        return self._norm(2, self.last(x)).squeeze(3).transpose(1, 2) * mask[..., None]

    def _norm(self, number: int, x: Tensor) -> Tensor:
        """Returns normalized channels after ReLU.  [B, C, F, bins]."""
        return torch.relu(self.norms[number](x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def shortened(lengths: Any) -> Any:
    """Returns the number of outputs of the convolutions for numbers of frames."""
    return ((lengths + _PADDED - 3) // 2 + 1 - 3) // 2 + 1


def mask_of(lengths: Tensor, count: int) -> Tensor:
    """Returns the mask of the first positions of each row.  [B] -> [B, count] bool."""
    return torch.arange(count, device=lengths.device) < lengths[:, None]


class SpectrogramBottom(nn.Module):
    """Makes spectrograms of waveforms: log-mel, normalization by utterance, SpecAugment.

    Args:
      feature: sampling rate.
      hparams: audio_*, num_zeropad_frames.
    """

    def __init__(self, feature: Audio, hparams: HParams) -> None:
        super().__init__()
        self.zeros = hparams.num_zeropad_frames
        self.by_bin = hparams.audio_normalization == "bin"
        self.log_mel = LogMel(hparams, feature.sample_rate)
        self.augment: SpecAugment | None = None
        if hparams.audio_time_masks or hparams.audio_frequency_masks:
            self.augment = SpecAugment(hparams)

    def forward(self, waveforms: Tensor, seeds: Tensor | None = None) -> Tensor:
        """Returns spectrograms with `zeros` frames after the last one, 0 at padding.

        Args:
          waveforms: [B, frames, samples] int16.
          seeds: seeds of SpecAugment, [B]; None: no augmentation.

        Returns:
          [B, F, bins, channels].
        """
        with torch.no_grad(), torch.autocast(waveforms.device.type, enabled=False):
            x, lengths = self.log_mel(waveforms.float() / LOUDEST, waveforms != NO_SAMPLE)
            x = normalized(x, lengths, by_bin=self.by_bin)
            if self.training and self.augment is not None and seeds is not None:
                x = self.augment(x, lengths, seeds)
        return F.pad(x, (0, 0, 0, 0, 0, self.zeros))

    def lengths(self, waveforms: Tensor) -> Tensor:
        """Returns the number of valid frames, with `zeros`.  -> [B]."""
        return self.log_mel.lengths(waveforms != NO_SAMPLE) + self.zeros


class SpeechBottom(SpectrogramBottom):
    """Embeds waveforms: spectrograms, then convolutions.

    Args:
      feature: sampling rate.
      hparams: audio_*, num_zeropad_frames, hidden_size.
    """

    def __init__(self, feature: Audio, hparams: HParams) -> None:
        super().__init__(feature, hparams)
        self.convolutions = ShorteningConvolutions(
            hparams.audio_num_mel_bins,
            self.log_mel.channels,
            hparams.audio_num_filters,
            hparams.hidden_size,
        )

    def forward(self, waveforms: Tensor, seeds: Tensor | None = None) -> Tensor:
        """Returns the outputs of `ShorteningConvolutions`; see `SpectrogramBottom`."""
        x = super().forward(waveforms, seeds)
        embedded: Tensor = self.convolutions(x, self.lengths(waveforms))
        return embedded


class SpeechModality(InputModality):
    """Modality of sounds: [B, frames, samples] int16 -> [B, S, H].  Inputs only."""

    serves = Audio
    bottom: SpectrogramBottom

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns `SpectrogramModality` for models that read pixels."""
        return SpectrogramModality if reads_pixels(hparams) else cls

    @classmethod
    def bottom_of(cls, feature: Any, hparams: Any) -> nn.Module:
        """Returns the log mel filterbank and the convolutions."""
        return SpeechBottom(feature, hparams)

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns the embedding of a sound, augmented in training by its seed.  [B, S, H]."""
        embedded: Tensor = self.bottom(batch[name], batch.get(f"{name}_seed"))
        return embedded

    def mask(self, values: Tensor) -> Tensor:
        """Returns True at the outputs of a sound's own frames.  -> [B, S] bool."""
        lengths = self.bottom.lengths(values)
        return mask_of(shortened(lengths), shortened(values.size(1) + self.bottom.zeros))


class SpectrogramModality(SpeechModality):
    """Modality of sounds as pictures: [B, frames, samples] -> [B, F, bins, channels]."""

    @classmethod
    def bottom_of(cls, feature: Any, hparams: Any) -> nn.Module:
        """Returns the log mel filterbank."""
        return SpectrogramBottom(feature, hparams)

    def mask(self, values: Tensor) -> Tensor:
        """Returns True at a sound's own frames.  -> [B, F] bool."""
        return mask_of(self.bottom.lengths(values), values.size(1) + self.bottom.zeros)


def ctc_losses(logits: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    """Returns the negative log-likelihood of each text; 0 if its ids do not fit into the frames.

    Between two equal ids a path has a blank.  torch 2.13's gradient of a text that does not fit is
    not finite, also if it is multiplied by zero: such texts are replaced by empty ones.

    Args:
      logits: [B, S, V].
      mask: valid frames, the first ones of each row, [B, S] bool.
      targets: [B, T] ids, with or without `EOS`, then padding.

    Returns:
      [B] float32.
    """
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)  # [S, B, V]
    ids, frames = target_ids(targets), mask.sum(1)
    lengths = ids.sum(1)
    repeated = (targets[:, 1:] == targets[:, :-1]) & ids[:, 1:]
    fits = lengths + repeated.sum(1) <= frames
    return F.ctc_loss(
        log_probs, targets, frames, lengths * fits, BLANK, reduction="none", zero_infinity=True
    ).masked_fill(~fits, 0.0)


def target_ids(targets: Tensor) -> Tensor:
    """Returns the mask of the ids that CTC predicts: all but padding and `EOS`.  [B, T] bool."""
    return (targets != PAD) & (targets != EOS)


def collapsed(frames: Tensor) -> Tensor:
    """Returns the ids of a path without blanks and repetitions, then padding.  [B, S]."""
    before = F.pad(frames[:, :-1], (1, 0), value=BLANK)
    ids = torch.where(frames == before, BLANK, frames)
    order = (ids == BLANK).long().sort(dim=1, stable=True).indices
    return ids.gather(1, order)


_CERTAIN = 30.0  # logit of the predicted id, for metrics
_IMPOSSIBLE = -1e9  # logit of the end of a text, and at padding of all ids but the blank


class CtcModality(Modality):
    """Modality of a text with one output for each frame: hidden [B, S, H] -> logits [B, S, V].

    The targets keep their `EOS`, which is not predicted.  A model chooses it instead of the
    modality of its feature.

    Args:
      size: V.
      hparams: hidden_size.
    """

    rows_by_id = ("top.weight", "top.bias")
    bottom: None

    def __init__(self, size: int, hparams: HParams) -> None:
        super().__init__()
        self.bottom = None
        self.top = nn.Linear(hparams.hidden_size, size)

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Creates the modality of a target."""
        return cls(feature.vocab_size, hparams)

    def mask(self, values: Tensor) -> Tensor:
        """Returns the mask of ids that are not padding.  [B, T] -> [B, T] bool."""
        return padding_mask(values)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 for each predicted id, else 0.  [B, T] -> [B, T]."""
        return target_ids(targets).float()

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the output of `top`, never `EOS`; at padding the blank is certain.  [B, S, V]."""
        logits: Tensor = self.top(hidden.states).float()
        ids = torch.arange(logits.size(-1), device=logits.device)
        logits = torch.where(ids == EOS, _IMPOSSIBLE, logits)
        if hidden.mask is None:
            return logits
        blank = torch.where(ids == BLANK, 0.0, _IMPOSSIBLE)
        return torch.where(hidden.mask[..., None], logits, blank)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the negative log-likelihood per predicted id; padding frames cost nothing."""
        is_frame = logits[..., BLANK + 1 :].amax(-1) > _IMPOSSIBLE / 2  # else padding, see `logits`
        values = ctc_losses(logits, is_frame, targets)
        counted = self.item_weights(targets, None)
        if weights is not None:
            values, counted = values * weights, counted * weights[:, None]
        return Loss(values.sum(), counted.sum())

    def readable(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns logits whose maxima are the greedy text, `EOS` and padding.

        They have more positions than the targets: by this, metrics know that the text was predicted
        without them.

        Args:
          logits: [B, S, V].
          targets: [B, T].

        Returns:
          [B, S + T + 1, V].
        """
        ids = F.pad(collapsed(logits.argmax(-1)), (0, 1 + targets.size(1)))
        ends = (ids != PAD).sum(1, keepdim=True)
        ids = ids.scatter(1, ends, EOS)
        return _CERTAIN * F.one_hot(ids, logits.size(-1)).float()

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the greedy text of each example; the score is the path's log-probability, [B]."""
        best, frames = logits.float().log_softmax(-1).max(-1)
        return BatchPrediction(collapsed(frames), None, best.sum(-1))


class CtcHypothesis(NamedTuple):
    """A hypothesis of the search, without `EOS`.

    Attributes:
      ids: its ids.
      log_prob: logarithm of the sum of the probabilities of its paths in the beam.
      score: `log_prob` divided by the length penalty.
    """

    ids: tuple[int, ...]
    log_prob: float
    score: float


_NEVER = -math.inf
_UNLIKELY = -12.0  # log-probability of an id of a frame below which it is not tried


def prefix_beam_search(
    log_probs: npt.NDArray[np.float32],
    beam_size: int,
    penalty: Callable[[int], float] = lambda length: 1.0,
) -> list[CtcHypothesis]:
    """Returns the best texts of an utterance, by score, at most `beam_size`.

    Hannun et al. 2014, arXiv:1408.2873, algorithm 1, without a language model.

    Args:
      log_probs: log-probabilities of each frame, [S, V], without padding.
      beam_size: number of prefixes that are kept after each frame.
      penalty: divisor of the log-probability of a text of so many ids.
    """
    # By prefix: log-probabilities of the paths that end in a blank, and of those that do not.
    beam: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, _NEVER)}
    for row in log_probs.tolist():
        best = sorted(range(len(row)), key=lambda i: -row[i])[: 2 * beam_size]
        tried = [i for i in best if i != BLANK and row[i] > _UNLIKELY]
        grown: dict[tuple[int, ...], list[float]] = {}
        for prefix, (blank, other) in beam.items():
            both = _sum(blank, other)
            stays = grown.setdefault(prefix, [_NEVER, _NEVER])
            stays[0] = _sum(stays[0], both + row[BLANK])
            if prefix:
                stays[1] = _sum(stays[1], other + row[prefix[-1]])
            for i in tried:
                # The same id twice needs a blank in between.
                before = blank if prefix and prefix[-1] == i else both
                longer = grown.setdefault((*prefix, i), [_NEVER, _NEVER])
                longer[1] = _sum(longer[1], before + row[i])
        kept = sorted(grown.items(), key=lambda one: (-_sum(*one[1]), one[0]))[:beam_size]
        beam = {prefix: (blank, other) for prefix, (blank, other) in kept}
    prefixes = [
        CtcHypothesis(ids, log_prob, log_prob / penalty(len(ids)))
        for ids, log_prob in ((ids, _sum(*parts)) for ids, parts in beam.items())
        if log_prob > _NEVER
    ]
    return sorted(prefixes, key=lambda one: (-one.score, one.ids))


def _sum(first: float, second: float) -> float:
    """Returns the logarithm of the sum of two probabilities, given their logarithms."""
    high, low = (first, second) if first > second else (second, first)
    return high if low == _NEVER else high + math.log1p(math.exp(low - high))
