"""The likeliest ids, of equals the lowest."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.decode.beam import likeliest_of


@pytest.mark.parametrize("vocab_size", [5, 19, 1000])
@pytest.mark.parametrize("levels", [1, 2, 5, 30])
def test_of_equals_the_lowest_ids_are_taken(vocab_size: int, levels: int) -> None:
    draw = torch.Generator().manual_seed(levels)
    log_probs = torch.randint(0, levels, (50, vocab_size), generator=draw).float()
    log_probs[:7, ::3] = -torch.inf
    for count in (1, 2, 4):
        expected = []
        for row in log_probs.tolist():
            best = sorted((-value, number) for number, value in enumerate(row))[:count]
            expected.append(sorted(number for _, number in best))
        assert likeliest_of(log_probs, count).tolist() == expected
