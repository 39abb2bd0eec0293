"""Rows of ids as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from t2t_torch.text.encoder import PAD


def rectangle(rows: Sequence[Sequence[int]]) -> Tensor:
    """Returns rows of ids of any lengths as [R, S] int64, PAD at their ends."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)
