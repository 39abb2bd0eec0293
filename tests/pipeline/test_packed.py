"""Several examples in each row of a batch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import (
    IGNORED,
    ClassLabel,
    Features,
    Tags,
    Text,
    WordCharacters,
    Words,
    WordShape,
    WordStarts,
)
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.pipeline.loader import TrainBatches
from t2t_torch.pipeline.plan import Batching
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, IntegerEncoder

TEXT = Text(IntegerEncoder(2200))
PAIRS = Features({"inputs": TEXT}, {"targets": TEXT})
HPARAMS = basic_params1().replace(batch_size=256, max_length=64, pack_dataset=True)


def train_batches(shards, features=PAIRS, hparams=HPARAMS, **options):
    batching = Batching(hparams, means_tokens=True, max_length=hparams.max_length)
    return TrainBatches(shards, features, batching, seed=3, **options)


def segments(batch, name, padding=0):
    """The numbers of each example of a packed batch, row after row; checks the positions."""
    found = []
    for values, numbers, positions in zip(
        batch[name], batch[f"{name}_segmentation"], batch[f"{name}_position"], strict=True
    ):
        for number in range(1, int(numbers.max()) + 1):
            mine = numbers == number
            assert positions[mine].tolist() == list(range(int(mine.sum())))
            found.append(values[mine].tolist())
        assert (values[numbers == 0] == padding).all()
        assert not positions[numbers == 0].any()
    return found


def test_an_epoch_holds_every_pair_once_and_keeps_it_together(memory_shards):
    batches = train_batches(memory_shards)
    report = batches.report
    found = []
    for batch in itertools.islice(batches, report.batches):
        found += zip(segments(batch, "inputs"), segments(batch, "targets"), strict=True)
        assert batch["inputs"].numel() <= 256 >= batch["targets"].numel()
    expected = [(row["inputs"].tolist(), row["targets"].tolist()) for row in memory_shards.rows]
    assert sorted(found) == sorted(expected)
    assert report.kept == report.examples == 2000
    assert report.packed_rows < 1000


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("pad_batch", [True, False])
def test_the_report_counts_the_padding_that_the_batches_have(
    memory_shards, packed, fixed, pad_batch
):
    hparams = HPARAMS.replace(pack_dataset=packed, pad_batch=pad_batch)
    batching = Batching(hparams, means_tokens=not fixed, max_length=64)
    batches = TrainBatches(memory_shards, PAIRS, batching, seed=3)
    filled, sizes = 0, []
    for batch in itertools.islice(batches, batches.report.batches):
        filled += sum(int((batch[name] != 0).sum()) for name in PAIRS.all)
        sizes.append(sum(batch[name].numel() for name in PAIRS.all))
    positions = sum(sizes)
    (component,) = batches.components
    largest = component.collate(component.plan.largest_batch)
    assert sum(largest[name].numel() for name in PAIRS.all) == max(sizes)
    assert batches.report.tokens == filled
    assert batches.report.padding_fraction == pytest.approx(1 - filled / positions)


def test_between_texts_that_are_generated_there_is_the_zero_that_they_start_from(memory_shards):
    for batch in itertools.islice(train_batches(memory_shards), 20):
        shifted = torch.nn.functional.pad(batch["targets"], (1, -1))
        starts = (batch["targets_position"] == 0) & (batch["targets_segmentation"] > 0)
        assert not shifted[starts].any()


def test_packed_training_resumes_at_any_batch(memory_shards):
    whole = list(itertools.islice(train_batches(memory_shards), 60))
    rest = list(itertools.islice(train_batches(memory_shards, start=41), 19))
    for a, b in zip(whole[41:], rest, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_fingerprint_knows_packing_and_its_length(memory_shards):
    prints = {
        train_batches(memory_shards, hparams=hparams).plan_fingerprint
        for hparams in (
            HPARAMS,
            HPARAMS.replace(pack_dataset=False),
            HPARAMS.replace(max_length=65),
        )
    }
    assert len(prints) == 3


def test_what_belongs_to_words_is_packed_with_them(make_shards):
    words, labels = Words(ByteEncoder()), ClassLabelEncoder(["a", "b"])
    features = Features(
        {
            "inputs": words,
            "characters": WordCharacters("inputs", ByteEncoder(), 2),
            "shape": WordShape("inputs"),
        },
        {"tags": Tags(labels)},
        notes={"starts": WordStarts("inputs", words)},
    )
    rng = np.random.default_rng(0)
    texts = [[f"w{'x' * int(n)}{i}" for n in rng.integers(0, 4, 1 + i % 5)] for i in range(60)]
    samples = [
        {**dict.fromkeys(("inputs", "characters", "shape", "starts"), text), "tags": "ab"[i % 2]}
        for i, text in enumerate(texts)
    ]
    for sample, text in zip(samples, texts, strict=True):
        sample["tags"] = " ".join([sample["tags"]] * len(text))
    shards = make_shards(samples, features=features.all)
    batches = train_batches(shards, features)
    found = {name: [] for name in features.all}
    for batch in itertools.islice(batches, batches.report.batches):
        begins = batch["inputs_position"] == 0
        for row, starts in enumerate(batch["starts"]):
            at = starts[batch["starts_segmentation"][row] > 0]
            first = torch.nonzero(begins[row] & (batch["inputs_segmentation"][row] > 0)).flatten()
            assert set(first.tolist()) <= set(at.tolist())  # every text begins with a word
        for name, padding in (("inputs", 0), ("shape", 0), ("tags", IGNORED), ("characters", 0)):
            found[name] += segments(batch, name, padding)
    assert len(found["inputs"]) == 60
    for ids, shape, tags, characters in zip(
        found["inputs"], found["shape"], found["tags"], found["characters"], strict=True
    ):
        text = words.decode(ids)
        index = texts.index(text)
        assert len(shape) == len(tags) == len(characters) == len(text)
        assert set(tags) == {index % 2}
        assert [ByteEncoder().decode(row) for row in characters] == [word[:2] for word in text]


def test_features_without_positions_are_refused_by_name(make_shards):
    label = ClassLabel(ClassLabelEncoder(["a", "b"]))
    features = Features({"inputs": TEXT}, {"targets": label})
    shards = make_shards([{"inputs": "1 2", "targets": "a"}], 1, features=features.all)
    with pytest.raises(HParamsError, match="but targets has one value for each example"):
        train_batches(shards, features)


def test_rows_of_packed_examples_need_a_length(memory_shards):
    batching = Batching(HPARAMS, means_tokens=False, max_length=0)
    with pytest.raises(HParamsError, match="Give it: --hparams=max_length=256"):
        TrainBatches(memory_shards, PAIRS, batching, seed=0)


def test_long_and_short_examples_are_left_out_and_counted(memory_shards):
    batches = train_batches(memory_shards, hparams=HPARAMS.replace(max_length=20, min_length=5))
    longest = np.maximum(*memory_shards.lengths.values())
    assert batches.report.too_long == int((longest > 20).sum()) > 0
    assert batches.report.too_short == int((longest < 5).sum()) > 0
    assert batches.report.kept == int(((longest >= 5) & (longest <= 20)).sum())
    with pytest.raises(DataError, match=r"none of the .* examples has a length from 190 to 200"):
        train_batches(memory_shards, hparams=HPARAMS.replace(max_length=200, min_length=190))


def test_texts_that_are_split_are_packed_piece_by_piece(memory_shards):
    features = Features({}, {"targets": TEXT})
    batching = Batching(HPARAMS, means_tokens=True, max_length=16, split_length=16)
    batches = TrainBatches(memory_shards, features, batching, seed=0)
    found = []
    for batch in itertools.islice(batches, batches.report.batches):
        assert batch["targets"].size(1) <= 16
        found += segments(batch, "targets")
    expected = [
        row["targets"][start : start + 16].tolist()
        for row in memory_shards.rows
        for start in range(0, len(row["targets"]), 16)
    ]
    assert sorted(found) == sorted(expected)
