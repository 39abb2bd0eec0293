"""Filters over characters are those of a loop, and padding changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.layers.convolution import CharacterCNN, Highway

ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "tanh": torch.tanh}
# Two words of different lengths, an empty place, and a word as long as there is room.
IDS = torch.tensor([[[3, 4, 5, 0, 0], [6, 0, 0, 0, 0]], [[0, 0, 0, 0, 0], [2, 3, 4, 5, 6]]])


def cnn(size=7, **fields):
    torch.manual_seed(0)
    return CharacterCNN(11, size, HParams().replace(character_embedding_size=4, **fields))


def by_loop(layer, word, kernels, activation):
    """What Kim et al. 2016, section 2.2, makes of one word, [H]."""
    letters = [layer.table.weight[i] for i in word if i]
    zero = torch.zeros(4)
    found = []
    for kernel in kernels:
        filters = layer.filters[f"width{kernel}"]
        before, after = (kernel - 1) // 2, kernel // 2
        row = [zero] * before + letters + [zero] * after
        seen = [torch.cat(row[i : i + kernel]) for i in range(len(letters))]
        for j in range(filters.out_features):
            weight = filters.weight[j].view(4, kernel).T.reshape(-1)  # by position, then by number
            found.append(max(activation(weight @ window + filters.bias[j]) for window in seen))
    y = torch.stack(found)
    for highway in layer.highway:
        gate = torch.sigmoid(highway.gate.weight @ y + highway.gate.bias - 2)
        inner = F.relu(highway.transform.weight @ y + highway.transform.bias)
        y = gate * inner + (1 - gate) * y
    return layer.projection(y)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernels", [(3,), (1, 2, 3, 6)])
@pytest.mark.parametrize("layers", [0, 2])
def test_a_words_vector_is_that_of_a_loop(kernels, layers, activation):
    filters = (2, 3, 1, 4)[: len(kernels)]
    layer = cnn(
        character_kernels=kernels,
        character_filters=filters,
        character_highway_layers=layers,
        character_activation=activation,
    )
    found = layer(IDS)
    assert found.shape == (2, 2, 7)
    for row, column in ((0, 0), (0, 1), (1, 1)):
        word = IDS[row, column].tolist()
        expected = by_loop(layer, word, kernels, ACTIVATIONS[activation])
        torch.testing.assert_close(found[row, column], expected)
    assert not found[1, 0].any()  # also after highway and projection, which have biases


def test_more_room_for_characters_and_more_words_change_nothing():
    layer = cnn(character_kernels=(2, 5), character_highway_layers=1)
    padded = F.pad(IDS, (0, 3, 0, 2))
    torch.testing.assert_close(layer(padded)[:, :2], layer(IDS))
    torch.testing.assert_close(layer(IDS[:1]), layer(IDS)[:1])


def test_filters_share_the_width_of_the_result_evenly():
    layer = cnn(10, character_kernels=(2, 3, 4))
    assert [filters.out_features for filters in layer.filters.values()] == [4, 3, 3]
    assert isinstance(layer.projection, torch.nn.Identity)


def test_a_highway_nearly_carries_its_input_at_first():
    torch.manual_seed(0)
    layer, x = Highway(16), torch.randn(20, 16)
    kept = (1 - torch.sigmoid(layer.gate(x) - 2)) * x
    assert F.cosine_similarity(layer(x), x).mean() > 0.95
    assert (layer(x) - kept).norm() < x.norm() / 5


def test_gradients_are_finite_where_a_word_has_no_characters():
    layer = cnn(character_highway_layers=1, character_activation="tanh")
    layer(IDS).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"character_kernels": ()}, "at least 1, each kernel once"),
        ({"character_kernels": (3, 3)}, "at least 1, each kernel once"),
        ({"character_kernels": (0,)}, "at least 1, each kernel once"),
        ({"character_filters": (4, 4)}, "has 2 numbers and character_kernels"),
        ({"character_kernels": tuple(range(1, 9))}, "8 kinds of filters for a vector of 7"),
    ],
)
def test_hparams_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(HParamsError, match=message):
        cnn(**fields)
