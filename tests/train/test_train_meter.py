"""What is counted of a batch."""

from __future__ import annotations

import torch

from t2t_torch.features import IGNORED
from t2t_torch.model import Loss
from t2t_torch.train.task import BatchAdapter

LOSS = Loss(torch.tensor(3.0), torch.tensor(2.0))


def test_texts_are_counted_by_their_padding_and_nothing_else_is():
    batch = {
        "inputs": torch.tensor([[5, 6, 0], [7, 0, 0]]),
        "tags": torch.tensor([[0, 1], [IGNORED, 2]]),
        "dense": torch.zeros(2, 9),
        "inputs_segmentation": torch.ones(2, 3),
    }
    paddings = {"inputs": 0, "tags": IGNORED}
    assert BatchAdapter(paddings).totals(LOSS, batch).tolist() == [3.0, 2.0, 6.0, 10.0]


def test_where_there_is_no_text_rows_are_counted():
    batch = {"picture": torch.zeros(4, 2, 2, 1), "label": torch.zeros(4)}
    assert BatchAdapter().totals(LOSS, batch).tolist() == [3.0, 2.0, 4.0, 4.0]
