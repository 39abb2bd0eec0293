"""Log-mel spectrograms: tensor2tensor's golden vectors, padding, SpecAugment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import Audio
from t2t_torch.features.audio import NO_SAMPLE, mel_matrix
from t2t_torch.hparam import HParams
from t2t_torch.layers.audio import LogMel, SpecAugment, normalized, uniform
from t2t_torch.modalities.speech import SpeechBottom, SpeechModality, shortened

GOLDEN = Path(__file__).parents[1] / "golden" / "speech"
CONFIGS = json.loads((GOLDEN / "audio.json").read_text())


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(GOLDEN / "audio.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file}


def hparams_of(args: dict[str, Any]) -> HParams:
    return HParams().replace(
        audio_dither=0.0,
        audio_num_mel_bins=args.get("num_mel_bins", 80),
        audio_preemphasis=args.get("preemphasis", 0.97),
        audio_frame_length=float(args.get("frame_length", 25)),
        audio_lower_edge_hertz=float(args.get("lower_edge_hertz", 80)),
        audio_upper_edge_hertz=float(args.get("upper_edge_hertz", 7600)),
    )


@pytest.mark.parametrize("config", CONFIGS["filterbanks"], ids=lambda one: str(one["name"]))
def test_log_mel_and_deltas_are_those_of_tensor2tensor(
    config: dict[str, Any], golden: dict[str, Any]
) -> None:
    args, name = config["args"], config["name"]
    rate = args.get("sample_rate", 16000)
    hop = rate // 100
    module = LogMel(hparams_of(args), rate, args.get("log_noise_floor", 1e-3))
    waveforms = golden["waveforms"]  # zeros after the end, which are samples to tensor2tensor
    total = waveforms.size(1)
    x = torch.nn.functional.pad(waveforms, (0, -total % hop)).view(4, -1, hop)
    places = torch.arange(x.size(1) * hop).view(1, -1, hop)
    levels, _ = module(x, (places < total).expand_as(x))
    for row, length in enumerate(CONFIGS["lengths"]):
        valid = -(-(length - 1) // hop)
        ours, theirs = levels[row, :valid, :, 0], golden[f"mel/{name}"][row, :valid, :, 0]
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0)
        if f"deltas/{name}" in golden and valid > 8:  # those of the last frames see the next
            theirs = golden[f"deltas/{name}"][row, : valid - 4]
            torch.testing.assert_close(levels[row, : valid - 4], theirs, atol=2e-3, rtol=0)


def test_normalized_features_are_those_of_preprocess_example(golden: dict[str, Any]) -> None:
    module = LogMel(hparams_of(CONFIGS["filterbanks"][0]["args"]), 16000)
    x = golden["waveforms"][:1, :8000].view(1, -1, 160)
    levels = normalized(*module(x, torch.ones_like(x, dtype=torch.bool)))
    torch.testing.assert_close(levels[0], golden["preprocess_example_row0"], atol=2e-3, rtol=0)


SMALL = HParams().replace(
    hidden_size=8, audio_num_mel_bins=20, audio_num_filters=4, num_zeropad_frames=3
)


def sounds(*lengths: int) -> torch.Tensor:
    feature = Audio()
    rng = np.random.default_rng(1)
    rows = [feature.encode(rng.normal(0, 0.1, n)).reshape(-1, 160) for n in lengths]
    batch = np.full((len(rows), max(map(len, rows)), 160), NO_SAMPLE, np.int16)
    for number, row in enumerate(rows):
        batch[number, : len(row)] = row
    return torch.from_numpy(batch)


def test_no_result_depends_on_padding_or_on_batch_mates() -> None:
    modality = SpeechModality.build(Audio(), SMALL, is_target=False).eval()
    batch = sounds(3000, 161, 2, 8000)
    together, mask = modality.embed("inputs", {"inputs": batch}), modality.mask(batch)
    for row, length in enumerate((3000, 161, 2, 8000)):
        alone = sounds(3000, 161, 2, 8000)[row : row + 1, : -(-length // 160)]
        embedded, own = modality.embed("inputs", {"inputs": alone}), modality.mask(alone)
        count = int(own.sum())
        assert int(mask[row].sum()) == count == shortened(-(-(length - 1) // 160) + 3)
        torch.testing.assert_close(together[row, :count], embedded[0, :count], atol=1e-5, rtol=0)
        assert not together[row, count:].any()


def test_products_in_place_of_the_fourier_transform_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = LogMel(hparams_of({}), 16000)
    blocks = torch.randn(2, 7, 160)
    expected = module.magnitudes(blocks)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    torch.testing.assert_close(module.magnitudes(blocks), expected, atol=1e-4, rtol=1e-5)


def test_masks_are_a_function_of_the_seed_alone() -> None:
    hparams = SMALL.replace(
        audio_time_masks=2, audio_frequency_masks=1, audio_frequency_mask_bins=9
    )
    module, x = SpecAugment(hparams), torch.ones(3, 50, 20, 1)
    lengths, seeds = torch.tensor([50, 50, 30]), torch.tensor([0, 5, 7])
    masked = module(x, lengths, seeds)
    assert masked[0].all()
    alone = module(x[1:2, :, :], lengths[1:2], seeds[1:2])
    assert torch.equal(masked[1:2], alone)
    longer = module(torch.ones(1, 90, 20, 1), lengths[2:], seeds[2:])
    assert torch.equal(masked[2:, :30], longer[:, :30])
    assert not masked[1].all()


def test_bottoms_augment_in_training_only() -> None:
    bottom = SpeechBottom(Audio(), SMALL.replace(audio_time_masks=2, audio_dither=0.0))
    batch, seeds = sounds(6000), torch.tensor([3])
    assert not torch.equal(bottom(batch, seeds), bottom(batch))
    bottom.eval()
    assert torch.equal(bottom(batch, seeds), bottom(batch))


def test_numbers_of_seeds_are_uniform() -> None:
    draws = uniform(torch.arange(1, 2001), 0, 10)
    assert 0.0 <= float(draws.min()) < 0.001 < 0.999 < float(draws.max()) < 1.0
    assert abs(float(draws.mean()) - 0.5) < 0.01
    assert abs(float((draws[:, 0] * draws[:, 1]).mean()) - 0.25) < 0.01


def test_the_upper_edge_is_at_most_half_of_the_rate() -> None:
    limited = LogMel(HParams().replace(audio_upper_edge_hertz=4000.0), 8000)
    assert torch.equal(LogMel(HParams(), 8000).mel, limited.mel)
    with pytest.raises(HParamsError, match="4000 at 8000 Hz"):
        LogMel(HParams().replace(audio_lower_edge_hertz=4500.0), 8000)


def test_levels_of_tones_are_kept_where_filters_are_normalized_together() -> None:
    x, lengths = torch.zeros(1, 9, 20, 1), torch.tensor([6])
    x[:, :6, 3] = 1.0  # a steady tone
    assert not normalized(x, lengths).any()
    together = normalized(x, lengths, by_bin=False)
    assert (together[0, :6].flatten(1).argmax(1) == 3).all() and not together[0, 6:].any()
    assert float(together[0, :6].square().mean()) == pytest.approx(1.0)


def test_the_mel_matrix_has_a_filter_for_each_bin() -> None:
    assert (mel_matrix(40, 257, 16000, 20.0, 8000.0).sum(0) > 0).all()


def test_masks_of_frequencies_have_the_width_of_the_hyperparameter() -> None:
    hparams = registry.hparams("transformer_ctc_base").replace(audio_time_masks=0)
    x, lengths = torch.ones(500, 4, 80, 1), torch.full((500,), 4)
    masked = SpecAugment(hparams)(x, lengths, torch.arange(1, 501))[:, 0, :, 0] == 0
    single = hparams.replace(audio_frequency_masks=1)
    widths = (SpecAugment(single)(x, lengths, torch.arange(1, 501))[:, 0, :, 0] == 0).sum(1)
    assert widths.max() == 27 and widths.min() == 0
    assert masked.sum(1).max() > 27
