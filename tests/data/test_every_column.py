"""Columns of every type and shape from samples to shards and back."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.data import encoding, generate, shards
from t2t_torch.data.generate import generate_data, run_task
from t2t_torch.data.shards import Ragged, Shards
from t2t_torch.data.shuffle import Shuffle
from t2t_torch.features import (
    ClassLabel,
    Features,
    Image,
    MultiLabel,
    Real,
    RowWeight,
    Tags,
    Words,
    WordStarts,
)
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder

TAGS = ClassLabelEncoder(["O", "B-x", "I-x"])


class Everything(Problem):
    """Words with tags, a picture, numbers, labels and a weight; some samples have no words."""

    name = "everything"
    shards: ClassVar[dict[Split, int]] = {Split.TRAIN: 4}
    count = 50

    def stored_features(self, directory) -> Features:
        words = Words(ByteEncoder())
        return Features(
            {"inputs": words, "picture": Image(3, 2, 3), "dense": Real(2)},
            {"tags": MultiLabel(TAGS), "label": ClassLabel(TAGS), "slots": Tags(TAGS, of="inputs")},
            notes={"starts": WordStarts("inputs", words), "weight": RowWeight()},
        )

    def generate_samples(self, tmp_dir, split) -> Iterator[dict[str, Any]]:
        for number in range(self.count):
            words = [f"{number}w{place}" for place in range(number % 4)]
            yield {
                "inputs": words,
                "picture": np.full((3, 2, 3), number % 256, np.uint8),
                "dense": [number, -0.5],
                "tags": ["B-x"] if number % 2 else [],
                "label": ("O", "B-x", "I-x")[number % 3],
                "slots": ["O"] * max(1, len(words)),
                "weight": number / 4,
            }


def rows_of(folder) -> list[dict[str, np.ndarray]]:
    shards = Shards.open(folder, "everything", Split.TRAIN)
    columns = {
        name: [
            values[a:b]
            for values, offsets in shards.column(name)
            for a, b in itertools.pairwise(offsets)
        ]
        for name in shards.features
    }
    for name, lengths in shards.lengths.items():
        assert lengths.tolist() == [len(row) for row in columns[name]]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("memory_bytes", [500, 1 << 26])
@pytest.mark.parametrize("num_tasks", [1, 3])
def test_every_column_is_stored_in_its_type_and_rows_stay_together(
    tmp_path, monkeypatch, memory_bytes, num_tasks
):
    monkeypatch.setattr(encoding, "CHUNK_ROWS", 6)
    for module in (generate, generate):
        small = functools.partial(Shuffle, memory_bytes=memory_bytes)
        monkeypatch.setattr(module, "Shuffle", small)
    problem = Everything()
    for number in range(num_tasks):
        if num_tasks == 1:
            generate_data(problem, tmp_path / "data", tmp_path, progress=False)
        else:
            run_task(
                problem,
                tmp_path / "data",
                tmp_path,
                task_id=number,
                num_tasks=num_tasks,
                progress=False,
            )
    rows = rows_of(tmp_path / "data")
    features = problem.stored_features(tmp_path).all
    dtypes = {name: row.dtype for name, row in rows[0].items()}
    assert dtypes == {name: shards.value_dtype(f.arrow_type) for name, f in features.items()}
    assert {str(dtype) for dtype in dtypes.values()} == {"int32", "uint8", "float32"}
    found = sorted(rows, key=lambda row: float(row["weight"][0]))
    for sample, row in zip(problem.generate_samples(tmp_path, Split.TRAIN), found, strict=True):
        for name, feature in features.items():
            value = sample[feature.source or name]
            expected = np.asarray(feature.encode(value), shards.value_dtype(feature.arrow_type))
            np.testing.assert_array_equal(row[name], expected)


def test_pictures_make_chunks_of_bounded_size(monkeypatch):
    monkeypatch.setattr(encoding, "_CHUNK_BYTES", 100)
    samples = [{"picture": np.zeros((8, 5), np.uint8)} for _ in range(7)]
    cut = list(encoding.Chunks(samples, ["picture"], "x"))
    assert [chunk.num_rows for chunk in cut] == [3, 3, 1]


LISTS = st.lists(st.lists(st.integers(0, 255), max_size=9), max_size=30)


@settings(max_examples=100, deadline=None)
@given(
    lists=LISTS,
    draw=st.randoms(use_true_random=False),
    block=st.integers(1, 20),
    dtype=st.sampled_from(["int32", "float32", "uint8"]),
)
def test_rows_are_taken_in_any_order_and_number(lists, draw, block, dtype):
    column = Ragged.from_lists(lists, dtype)
    order = np.array([draw.randrange(len(lists)) for _ in range(20 if lists else 0)], np.int64)
    with mock.patch.object(shards, "_BLOCK_VALUES", block):
        taken = column.take(order)
    assert taken.values.dtype == dtype
    found = [taken.values[a:b].tolist() for a, b in itertools.pairwise(taken.offsets)]
    assert found == [lists[i] for i in order]


@settings(max_examples=60, deadline=None)
@given(
    lists=LISTS,
    cuts=st.lists(st.integers(0, 30), max_size=6),
    memory_bytes=st.sampled_from([1, 100, 1 << 26]),
    dtype=st.sampled_from(["int32", "float32", "uint8"]),
)
def test_a_shuffle_gives_back_each_row_whatever_is_spilled(
    tmp_path_factory, lists, cuts, memory_bytes, dtype
):
    rows = {"x": Ragged.from_lists(lists, dtype)}
    edges = [0, *sorted(min(cut, len(lists)) for cut in cuts), len(lists)]

    def shuffled(memory, pieces):
        shuffle = Shuffle("7", tmp_path_factory.mktemp("spill"), memory_bytes=memory)
        for a, b in pieces:
            shuffle.add(shards.between(rows, a, b), np.arange(a, b))
        return [
            piece["x"].values[a:b].tolist()
            for piece in shuffle.drain()
            for a, b in itertools.pairwise(piece["x"].offsets)
        ]

    found = shuffled(memory_bytes, itertools.pairwise(edges))
    assert sorted(found) == sorted(lists)
    assert found == shuffled(1 << 26, [(0, len(lists))])
