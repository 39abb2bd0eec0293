"""Which part of the data a pass is over."""

from __future__ import annotations

import enum


class Split(enum.Enum):
    """A part of a data set.  The values stand in shard names, as tensor2tensor writes them."""

    TRAIN = "train"
    EVAL = "dev"
    TEST = "test"
