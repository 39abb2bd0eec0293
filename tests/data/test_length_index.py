"""The index of the lengths of a split, beside its shards."""

from __future__ import annotations

import json

import numpy as np
import pytest

from t2t_torch import registry
from t2t_torch.data import publish
from t2t_torch.data.generate import generate_data, run_task
from t2t_torch.data.length_index import LengthIndex
from t2t_torch.data.manifest import Manifest
from t2t_torch.data.shards import Shards
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.pipeline.block_plan import BlockPlan
from t2t_torch.pipeline.loader import TrainBatches
from t2t_torch.pipeline.plan import Batching, EpochPlan

from .counting import counting, files

INDEX = "counting-train.lengths.arrow"
COLUMNS = ("inputs", "targets")


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Generates a data set; splits of so many rows get an index."""

    def data(rows=20, name="data", **attributes):
        monkeypatch.setattr(publish, "INDEX_ROWS", rows)
        folder = tmp_path / name
        generate_data(
            counting(**attributes), folder, tmp_path / "raw", progress=False, overwrite=True
        )
        return folder

    return data


def open_train(folder, *splits):
    return Shards.open(folder, "counting", *(splits or (Split.TRAIN,)))


def table(index, first, last):
    """The number of rows of each combination of lengths."""
    lengths, counts = index.counts(first, last)
    distinct, of_row = np.unique(
        np.stack([lengths[name] for name in COLUMNS]), axis=1, return_inverse=True
    )
    sums = np.bincount(of_row.reshape(-1), counts)
    return dict(zip(map(tuple, distinct.T.tolist()), sums.tolist(), strict=True))


def test_only_splits_of_many_rows_have_one(make):
    folder = make()
    manifest = Manifest.load(folder, "counting")
    assert [split.index is not None for split in manifest.splits.values()] == [True, False]
    assert (folder / INDEX).exists() and len(list(folder.glob("*.lengths.arrow"))) == 1
    small = make(rows=publish.INDEX_ROWS + 100, name="small")
    assert not list(small.glob("*.lengths.arrow"))
    assert "index" not in (small / "counting.json").read_text(), "as in earlier versions"
    assert open_train(small).fingerprint == open_train(folder).fingerprint


def test_it_counts_the_rows_of_the_shards_without_opening_them(make, monkeypatch):
    folder = make()
    shards = open_train(folder)
    lengths = [shards.lengths[name] for name in COLUMNS]
    ends = np.cumsum([0, *shards.shard_rows])
    with_index = LengthIndex(shards, COLUMNS)
    counted = LengthIndex(open_train(make(rows=1000, name="small")), COLUMNS)
    expected = {}
    for first, last in ((0, 1), (1, 3), (0, 3)):
        rows = zip(*(length[ends[first] : ends[last]].tolist() for length in lengths), strict=True)
        expected[first, last] = {}
        for row in rows:
            expected[first, last][row] = expected[first, last].get(row, 0) + 1
        assert table(counted, first, last) == expected[first, last]
    monkeypatch.delattr(Shards, "lengths_of")
    for ends, groups in expected.items():
        assert table(with_index, *ends) == groups
    assert len(expected[0, 3]) == 2, "numbers of one digit and of two"


def test_lengths_of_shards_are_those_of_their_rows(make):
    shards = open_train(make())
    first, second, _ = shards.shard_rows
    for name in COLUMNS:
        part = shards.lengths_of(1, 2, COLUMNS)[name]
        assert np.array_equal(part, shards.lengths[name][first : first + second])


def test_columns_that_it_does_not_have_are_counted_from_the_shards(make):
    folder = make()
    manifest = Manifest.load(folder, "counting")
    # Written for a problem whose targets had no length of their own.
    path = folder / INDEX
    shards = [folder / shard.file for shard in manifest.splits["train"].shards]
    index = publish.write_index(path, shards, ["inputs"])
    split = manifest.splits["train"].model_copy(update={"index": index})
    splits = {**manifest.splits, "train": split}
    manifest.model_copy(update={"splits": splits}).save(folder)
    shards = open_train(folder)
    assert sum(table(LengthIndex(shards, COLUMNS), 0, 3).values()) == len(shards)


def test_two_splits_are_one_after_the_other(make):
    shards = open_train(make(), Split.TRAIN, Split.EVAL)
    assert shards.shard_rows == [33, 33, 34, 10]
    assert sum(table(LengthIndex(shards, COLUMNS), 0, 4).values()) == 110
    assert sum(table(LengthIndex(shards, COLUMNS), 3, 4).values()) == 10


def test_an_altered_index_is_named(make):
    folder = make()
    content = bytearray((folder / INDEX).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / INDEX).write_bytes(content)
    with pytest.raises(DataError, match=f"{INDEX}: expected sha256"):
        open_train(folder)
    (folder / INDEX).unlink()
    with pytest.raises(DataError, match=f"{INDEX}: missing"):
        open_train(folder)


def test_an_index_of_earlier_data_goes_with_it(make):
    folder = make()
    assert (folder / INDEX).exists()
    make(rows=1000)
    assert not (folder / INDEX).exists()


def test_tasks_write_the_same(make, tmp_path):
    folder = make()
    for task in range(2):
        run_task(
            counting(), tmp_path / "tasks", tmp_path / "raw", task_id=task, num_tasks=2,
            progress=False,
        )  # fmt: skip
    assert files(tmp_path / "tasks") == files(folder)


def batches(folder, hparams, **run):
    chosen = registry.hparams("transformer_test").parse(f"batch_size=64,max_length=16,{hparams}")
    features = counting().stored_features(folder)
    batching = Batching.of(counting(), chosen)
    return TrainBatches(open_train(folder), features, batching, seed=1, **run)


def test_a_training_is_planned_in_blocks_with_an_index_and_without(make):
    whole = batches(make(), "")
    assert isinstance(whole.plan, EpochPlan), "data of fewer rows than a block"
    first = batches(make(), "shuffle_block_size=40")
    assert isinstance(first.plan, BlockPlan)
    other = batches(make(rows=1000, name="small"), "shuffle_block_size=40")
    assert first.plan_fingerprint == other.plan_fingerprint != whole.plan_fingerprint
    assert first.report == other.report
    count = first.plan.batches_per_epoch
    rows = [first.rows_of(k)[1] for k in range(count)]
    assert rows == [other.rows_of(k)[1] for k in range(count)]
    assert sorted(sum(rows, [])) == list(range(100))  # noqa: RUF017
    for k, (one, same) in enumerate(zip(first, other, strict=False)):
        assert all(one[name].equal(same[name]) for name in one)
        if k == 2 * count:
            break
    late = next(iter(batches(make(), "shuffle_block_size=40", start=count + 3)))
    direct = first.components[0].collate(*first.components[0].work(count + 3))
    assert all(late[name].equal(direct[name]) for name in late)


@pytest.mark.parametrize(
    "hparams", ["pack_dataset=True", "bagging_share=1.0", "fold=1/3", "shuffle_block_size=0"]
)
def test_what_needs_all_rows_is_planned_together(make, hparams):
    sized = hparams if "block" in hparams else f"shuffle_block_size=40,{hparams}"
    source = batches(make(), sized)
    assert isinstance(source.plan, EpochPlan)
    assert source.plan_fingerprint == batches(make(), hparams).plan_fingerprint


def test_an_index_of_other_rows_is_refused(make):
    """Its checksum fits, as that of one that was written for other shards by hand."""
    folder = make()
    content = json.loads((folder / "counting.json").read_text())
    manifest = Manifest.load(folder, "counting")
    shards = [folder / shard["file"] for shard in content["splits"]["train"]["shards"]]
    index = publish.write_index(folder / INDEX, [shards[0]] * 3, COLUMNS)
    split = manifest.splits["train"].model_copy(update={"index": index})
    manifest.model_copy(update={"splits": {**manifest.splits, "train": split}}).save(folder)
    source = batches(folder, "shuffle_block_size=40")
    with pytest.raises(DataError, match="counts other rows than the shards"):
        for k in range(source.plan.batches_per_epoch):
            source.plan.batch(k)
