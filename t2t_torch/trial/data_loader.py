"""The loader that trials import, and the name of what it yields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

TorchData: TypeAlias = dict[str, Tensor] | Sequence[Tensor] | Tensor
"""What trials annotate inputs, labels and predictions with."""


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's `DataLoader`, by the name under which trials know it."""
