"""What a pass over the data is for, and which part of the data it is over."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """What a pass is for.  An argument of data and drivers, never an attribute of a model."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "predict"


class Split(enum.Enum):
    """A part of a data set.  The values stand in shard names, as tensor2tensor writes them."""

    TRAIN = "train"
    EVAL = "dev"
    TEST = "test"
