"""A scan is a loop, and in what is exported one operation of any length."""

import pytest
import torch
from torch import nn

from t2t_torch.layers.crf import scan


def sums(carried, entries):
    """Adds an entry to what is carried, and keeps the sum so far."""
    (entry,) = entries
    after = carried + entry
    return after, after


class Sums(nn.Module):
    def forward(self, start, rows):
        return scan(sums, start, (rows,))


def test_a_scan_carries_on_and_keeps():
    rows = torch.arange(6.0).view(3, 2)
    last, kept = scan(sums, torch.tensor([10.0, 20.0]), (rows,))
    assert last.tolist() == [16.0, 29.0]
    assert kept.tolist() == [[10.0, 21.0], [12.0, 24.0], [16.0, 29.0]]


def test_gradients_go_through_all_steps():
    start = torch.zeros(2, requires_grad=True)
    last, kept = scan(sums, start, (torch.ones(3, 2),))
    (last.sum() + kept.sum()).backward()
    assert start.grad is not None and start.grad.tolist() == [4.0, 4.0]


@pytest.mark.sample(1)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_what_is_exported_scans_any_length(length):
    axes = ({}, {0: torch.export.Dim.AUTO})
    given = (torch.zeros(2), torch.ones(3, 2))
    exported = torch.export.export(Sums(), given, dynamic_shapes=axes, strict=False).module()
    assert any("scan" in str(node.target) for node in exported.graph.nodes)
    start, rows = torch.randn(2), torch.randn(length, 2)
    torch.testing.assert_close(exported(start, rows), Sums()(start, rows))
