"""Data of every kind, held in memory, and its statistics; also of texts that would do harm."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from t2t_torch.data.shards import Ragged, value_dtype
from t2t_torch.features import (
    ClassLabel,
    Features,
    Image,
    MultiLabel,
    Real,
    RowWeight,
    Span,
    Tags,
    Text,
    Words,
)
from t2t_torch.reports.column_statistics import Bucket, BucketTable
from t2t_torch.reports.statistics import Reader
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, TokenEncoder

EVIL = "<script>alert(1)</script>\"'>&amp;\x1b[31m\x00 $\\frac{"
TAG = "<img/src=x\tonerror=alert(2)>"


class MemoryShards:
    """A split, encoded by its features; in two pieces, as of two shards."""

    def __init__(self, features, rows):
        self.num_rows = len(rows)
        self._columns = {}
        for name, feature in features.all.items():
            values = [list(feature.encode(row[features.sources[name]])) for row in rows]
            self._columns[name] = Ragged.from_lists(values, value_dtype(feature.arrow_type))
        self.lengths = {name: one.lengths.astype(np.int32) for name, one in self._columns.items()}

    def column(self, name):
        one = self._columns[name]
        half = len(one) // 2
        pieces = [one.between(0, half), one.between(half, len(one))]
        return [(piece.values, piece.offsets.astype(np.int32)) for piece in pieces]


@pytest.fixture(scope="session")
def statistics_of():
    """Takes the statistics of rows by split."""

    def take(features, num_samples=2, view=None, **splits):
        shards = {split: MemoryShards(features, rows) for split, rows in splits.items()}
        return Reader(view or features, shards).take("a_problem", "a/folder", num_samples)

    return take


@pytest.fixture(scope="session")
def evil_statistics():
    labels = ClassLabelEncoder([EVIL, "good", "never"])
    words = Words(TokenEncoder(["<UNK>", TAG], replace_oov="<UNK>"))
    features = Features(
        {"inputs": Text(ByteEncoder()), "words": words, "picture": Image(3, 4)},
        {
            "targets": Text(ByteEncoder()),
            "class": ClassLabel(labels, allow_unknown=True),
            "many": MultiLabel(labels),
            "tags": Tags(ClassLabelEncoder([TAG, "O"]), "words"),
            "score": Real(),
            "part": Span("words"),
        },
        notes={"weight": RowWeight()},
    )
    row = {
        "inputs": EVIL * 3,
        "words": [TAG, "other"],
        "picture": np.arange(36, dtype=np.uint8).reshape(3, 4, 3),
        "targets": EVIL,
        "class": EVIL,
        "many": [EVIL],
        "tags": [TAG, "O"],
        "score": 2.5,
        "part": (0, 0),
        "weight": 1.0,
    }
    train = [{**row, "score": number // 2} for number in range(6)]
    dev = [row, {**row, "class": "elsewhere", "targets": ""}]
    shards = {"train": MemoryShards(features, train), "dev": MemoryShards(features, dev)}
    statistics = Reader(features, shards).take(f"problem_{EVIL}", f"folder/{EVIL}", 2)
    bucket = Bucket(8, None, batch_size=3, rows=5, batches=2, tokens=710, positions=710, boundary=9)
    buckets = BucketTable(
        f"a_set and {EVIL}", (bucket,), rows=5, left_out=1, batches=2, tokens=710, padding=0.0
    )
    return dataclasses.replace(statistics, buckets=buckets)
