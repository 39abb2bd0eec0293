"""Convolutions round each word agree with torch's, run over each word's own window."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from t2t_torch.layers.convolution import ContextConvolution, WindowConvolution

E, FILTERS = 4, 3


def slowly(layer, sentence):
    """One sentence without padding, word by word.  [S, E] -> [S, H]."""
    padded = F.pad(sentence, (0, 0, 20, 20))
    rows = []
    for place in range(len(sentence)):
        window = padded[20 + place - layer.before : 20 + place + layer.after + 1]
        found = []
        for columns, kernel, bias in zip(layer.columns, layer.kernels, layer.bias, strict=True):
            weight = columns.weight.view(kernel, FILTERS, E).permute(1, 2, 0)
            sums = F.conv1d(window.T[None], weight, bias, padding=kernel - 1)
            found.append(F.relu(sums).amax(-1)[0])
        rows.append(layer.output(torch.cat(found)))
    return torch.stack(rows)


@pytest.mark.parametrize(("before", "after"), [(5, 0), (0, 4), (2, 1), (5, -1), (0, 0)])
def test_it_is_a_convolution_over_each_words_window(before, after):
    torch.manual_seed(0)
    layer = WindowConvolution(E, before, after, (1, 3, 4), FILTERS, 5)
    layer.bias.data.uniform_(-1, 1)
    lengths = (7, 3, 1)
    x = torch.randn(3, 7, E)
    x[torch.arange(7) >= torch.tensor(lengths)[:, None]] = 0.0
    found = layer(x)
    for row, length in enumerate(lengths):
        expected = slowly(layer, x[row, :length])
        torch.testing.assert_close(found[row, :length], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("side", "reach"), [("past", (-3, 0)), ("future", (0, 3)), ("around", (-1, 1))]
)
def test_each_side_sees_its_own_words(side, reach):
    torch.manual_seed(0)
    hparams = SimpleNamespace(
        context_size=4, around_size=1, kernel_sizes=(2, 3), num_filters=50, hidden_size=5
    )
    layer = ContextConvolution(E, hparams).sides[side]
    x = torch.randn(1, 11, E, requires_grad=True)
    layer(x)[0, 5].square().sum().backward()
    seen = x.grad[0].abs().sum(-1).nonzero().squeeze(1) - 5
    assert (int(seen.min()), int(seen.max())) == reach
