"""Splits of a data set."""

from __future__ import annotations

import enum


class Split(enum.Enum):
    """A part of a data set.  The values are used in shard names, as in tensor2tensor."""

    TRAIN = "train"
    EVAL = "dev"
    TEST = "test"
