"""The greatest value of each filter is that of a loop over the windows that hold a word."""

from __future__ import annotations

import torch

from t2t_torch.layers.convolution import TextConvolution

LENGTHS = (6, 1, 4, 0)
KERNELS = (2, 3)


def test_it_is_the_maximum_over_windows_with_words_of_a_slow_loop():
    torch.manual_seed(0)
    convolution = TextConvolution(5, KERNELS, 7).requires_grad_(False)
    for one in convolution.convolutions:
        one.bias.data.fill_(0.3)  # a window of padding alone would have 0.3 everywhere
    x = torch.randn(len(LENGTHS), 6, 5)
    mask = torch.arange(6) < torch.tensor(LENGTHS)[:, None]
    found = convolution(x, mask)
    assert found.shape == (len(LENGTHS), convolution.size)
    for b, length in enumerate(LENGTHS):
        slow = []
        for one, kernel in zip(convolution.convolutions, KERNELS, strict=True):
            zeros = torch.zeros(kernel - 1, 5)
            text = torch.cat([zeros, x[b, :length], zeros])
            for weight, bias in zip(one.weight, one.bias, strict=True):
                windows = [text[i : i + kernel] for i in range(length + kernel - 1)]
                values = [float((weight.T * window).sum() + bias) for window in windows]
                slow.append(max([0.0, *values]) if length else 0.0)
        torch.testing.assert_close(found[b], torch.tensor(slow))
