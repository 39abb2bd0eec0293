"""Which examples share a row, against tensor2tensor's own packing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.pipeline.packing import Layout, pack
from t2t_torch.pipeline.reader import Pieces

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "packing.json").read_text())


def packed_rows(examples, keys, capacity, *, spacing=0, queue_size=10, chop=False):
    """The packed features of every bin, from the bins alone."""
    texts = {key: [np.asarray(example[key]) for example in examples] for key in keys}
    alone = None
    if chop:
        (key,) = keys
        pieces = Pieces.of(np.asarray([len(text) for text in texts[key]], np.int64), capacity)
        texts[key] = [
            texts[key][row][start : start + length]
            for row, start, length in zip(pieces.rows, pieces.starts, pieces.lengths, strict=True)
        ]
        alone = pieces.whole
    lengths = {key: np.asarray([len(text) for text in texts[key]], np.int32) for key in keys}
    bins = pack(lengths, capacity, spacing=spacing, queue_size=queue_size, alone=alone)
    rows = []
    for number in range(len(bins)):
        members = bins.members[bins.offsets[number] : bins.offsets[number + 1]]
        row = {}
        for key in keys:
            layout = Layout.of(lengths[key][members], np.asarray([len(members)]), spacing)
            ids = np.concatenate([texts[key][i] for i in members])
            row[key] = layout.rows(ids, 0, 1).values.tolist()
            row[f"{key}_segmentation"] = layout.segments.tolist()
            row[f"{key}_position"] = layout.positions.tolist()
        rows.append(row)
    return rows


@pytest.mark.sample(40)
@pytest.mark.parametrize("case", GOLDEN["pack_examples"])
def test_examples_are_packed_as_by_tensor2tensor(case):
    keys = ["inputs", "targets"] if case["has_inputs"] else ["targets"]
    found = packed_rows(
        GOLDEN["examples"][case["list"]],
        keys,
        case["packed_length"],
        spacing=case["spacing"],
        queue_size=case["queue_size"],
        chop=case["chop_long_sequences"],
    )
    # A language model's rows have "inputs": [0] there, since its files needed the field.
    expected = [
        {name: ids for name, ids in row.items() if name.split("_")[0] in keys}
        for row in case["result"]
    ]
    assert found == expected


@pytest.mark.parametrize("case", GOLDEN["sequence_dataset_packer"])
def test_examples_are_packed_as_by_the_packer_of_tf_data(case):
    """It leaves out what is too long, and fills rows up."""
    keys, capacity = case["keys"], case["packed_length"]
    examples = GOLDEN["examples"][case["list"]]
    fitting = [e for e in examples if all(len(e[key]) <= capacity for key in keys)]
    found = packed_rows(fitting, keys, capacity, queue_size=case["queue_size"])
    expected = [
        {
            name: ids[: np.count_nonzero(row[f"{name.split('_')[0]}_segmentation"])]
            for name, ids in row.items()
        }
        for row in case["result"]
    ]
    assert found == expected
    assert all(len(ids) == capacity for row in case["result"] for ids in row.values())


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=80),
    st.integers(20, 40),
    st.integers(1, 12),
    st.integers(0, 2),
)
def test_every_example_is_in_one_bin_and_none_overflows(lengths, capacity, queue_size, spacing):
    columns = dict(zip("ab", np.asarray(lengths).T, strict=True))
    bins = pack(columns, capacity, queue_size=queue_size, spacing=spacing)
    assert sorted(bins.members.tolist()) == list(range(len(lengths)))
    sizes = np.diff(bins.offsets)
    for length in columns.values():
        totals = bins.lengths(length)
        assert totals.sum() == length.sum() + spacing * (sizes - 1).sum()
        assert not ((totals > capacity) & (sizes > 1)).any()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 20))
def test_pieces_hold_every_position_of_every_row_once(lengths, size):
    pieces = Pieces.of(np.asarray(lengths), size)
    found = [
        (row, start + i)
        for row, start, length in zip(pieces.rows, pieces.starts, pieces.lengths, strict=True)
        for i in range(length)
    ]
    assert found == [(row, i) for row, length in enumerate(lengths) for i in range(length)]
    assert set(pieces.rows.tolist()) == set(range(len(lengths)))
    assert pieces.lengths.max() <= size


def test_five_features_are_packed_as_one_is():
    """So many lengths do not fit into one machine number."""
    lengths = np.random.default_rng(0).integers(1, 4000, 300)
    one = pack({"a": lengths}, 4096)
    five = pack(dict.fromkeys("abcde", lengths), 4096)
    assert np.array_equal(one.members, five.members)
    assert np.array_equal(one.offsets, five.offsets)
