"""Batches as tensors."""

import itertools

import numpy as np
import torch

from t2t_torch.hparams.basic import basic_params1
from t2t_torch.pipeline.bucketing import batching_scheme
from t2t_torch.pipeline.collate import Collator
from t2t_torch.pipeline.loader import EvalBatches, TrainBatches

COLUMNS = {"inputs": "inputs", "targets": "targets"}
HPARAMS = basic_params1().replace(batch_size=256, max_length=41)


def train_batches(shards, columns=COLUMNS, hparams=HPARAMS, **options):
    return TrainBatches(
        shards, columns, hparams, means_tokens=True, max_length=41, seed=3, **options
    )


def take(batches, count):
    return list(itertools.islice(batches, count))


def ids(batch):
    return batch["targets"][:, 0].tolist()  # rows are numbered by their first target


def test_a_batch_holds_its_rows_and_zeros(memory_shards):
    batch = Collator(memory_shards, COLUMNS)(np.array([1999, 4, 800]))
    for i, row in enumerate((4, 800, 1999)):
        for name in COLUMNS:
            expected = memory_shards.rows[row][name]
            assert batch[name][i, : len(expected)].tolist() == expected.tolist()
            assert not batch[name][i, len(expected) :].any()
    assert batch["inputs"].dtype == torch.int64


def test_long_features_are_cut_where_asked(memory_shards):
    hparams = HPARAMS.replace(max_input_seq_length=5)
    for batch in take(train_batches(memory_shards, hparams=hparams), 20):
        assert batch["inputs"].size(1) <= 5


def test_reversed_columns_swap_the_features(memory_shards):
    swapped = {"inputs": "targets", "targets": "inputs"}
    plain = Collator(memory_shards, COLUMNS)(np.arange(9))
    reverse = Collator(memory_shards, swapped)(np.arange(9))
    assert torch.equal(plain["inputs"], reverse["targets"])
    assert torch.equal(plain["targets"], reverse["inputs"])


def test_batches_can_be_padded_to_the_boundary_of_their_bucket(memory_shards):
    shapes = set()
    boundaries = batching_scheme(256, 41, 8, 1.1).boundaries
    for batch in take(train_batches(memory_shards, hparams=HPARAMS.replace(pad_batch=True)), 200):
        assert batch["inputs"].shape == batch["targets"].shape
        shapes.add(batch["inputs"].size(1))
    assert shapes <= {*boundaries, 41}


def test_training_can_begin_at_any_batch(memory_shards):
    whole = take(train_batches(memory_shards), 300)
    rest = take(train_batches(memory_shards, start=171), 129)
    assert all(
        torch.equal(a[name], b[name])
        for a, b in zip(whole[171:], rest, strict=True)
        for name in COLUMNS
    )


def test_ranks_take_turns_at_the_global_batches(memory_shards):
    whole = [ids(batch) for batch in take(train_batches(memory_shards), 90)]
    ranks = [
        [ids(b) for b in take(train_batches(memory_shards, rank=r, world_size=3), 30)]
        for r in range(3)
    ]
    assert [ranks[k % 3][k // 3] for k in range(90)] == whole


def test_evaluation_sees_every_row_once_in_a_fixed_order(memory_shards):
    hparams = HPARAMS.replace(max_length=20)  # many rows are longer than that
    batches = EvalBatches(memory_shards, COLUMNS, hparams, means_tokens=True, max_length=20)
    seen = [row for batch in batches for row in ids(batch)]
    assert sorted(seen) == list(range(2, 2002))
    assert seen == [row for batch in batches for row in ids(batch)]
    assert all(
        len(b["targets"]) == 1
        for b in batches
        if max(b["targets"].size(1), b["inputs"].size(1)) > 20
    )


def test_evaluation_can_drop_long_rows(memory_shards):
    hparams = HPARAMS.replace(eval_drop_long_sequences=True)
    batches = EvalBatches(memory_shards, COLUMNS, hparams, means_tokens=True, max_length=20)
    assert max(max(b["targets"].size(1), b["inputs"].size(1)) for b in batches) <= 20


def test_ranks_share_evaluation(memory_shards):
    seen = [
        row
        for rank in range(2)
        for batch in EvalBatches(
            memory_shards,
            COLUMNS,
            HPARAMS,
            means_tokens=True,
            max_length=41,
            rank=rank,
            world_size=2,
        )
        for row in ids(batch)
    ]
    assert sorted(seen) == list(range(2, 2002))


def test_batch_size_can_mean_examples(memory_shards):
    batches = TrainBatches(
        memory_shards,
        COLUMNS,
        HPARAMS.replace(batch_size=32),
        means_tokens=False,
        max_length=50,
        seed=0,
    )
    sizes = [len(batch["targets"]) for batch in take(batches, 63)]
    assert sorted(sizes) == [2000 - 62 * 32, *[32] * 62]
