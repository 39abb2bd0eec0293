"""Positions."""

import math

import torch

from t2t_torch.layers.transformer_layer import sinusoids


def test_the_signal_is_sines_then_cosines_of_geometric_wavelengths():
    signal = sinusoids(torch.arange(50), 8)
    for position in (0, 1, 7, 49):
        for channel in range(4):
            angle = position * 10000 ** (-channel / 3)
            assert math.isclose(signal[position, channel], math.sin(angle), abs_tol=1e-5)
            assert math.isclose(signal[position, channel + 4], math.cos(angle), abs_tol=1e-5)


def test_an_odd_width_ends_with_zero():
    assert sinusoids(torch.arange(3), 7).shape == (3, 7)
    assert not sinusoids(torch.arange(3), 7)[:, -1].any()
