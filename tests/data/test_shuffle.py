from __future__ import annotations

import itertools

import numpy as np
import pytest

from t2t_torch.data import shards
from t2t_torch.data.shards import Ragged, Rows
from t2t_torch.data.shuffle import Shuffle

LISTS = [[i] * (i % 7) + [1000 + i] for i in range(2000)]


def rows_of(lists: list[list[int]]) -> Rows:
    column = Ragged.from_lists(lists, np.int32)
    return {"inputs": column, "targets": shards.take({"x": column}, np.arange(len(column)))["x"]}


def lists_of(column: Ragged) -> list[list[int]]:
    return [column.values[a:b].tolist() for a, b in itertools.pairwise(column.offsets)]


def shuffled(directory, *, seed="1", piece=300, memory_bytes=1 << 28) -> list[list[int]]:
    shuffle = Shuffle(seed, directory, memory_bytes=memory_bytes)
    for start in range(0, len(LISTS), piece):
        rows = LISTS[start : start + piece]
        shuffle.add(rows_of(rows), np.arange(start, start + len(rows)))
    assert shuffle.num_rows == len(LISTS)
    pieces = list(shuffle.drain())
    inputs = [row for rows in pieces for row in lists_of(rows["inputs"])]
    targets = [row for rows in pieces for row in lists_of(rows["targets"])]
    assert inputs == targets
    return inputs


def test_every_row_comes_back_once_and_in_another_order(tmp_path):
    result = shuffled(tmp_path / "spill")
    assert sorted(result) == sorted(LISTS)
    assert result != LISTS
    assert not (tmp_path / "spill").exists()


@pytest.mark.slow
def test_the_memory_allowed_and_the_pieces_do_not_change_the_order(tmp_path):
    expected = shuffled(tmp_path / "a")
    for number, (piece, memory) in enumerate([(300, 1000), (1, 20_000), (2000, 1), (77, 50_000)]):
        spill = tmp_path / str(number)
        assert shuffled(spill, piece=piece, memory_bytes=memory) == expected
        assert spill.exists() and not list(spill.iterdir()), "spilled, and removed what it spilled"


def test_another_seed_gives_another_order(tmp_path):
    assert shuffled(tmp_path, seed="1") != shuffled(tmp_path, seed="2")


def test_first_rows_land_anywhere(tmp_path):
    result = shuffled(tmp_path)
    places = [result.index(LISTS[i]) for i in range(200)]
    # Uniform places have mean 1000 and a standard error of 2000 / sqrt(12 * 200) = 41.
    assert abs(np.mean(places) - 1000) < 5 * 41


def test_a_shuffle_of_nothing_gives_nothing(tmp_path):
    assert list(Shuffle("1", tmp_path).drain()) == []


def test_keys_are_those_of_splitmix64():
    from t2t_torch.data.shuffle import GOLDEN, splitmix64

    # Seed 1234567; the reference values are Rosetta Code's, "Pseudo-random numbers/Splitmix64".
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = np.uint64(1234567) + np.arange(5, dtype=np.uint64) * GOLDEN
    assert splitmix64(states).tolist() == expected
    assert splitmix64(states[2:4]).tolist() == expected[2:4]


def test_take_and_between_agree_with_lists():
    rows = rows_of(LISTS)
    order = np.array([5, 5, 0, 1999, 7])
    assert lists_of(shards.take(rows, order)["inputs"]) == [LISTS[i] for i in order]
    assert lists_of(shards.between(rows, 10, 13)["targets"]) == LISTS[10:13]
    parts = [shards.between(rows, 0, 4), shards.between(rows, 4, 4), shards.between(rows, 4, 9)]
    assert lists_of(shards.concatenate(parts)["inputs"]) == LISTS[:9]


def test_only_lists_of_numbers_can_be_stored():
    assert shards.value_dtype("list<float32>") == np.float32
    with pytest.raises(ValueError, match="list<int32>"):
        shards.value_dtype("string")


@pytest.mark.parametrize("memory_bytes", [1 << 28, 1000])
def test_what_keeps_its_order_is_not_shuffled(tmp_path, memory_bytes):
    shuffle = Shuffle("1", tmp_path, keeps_order=True, memory_bytes=memory_bytes)
    order = np.random.default_rng(0).permutation(len(LISTS))
    for numbers in np.split(order, [300, 1500]):  # as shares of several tasks may come
        shuffle.add(rows_of([LISTS[i] for i in numbers]), numbers)
    rows = [row for rows in shuffle.drain() for row in lists_of(rows["inputs"])]
    assert rows == LISTS
