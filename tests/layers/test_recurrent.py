"""LSTMs: padding and batch mates change nothing, and the memory is that of each row's own end."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.layers import pooling
from t2t_torch.layers.dropout import LockedDropout
from t2t_torch.layers.recurrent import LSTM

LENGTHS = (7, 3, 1)


def padded():
    x = torch.randn(len(LENGTHS), max(LENGTHS), 5)
    mask = torch.arange(x.size(1)) < torch.tensor(LENGTHS)[:, None]
    return x, mask


@pytest.mark.parametrize("bidirectional", [False, True])
def test_it_is_torchs_over_each_row_alone(bidirectional):
    torch.manual_seed(0)
    ours = LSTM(5, 4, 2, bidirectional=bidirectional).eval()
    theirs = torch.nn.LSTM(5, 4, 2, batch_first=True, bidirectional=bidirectional)
    state = {}
    for layer, directions in enumerate(ours.layers):
        for number, lstm in enumerate(directions):
            suffix = "_reverse" if number else ""
            for name, value in lstm.state_dict().items():
                state[name.replace("_l0", f"_l{layer}") + suffix] = value
    theirs.load_state_dict(state)
    x, mask = padded()
    found, memory = ours.run(x, mask)
    torch.testing.assert_close(ours(x, mask), found)
    assert not found[~mask].any()
    for row, length in enumerate(LENGTHS):
        expected, (hidden, cell) = theirs(x[row : row + 1, :length])
        torch.testing.assert_close(found[row, :length], expected[0])
        last = hidden.view(2, -1, 4).flatten(1)
        torch.testing.assert_close(memory.hidden[:, row], last)
        torch.testing.assert_close(memory.cell[:, row], cell.view(2, -1, 4).flatten(1))


def test_it_goes_on_from_a_memory():
    torch.manual_seed(0)
    lstm = LSTM(5, 4, 2).eval()
    x = torch.randn(2, 6, 5)
    whole, end = lstm.run(x)
    first, memory = lstm.run(x[:, :1])
    rest, again = lstm.run(x[:, 1:], memory=memory)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole)
    torch.testing.assert_close(again, end)


def test_pooling_sees_what_is_no_padding():
    hidden, mask = torch.randn(2, 4, 3), torch.tensor([[True, True, False, False], [False] * 4])
    other = torch.where(mask[..., None], hidden, 1e4)
    for pool in (pooling.mean, pooling.maximum):
        found = pool(hidden, mask)
        assert torch.equal(found, pool(other, mask))
        assert not found[1].any()
    torch.testing.assert_close(pooling.mean(hidden, mask)[0], hidden[0, :2].mean(0))
    torch.testing.assert_close(pooling.maximum(hidden, mask)[0], hidden[0, :2].amax(0))
    torch.testing.assert_close(pooling.last(hidden, mask)[0], hidden[0, 1])


def test_locked_dropout_takes_the_same_units_of_all_positions():
    torch.manual_seed(0)
    dropped = LockedDropout(0.5).train()(torch.ones(3, 6, 40))
    assert torch.equal(dropped, dropped[:, :1].expand(-1, 6, -1))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(dropped[0], dropped[1])
