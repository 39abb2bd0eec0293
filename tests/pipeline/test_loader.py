"""Batches as tensors."""

import dataclasses
import itertools
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.pipeline.collate import Collator
from t2t_torch.pipeline.loader import EvalBatches, TrainBatches, read_ahead
from t2t_torch.pipeline.plan import Batching, batching_scheme
from t2t_torch.pipeline.reader import RowReader
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import IntegerEncoder

TEXT = Text(IntegerEncoder(2200))
FEATURES = Features({"inputs": TEXT}, {"targets": TEXT})
HPARAMS = basic_params1().replace(batch_size=256, max_length=41)


FIXED = {"use_fixed_batch_size": True}


class Pairs(Problem):
    """What batching asks of a problem."""

    batch_size_means_tokens = True

    def generate_samples(self, tmp_dir, split):
        """Never asked for."""

    def stored_features(self, directory):
        """Never asked for."""


class Pictures(Pairs):
    """Three positions cost as much as a token."""

    batch_size_multiplier = 3


TEXTS = Features({}, {"targets": TEXT})


def train_batches(shards, hparams=HPARAMS, **options):
    batching = Batching(hparams, means_tokens=True, max_length=hparams.max_length)
    return TrainBatches(shards, FEATURES, batching, seed=3, **options)


def eval_batches(shards, hparams=HPARAMS, **options):
    batching = Batching(hparams, means_tokens=True, max_length=hparams.max_length)
    return EvalBatches(shards, FEATURES, batching, **options)


def collator(shards, features=FEATURES):
    return Collator(RowReader(shards, features.all, features.columns))


def longest(batch):
    return max(batch["targets"].size(1), batch["inputs"].size(1))


def take(batches, count):
    return list(itertools.islice(batches, count))


def ids(batch):
    return batch["targets"][:, 0].tolist()  # rows are numbered by their first target


def test_a_batch_holds_its_rows_and_zeros(memory_shards):
    batch = collator(memory_shards)(np.array([1999, 4, 800]))
    for i, row in enumerate((4, 800, 1999)):
        for name in FEATURES.all:
            expected = memory_shards.rows[row][name]
            assert batch[name][i, : len(expected)].tolist() == expected.tolist()
            assert not batch[name][i, len(expected) :].any()
    assert batch["inputs"].dtype == torch.int64


def test_long_features_are_cut_where_asked(memory_shards):
    hparams = HPARAMS.replace(max_input_seq_length=5)
    for batch in take(train_batches(memory_shards, hparams=hparams), 20):
        assert batch["inputs"].size(1) <= 5


def test_reversed_columns_swap_the_features(memory_shards):
    plain = collator(memory_shards)(np.arange(9))
    reverse = collator(memory_shards, FEATURES.reversed())(np.arange(9))
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
        for name in FEATURES.all
    )


def test_ranks_take_turns_at_the_global_batches(memory_shards):
    whole = [ids(batch) for batch in take(train_batches(memory_shards), 90)]
    ranks = [
        [ids(b) for b in take(train_batches(memory_shards, rank=r, world_size=3), 30)]
        for r in range(3)
    ]
    assert [ranks[k % 3][k // 3] for k in range(90)] == whole


def test_evaluation_sees_every_row_once_in_a_fixed_order(memory_shards):
    batches = eval_batches(memory_shards, HPARAMS.replace(max_length=20))  # many are longer
    seen = [row for batch in batches for row in ids(batch)]
    assert sorted(seen) == list(range(2, 2002))
    assert seen == [row for batch in batches for row in ids(batch)]


def test_no_batch_of_evaluation_is_larger_than_one_of_training_may_be(memory_shards):
    batches = eval_batches(memory_shards, HPARAMS.replace(batch_size=30, max_length=20))
    assert all(len(batch["targets"]) * longest(batch) <= 30 for batch in batches)
    cut = sum(max(map(len, row.values())) > 30 for row in memory_shards.rows)
    assert batches.cut == cut > 0


def test_evaluation_can_drop_long_rows(memory_shards):
    hparams = HPARAMS.replace(eval_drop_long_sequences=True, max_length=20)
    batches = eval_batches(memory_shards, hparams)
    assert max(map(longest, batches)) <= 20
    kept = sum(max(map(len, row.values())) <= 20 for row in memory_shards.rows)
    assert sum(len(batch["targets"]) for batch in batches) == kept
    assert batches.cut == 0


def test_ranks_share_evaluation(memory_shards):
    ranks = [eval_batches(memory_shards, rank=rank, world_size=2) for rank in range(2)]
    seen = [row for rank in ranks for batch in rank for row in ids(batch)]
    assert sorted(seen) == list(range(2, 2002))


def test_batch_size_can_mean_examples(memory_shards):
    batching = Batching(HPARAMS.replace(batch_size=32), means_tokens=False, max_length=0)
    batches = TrainBatches(memory_shards, FEATURES, batching, seed=0)
    sizes = [len(batch["targets"]) for batch in take(batches, 63)]
    assert sorted(sizes) == [2000 - 62 * 32, *[32] * 62]


def test_examples_of_a_fixed_number_are_not_dropped_for_their_length(memory_shards):
    batching = Batching.of(Pairs(), HPARAMS.replace(batch_size=8, max_length=0, **FIXED))
    batches = TrainBatches(memory_shards, FEATURES, batching, seed=0)
    assert batches.report.kept == 2000
    assert all(len(batch["targets"]) == 8 for batch in take(batches, 250))


def test_the_multiplier_of_a_problem_lengthens_buckets_and_limits():
    batching = Batching.of(Pictures(), HPARAMS)
    plain = dataclasses.replace(batching, length_multiplier=1)
    assert batching.training.max_length == 3 * plain.training.max_length == 3 * 41
    assert batching.training.boundaries == tuple(3 * b for b in plain.training.boundaries)
    assert batching.bound == 3 * plain.bound == 3 * 256


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"max_length": 20, **FIXED}, 60),
        ({"max_length": 0, **FIXED}, 37),
        ({"max_length": 0, "eval_drop_long_sequences": True, **FIXED}, 37),
        ({"max_length": 20, "eval_drop_long_sequences": True, **FIXED}, 0),
        ({"max_length": 20, "eval_drop_long_sequences": True}, 0),
    ],
)
def test_evaluation_is_bounded_also_where_examples_are_counted(given, bound):
    batching = Batching.of(Pictures(), HPARAMS.replace(**given), longest_row=37)
    assert batching.bound == bound


def test_no_evaluation_example_is_longer_than_those_of_training_by_number(memory_shards):
    batching = Batching.of(Pairs(), HPARAMS.replace(batch_size=8, max_length=20, **FIXED))
    batches = EvalBatches(memory_shards, FEATURES, batching)
    assert max(map(longest, batches)) == 20
    assert batches.cut == sum(max(map(len, row.values())) > 20 for row in memory_shards.rows) > 0


def language_model(shards, hparams, seed=3, **options):
    batching = Batching.of(Pairs(), hparams)
    return TrainBatches(shards, TEXTS, batching, seed=seed, **options)


def texts_of(batches, count):
    """The texts of batches, by their first token; of packed ones each segment is a text."""
    found = []
    for batch in take(batches, count):
        for row in batch["targets"].tolist():
            found.append([token for token in row if token])
    return found


def test_texts_are_split_into_pieces_that_are_examples(memory_shards):
    hparams = HPARAMS.replace(split_to_length=7)
    batches = language_model(memory_shards, hparams)
    found = texts_of(batches, batches.report.batches)
    expected = [
        row["targets"][start : start + 7].tolist()
        for row in memory_shards.rows
        for start in range(0, len(row["targets"]), 7)
    ]
    assert sorted(found) == sorted(expected)
    assert batches.report.kept == len(expected)


def test_evaluation_is_split_as_training_is(memory_shards):
    batching = Batching.of(Pairs(), HPARAMS.replace(split_to_length=7))
    batches = EvalBatches(memory_shards, TEXTS, batching)
    assert max(batch["targets"].size(1) for batch in batches) == 7
    total = sum(int((batch["targets"] != 0).sum()) for batch in batches)
    assert total == memory_shards.lengths["targets"].sum()
    assert batches.cut == 0


def test_only_the_texts_of_a_language_model_are_split(memory_shards):
    batching = Batching.of(Pairs(), HPARAMS.replace(split_to_length=7))
    with pytest.raises(HParamsError, match="the features here are inputs, targets"):
        TrainBatches(memory_shards, FEATURES, batching, seed=0)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 5), st.sampled_from(["", "split_to_length=7", "pack_dataset=true"]))
def test_no_row_is_lost_or_doubled_by_any_number_of_processes(memory_shards, size, how):
    hparams = HPARAMS.parse(how)
    ranks = [language_model(memory_shards, hparams, rank=r, world_size=size) for r in range(size)]
    per_epoch = ranks[0].report.batches
    found = []
    for rank, batches in enumerate(ranks):
        mine = len(range(rank, per_epoch, size))
        found += [token for row in texts_of(batches, mine) for token in row]
    expected = [token for row in memory_shards.rows for token in row["targets"].tolist()]
    assert sorted(found) == sorted(expected)
    evaluated = [
        token
        for rank in range(size)
        for batch in eval_batches(memory_shards, hparams, rank=rank, world_size=size)
        for token in batch["targets"].flatten().tolist()
        if token
    ]
    assert how.startswith("split") or sorted(evaluated) == sorted(expected)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_error_is_raised_where_its_batch_should_have_come(workers):
    def make(number):
        if number == 7:
            raise DataError("row 7 cannot be read")
        return number

    made = read_ahead(itertools.count(), make, workers)
    assert take(made, 7) == list(range(7))
    with pytest.raises(DataError, match="row 7 cannot be read"):
        next(made)


class Pinned:
    """Notes the thread that pins a tensor, in the place of `Tensor.pin_memory`: there is no GPU."""

    def __init__(self):
        self.by = []

    def __call__(self, tensor):
        self.by.append(threading.current_thread())
        return tensor


@pytest.mark.parametrize("make", [train_batches, eval_batches])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_for_a_gpu_are_pinned_by_who_makes_them(memory_shards, make, workers, monkeypatch):
    pinned = Pinned()
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned(tensor))
    plain = take(make(memory_shards, workers=workers), 3)
    assert not pinned.by
    found = take(make(memory_shards, workers=workers, pin_memory=True), 3)
    assert len(pinned.by) >= 3 * len(FEATURES.all)
    assert {by is threading.current_thread() for by in pinned.by} == {workers == 0}
    for a, b in zip(found, plain, strict=True):
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_first_batches_of_an_evaluation_are_not_the_shortest(memory_shards):
    batches = eval_batches(memory_shards)
    lengths = [batch["targets"].shape[1] for batch in batches]
    assert lengths != sorted(lengths)
    assert lengths == [batch["targets"].shape[1] for batch in batches]
