"""Inputs, a separator and targets in one row."""

import torch

from t2t_torch.layers.pooling import at_targets, full_over_inputs, prepend

INPUTS = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0]])[..., None]
TARGETS = torch.tensor([[7.0, 8.0], [9.0, 0.0], [5.0, 6.0]])[..., None]
LENGTHS = torch.tensor([3, 1, 0])


def test_padding_comes_last():
    rows = prepend(INPUTS, TARGETS, LENGTHS)[..., 0].tolist()
    assert rows == [[1, 2, 3, 0, 7, 8], [4, 0, 9, 0, 0, 0], [0, 5, 6, 0, 0, 0]]


def test_a_row_is_what_it_is_alone():
    together = prepend(INPUTS, TARGETS, LENGTHS)
    alone = prepend(INPUTS[1:2, :1], TARGETS[1:2, :1], LENGTHS[1:2])
    assert torch.equal(together[1:2, :3], alone)


def test_the_states_of_the_targets_are_found_behind_the_separator():
    rows = prepend(INPUTS, TARGETS, LENGTHS)
    assert torch.equal(at_targets(rows, LENGTHS, 2), TARGETS)


def test_inputs_see_each_other_and_no_target():
    """Read one position later: the start, then the inputs, the separator, the targets."""
    mask = full_over_inputs(torch.tensor([2, 0]), 5)[:, 0].int().tolist()
    assert mask[0] == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    assert mask[1] == [[int(k <= q) for k in range(5)] for q in range(5)]
