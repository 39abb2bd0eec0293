"""The few shapes that batches have when each is filled up to its bucket."""

import itertools

import pytest
import torch

from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.pipeline.loader import TrainBatches
from t2t_torch.pipeline.plan import Batching, BatchingScheme, FixedShapes
from t2t_torch.text.encoder import ClassLabelEncoder, IntegerEncoder

TEXT = Text(IntegerEncoder(2200))
PAIRS = Features({"inputs": TEXT}, {"targets": TEXT})
HPARAMS = basic_params1().replace(batch_size=256, max_length=41, pad_batch=True)
SHAPES = FixedShapes(BatchingScheme((8, 16, 32), (32, 16, 8, 6), 0, 41), fills_rows=True)


def source(shards, features=PAIRS, *, means_tokens=True, max_length=41, **changes):
    hparams = HPARAMS.replace(**changes)
    batching = Batching(hparams, means_tokens=means_tokens, max_length=max_length)
    return TrainBatches(shards, features, batching, seed=3)


def epoch(batches):
    return itertools.islice(batches, batches.report.batches)


def test_a_full_batch_has_the_width_of_its_bucket():
    assert SHAPES.of(16, 12) == (16, 16)
    assert SHAPES.of(6, 41) == (6, 41)


def test_what_a_bucket_has_left_over_has_the_shape_of_the_bucket_that_it_went_up_to():
    assert SHAPES.of(8, 12) == (8, 32)
    assert SHAPES.of(6, 5) == (6, 41)


def test_a_short_batch_is_filled_up_with_rows():
    assert SHAPES.of(5, 12) == (16, 16)
    assert SHAPES.of(1, 40) == (6, 41)


def test_rows_that_would_count_in_the_loss_are_not_made():
    shapes = FixedShapes(SHAPES.scheme, fills_rows=False)
    assert shapes.of(5, 12) == (5, 16)


@pytest.mark.parametrize("packed", [True, False])
def test_batches_of_an_epoch_have_the_shapes_of_the_buckets_alone(memory_shards, packed):
    batches = source(memory_shards, pack_dataset=packed)
    scheme = batches.plan.scheme
    allowed = {
        (rows, width)
        for rows, width in zip(scheme.batch_sizes, [*scheme.boundaries, 41], strict=True)
    }
    found = {tuple(batch["targets"].shape) for batch in epoch(batches)}
    assert found <= allowed
    warmed = [tuple(batch["targets"].shape) for batch in batches.one_of_each_shape()]
    assert set(warmed) == found
    assert len(warmed) == len(found)
    sizes = [rows * width for rows, width in warmed]
    assert sizes == sorted(sizes, reverse=True)


def test_rows_that_fill_up_hold_nothing(memory_shards):
    plain = source(memory_shards, pad_batch=False)
    for short, full in zip(epoch(plain), epoch(source(memory_shards)), strict=True):
        rows, width = short["targets"].shape
        assert torch.equal(full["targets"][:rows, :width], short["targets"])
        assert not full["targets"][rows:].any()
        assert not full["inputs"][rows:].any()


def test_rows_of_a_class_are_not_filled_up(make_shards):
    features = Features({"inputs": TEXT}, {"targets": ClassLabel(ClassLabelEncoder(["a", "b"]))})
    rows = [{"inputs": [2] * (1 + i % 9), "targets": [i % 2]} for i in range(50)]
    encoded = make_shards([{k: torch.tensor(v).numpy() for k, v in row.items()} for row in rows])
    batches = source(encoded, features, means_tokens=False, batch_size=16)
    assert sorted(len(batch["inputs"]) for batch in epoch(batches)) == [2, 16, 16, 16]
    assert {batch["inputs"].size(1) for batch in epoch(batches)} == {41}


def test_padding_to_a_boundary_that_is_not_known_is_refused(memory_shards):
    with pytest.raises(HParamsError, match="--hparams=max_length="):
        source(memory_shards, means_tokens=False, max_length=0)
