"""Log-mel spectrograms of waveforms, normalized by utterance, and SpecAugment."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features.audio import mel_matrix
from t2t_torch.hparam import AudioHParams

_FLOOR = 1e-3  # of a mel magnitude
_LEAST_VARIANCE = 1e-9
_LEAST_VARIANCE_OF_A_SOUND = 1e-4  # of log levels: less is noise of rounding
_DELTA = (2.0, 1.0, 0.0, -1.0, -2.0)


class LogMel(nn.Module):
    """Log-mel spectrogram with differences over time, as tensor2tensor's `common_audio`.

    Frames of magnitudes, not energies; a Hann window; the logarithm of 0.001 at least.  Only valid
    samples are read: a result does not depend on padding.

    Args:
      hparams: audio_*.
      sample_rate: in Hz.
      floor: least mel magnitude.
    """

    waves: Tensor
    window: Tensor
    mel: Tensor
    deltas: Tensor

    def __init__(self, hparams: AudioHParams, sample_rate: int, floor: float = _FLOOR) -> None:
        super().__init__()
        highest = min(hparams.audio_upper_edge_hertz, sample_rate / 2)
        if hparams.audio_lower_edge_hertz >= highest:
            raise HParamsError(
                f"audio_lower_edge_hertz={hparams.audio_lower_edge_hertz:g} must be below "
                f"audio_upper_edge_hertz, {highest:g} at {sample_rate} Hz."
            )
        self.floor = floor
        self.preemphasis, self.dither = hparams.audio_preemphasis, hparams.audio_dither
        length = int(hparams.audio_frame_length * sample_rate / 1000)
        self.size = 1 << (length - 1).bit_length()
        lowest, bins = hparams.audio_lower_edge_hertz, hparams.audio_num_mel_bins
        matrix = mel_matrix(bins, self.size // 2 + 1, sample_rate, lowest, highest)
        angles = torch.arange(self.size).double() * (2 * math.pi / self.size)
        waves = torch.stack([angles.cos(), angles.sin()])  # float64: int8 exports leave it as it is
        self.register_buffer("waves", waves, persistent=False)
        self.register_buffer("window", torch.hann_window(length), persistent=False)
        self.register_buffer("mel", torch.from_numpy(matrix).float(), persistent=False)
        filters = _delta_filters() if hparams.audio_add_delta_deltas else torch.ones(1, 1)
        self.register_buffer("deltas", filters, persistent=False)

    @property
    def channels(self) -> int:
        """Number of channels: 3 with differences, else 1."""
        return len(self.deltas)

    def forward(self, samples: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Returns spectrograms and the number of valid frames.

        Args:
          samples: waveforms from -1 to 1, [B, blocks, samples of a block].
          valid: mask of the samples, the first ones of each row, as `samples`.

        Returns:
          [B, blocks, bins, channels] float32, 0 at padding, and [B] int64.
        """
        x, mask = samples.flatten(1), valid.flatten(1)
        if self.training and self.dither:
            x = x + self.dither * torch.randn_like(x)
        x = torch.where(mask, x, 0.0)
        if self.preemphasis:  # without the first sample
            x = F.pad(x[:, 1:] - self.preemphasis * x[:, :-1], (0, 1))
            x = torch.where(F.pad(mask[:, 1:], (0, 1)), x, 0.0)
        lengths = self.lengths(valid)
        frames = torch.arange(samples.size(1), device=x.device) < lengths[:, None]  # [B, F]
        mel = self.magnitudes(x.view(samples.shape)) @ self.mel
        levels = mel.clamp(min=self.floor).log() * frames[..., None]
        return self.with_deltas(levels) * frames[..., None, None], lengths

    def lengths(self, valid: Tensor) -> Tensor:
        """Returns the number of valid frames.  [B, blocks, samples] bool -> [B]."""
        counts = valid.flatten(1).sum(1) - int(self.preemphasis > 0)
        samples = valid.size(2)
        return torch.div(counts + samples - 1, samples, rounding_mode="floor").clamp(min=0)

    def magnitudes(self, blocks: Tensor) -> Tensor:
        """Returns the magnitudes of the spectrum of each frame.

        Args:
          blocks: samples, [B, frames, samples]; a frame continues in the next blocks.

        Returns:
          [B, frames, size / 2 + 1].
        """
        length, more = len(self.window), -(-len(self.window) // blocks.size(2)) - 1
        following = F.pad(blocks, (0, 0, 0, more))
        count = blocks.size(1)
        frames = torch.cat([following[:, i : i + count] for i in range(more + 1)], 2)
        frames = frames[..., :length] * self.window
        if not torch.compiler.is_exporting():
            return torch.abs(torch.fft.rfft(frames, self.size))
        # ONNX has no operator for it in all runtimes: products with cosines and sines.
        places = torch.outer(torch.arange(length), torch.arange(self.size // 2 + 1))
        parts = [frames @ wave[places.remainder(self.size)].float() for wave in self.waves]
        return torch.sqrt(parts[0].square() + parts[1].square())

    def with_deltas(self, levels: Tensor) -> Tensor:
        """Returns channels of values and their first and second differences.

        [B, F, bins] -> [B, F, bins, channels].
        """
        around, count = self.deltas.size(1) // 2, levels.size(1)
        padded = F.pad(levels, (0, 0, around, around))
        shifted = torch.stack([padded[:, i : i + count] for i in range(2 * around + 1)], -1)
        return shifted @ self.deltas.T


def _delta_filters() -> Tensor:
    """Returns the filters of values and of differences, of unit norm.  [3, 9]."""
    first = torch.tensor(_DELTA)
    second = F.conv1d(first[None, None], first.flip(0)[None, None], padding=4)[0, 0]  # convolved
    identity = F.pad(torch.ones(1), (4, 4))
    filters = torch.stack([identity, F.pad(first, (2, 2)), second])
    return filters.div(filters.norm(dim=1, keepdim=True))


def normalized(x: Tensor, lengths: Tensor, *, by_bin: bool = True) -> Tensor:
    """Returns spectrograms with mean 0 and variance 1 over the frames of each utterance.

    Args:
      x: [B, F, bins, channels], 0 at padding.
      lengths: number of valid frames, [B].
      by_bin: False for the mean and the variance of all bins of a channel together.

    Returns:
      [B, F, bins, channels], 0 at padding.
    """
    mask = (torch.arange(x.size(1), device=x.device) < lengths[:, None])[..., None, None]
    axes = (1,) if by_bin else (1, 2)
    count = lengths.clamp(min=1)[:, None, None, None] * (1 if by_bin else x.size(2))
    mean = x.sum(axes, keepdim=True) / count
    centred = (x - mean) * mask
    variance = centred.square().sum(axes, keepdim=True) / count
    # A sum with so small a number is removed by the exporter, and silence would be divided by 0.
    least = _LEAST_VARIANCE if by_bin else _LEAST_VARIANCE_OF_A_SOUND
    return centred * variance.clamp(min=least).rsqrt()


class SpecAugment(nn.Module):
    """Sets bands of a normalized spectrogram to 0, its mean, as a function of the example's seed.

    A mask over time takes at most a quarter of an utterance.

    Park et al. 2019, arXiv:1904.08779, without time warping.

    Args:
      hparams: audio_time_masks, audio_frequency_masks, and their widths.
    """

    def __init__(self, hparams: AudioHParams) -> None:
        super().__init__()
        self.over_time = hparams.audio_time_masks, hparams.audio_time_mask_frames
        self.over_frequency = hparams.audio_frequency_masks, hparams.audio_frequency_mask_bins

    def forward(self, x: Tensor, lengths: Tensor, seeds: Tensor) -> Tensor:
        """Returns masked spectrograms; a seed of 0 masks nothing.

        Args:
          x: [B, F, bins, channels].
          lengths: number of valid frames, [B].
          seeds: [B] int64.
        """
        bins = torch.full_like(lengths, x.size(2))
        count, width = self.over_time
        widest = torch.div(lengths, 4, rounding_mode="floor").clamp(max=width)
        kept = ~_bands(uniform(seeds, 0, 2 * count), lengths, x.size(1), widest)
        x = x * (kept | (seeds == 0)[:, None])[:, :, None, None]
        before, (count, width) = 2 * count, self.over_frequency
        widest = bins.clamp(max=width)
        kept = ~_bands(uniform(seeds, before, 2 * count), bins, x.size(2), widest)
        return x * (kept | (seeds == 0)[:, None])[:, None, :, None]


def _bands(draws: Tensor, sizes: Tensor, most: int, widest: Tensor) -> Tensor:
    """Returns where masks are.

    Args:
      draws: numbers in [0, 1) for the width and the start of each mask, [B, 2 masks].
      sizes: valid positions of each row, [B].
      most: number of positions.
      widest: greatest width of a mask of each row, [B].

    Returns:
      [B, most] bool.
    """
    wide, start = torch.unflatten(draws, 1, (-1, 2)).unbind(2)  # [B, masks]
    widths = (wide * (widest[:, None] + 1)).long()
    starts = (start * (sizes[:, None] - widths + 1)).long()[..., None]
    places = torch.arange(most, device=draws.device)
    return ((places >= starts) & (places < starts + widths[..., None])).any(1)


def uniform(seeds: Tensor, first: int, count: int) -> Tensor:
    """Returns numbers in [0, 1) of each seed, the same on every device.

    Args:
      seeds: [B] int64.
      first: index of the first number.
      count: number of numbers.

    Returns:
      [B, count] float32.
    """
    index = torch.arange(first, first + count, device=seeds.device)
    x = seeds[:, None] + (index + 1) * -7046029254386353131  # SplitMix64, 0x9E3779B97F4A7C15
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1)):
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return ((x >> 40) & 0xFFFFFF).float() / 2.0**24
