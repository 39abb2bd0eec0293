"""`Problem.preprocess_example`: examples that change each time that they are read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import ClassLabel, Features, Text
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.mode import Split
from t2t_torch.pipeline.loader import EvalBatches, TrainBatches
from t2t_torch.pipeline.plan import Batching
from t2t_torch.pipeline.training_split import TrainingSplit
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import EOS, ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.subword import SubwordEncoder

TEXT = Text(IntegerEncoder(2200))
FEATURES = Features({"inputs": TEXT}, {"targets": TEXT})
ROWS = 300
HPARAMS = basic_params1().replace(batch_size=256, max_length=41)


class Plain(Problem):
    """Changes nothing."""

    batch_size_means_tokens = True

    def generate_samples(self, tmp_dir, split):
        """Never called."""

    def stored_features(self, directory):
        """Never called."""


class WordDropout(Plain):
    """Leaves out each input with a probability of a half in training, and the first elsewhere."""

    def preprocess_example(self, example, mode, rng):
        ids = example["inputs"]
        kept = rng.random(len(ids)) < 0.5 if mode is Split.TRAIN else np.arange(len(ids)) > 0
        return {**example, "inputs": ids[kept]}


@pytest.fixture(scope="module")
def memory_shards(make_shards):
    """Three hundred rows; targets begin with the number of the row."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(ROWS):
        inputs = rng.integers(2, 100, rng.integers(1, 40))
        targets = np.concatenate([[i + 2], rng.integers(2, 100, rng.integers(0, 40))])
        rows.append({"inputs": inputs, "targets": targets})
    return make_shards(rows)


def train(shards, problem=WordDropout, hparams=HPARAMS, seed=3, **options):
    return TrainBatches(shards, FEATURES, Batching.of(problem(), hparams), seed=seed, **options)


def take(batches, count):
    return list(itertools.islice(batches, count))


def same(ours, others):
    return len(ours) == len(others) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(ours, others, strict=True)
    )


def by_row(batches):
    """Inputs without padding, by the number with which targets begin."""
    return {
        int(target[0]): [i for i in ids.tolist() if i]
        for batch in batches
        for target, ids in zip(batch["targets"], batch["inputs"], strict=True)
    }


def is_part(part, whole):
    """Whether a list is another one with some items left out."""
    rest = iter(whole)
    return all(item in rest for item in part)


def test_what_overrides_nothing_is_not_called(memory_shards):
    assert Batching.of(Plain(), HPARAMS).preprocess is None
    assert Batching.of(WordDropout(), HPARAMS).preprocess is not None
    given = take(train(memory_shards, Plain), 5)
    rows = by_row(given)
    assert all(rows[i] == memory_shards.rows[i - 2]["inputs"].tolist() for i in rows)


def test_words_are_left_out_anew_in_each_epoch(memory_shards):
    source = train(memory_shards)
    epoch = source.plan.batches_per_epoch
    first, second = (by_row(take(train(memory_shards, start=n), epoch)) for n in (0, epoch))
    assert first.keys() == second.keys()
    stored = {i: memory_shards.rows[i - 2]["inputs"].tolist() for i in first}
    assert all(is_part(first[i], stored[i]) and is_part(second[i], stored[i]) for i in stored)
    words = sum(map(len, stored.values()))
    assert 0.45 * words < sum(map(len, first.values())) < 0.55 * words
    changed = [i for i in first if first[i] != second[i]]
    assert len(changed) > 0.9 * len([i for i in stored if len(stored[i]) > 4])


@pytest.mark.sample(3)
@pytest.mark.parametrize("hparams", [{}, {"pack_dataset": True}, {"pad_batch": True}], ids=str)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_are_equal_on_resume_and_for_any_number_of_readers(memory_shards, hparams, workers):
    changed = HPARAMS.replace(**hparams)
    count = train(memory_shards, hparams=changed).plan.batches_per_epoch + 4
    whole = take(train(memory_shards, hparams=changed, workers=0), count)
    resumed = train(memory_shards, hparams=changed, start=count - 9, workers=workers)
    assert same(take(resumed, 9), whole[-9:])


@pytest.mark.parametrize("world_size", [2, 3])
def test_batches_are_equal_for_any_number_of_processes(memory_shards, world_size):
    whole = take(train(memory_shards), 12)
    parts = [
        take(train(memory_shards, rank=rank, world_size=world_size), 12 // world_size)
        for rank in range(world_size)
    ]
    assert same([batch for step in zip(*parts, strict=True) for batch in step], whole)


def test_another_seed_changes_other_words(memory_shards):
    one, other = (by_row(take(train(memory_shards, seed=seed), 40)) for seed in (3, 4))
    both = one.keys() & other.keys()
    assert sum(one[i] != other[i] for i in both) > len(both) / 2


@pytest.mark.parametrize("workers", [0, 3])
def test_evaluation_has_its_own_mode_and_one_seed(memory_shards, workers):
    batching = Batching.of(WordDropout(), HPARAMS)
    rows = by_row(EvalBatches(memory_shards, FEATURES, batching, workers=workers))
    assert len(rows) == ROWS
    assert all(rows[i] == memory_shards.rows[i - 2]["inputs"].tolist()[1:] for i in rows)


def test_evaluation_draws_the_same_numbers_in_every_pass(memory_shards):
    class Noise(Plain):
        def preprocess_example(self, example, mode, rng):
            assert mode is Split.EVAL
            return {**example, "inputs": rng.integers(2, 99, len(example["inputs"]))}

    batching = Batching.of(Noise(), HPARAMS)
    one, other = (by_row(EvalBatches(memory_shards, FEATURES, batching)) for _ in range(2))
    assert one == other
    shared = EvalBatches(memory_shards, FEATURES, batching, rank=1, world_size=2)
    assert by_row(shared).items() <= one.items()


def test_an_example_may_grow_up_to_max_length(make_shards):
    class Longer(Plain):
        size = 41

        def preprocess_example(self, example, mode, rng):
            return {**example, "targets": [7] * self.size}

    rows = [{"inputs": np.arange(2, 9), "targets": np.asarray([i + 2])} for i in range(30)]
    shards = make_shards(rows)
    assert all(batch["targets"].size(1) == 41 for batch in take(train(shards, Longer), 4))
    Longer.size = 42
    expected = (
        r"Longer.preprocess_example, of example \d+, made 'targets' 42 positions long, of 1 that "
        r"are stored, and its batch holds at most 41. Return fewer, or set a larger "
        r"--hparams=max_length=N."
    )
    with pytest.raises(DataError, match=expected):
        take(train(shards, Longer), 1)
    Longer.size = 2
    packed = HPARAMS.replace(pack_dataset=True)
    with pytest.raises(
        DataError, match=r"2 positions long, of 1 .* holds at most 1\. Return fewer\.$"
    ):
        take(train(shards, Longer, packed), 1)


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        (None, "returned None; expected inputs, targets"),
        ({"inputs": [3]}, "returned inputs; expected inputs, targets"),
        ({"inputs": [3], "targets": 4}, r"'targets' an array of shape \(\) .*; expected length"),
        ({"inputs": [[3]], "targets": [4]}, r"'inputs' an array of shape \(1, 1\)"),
        ({"inputs": [0.5], "targets": [4]}, "'inputs' .* type float64; expected length of int32"),
        ({"inputs": [9999], "targets": [4]}, "put the id 9999 in 'inputs'; expected 0 to 2201"),
        ({"inputs": [-1], "targets": [4]}, "put the id -1 in 'inputs'"),
    ],
)
def test_a_wrong_result_is_refused_by_name(memory_shards, returned, fault):
    class Wrong(Plain):
        def preprocess_example(self, example, mode, rng):
            return returned

    with pytest.raises(DataError, match=rf"Wrong.preprocess_example, of example \d+, .*{fault}"):
        take(train(memory_shards, Wrong), 1)


def test_the_stored_example_stays_as_it_is(make_shards):
    class InPlace(Plain):
        def preprocess_example(self, example, mode, rng):
            example["inputs"][:] = 5
            example["label"] = 1 - example["label"]
            return example

    features = Features({"inputs": TEXT}, {"label": ClassLabel(ClassLabelEncoder(["a", "b"]))})
    rows = [{"inputs": "3 4", "label": "b"}, {"inputs": "6", "label": "a"}]
    shards = make_shards(rows, pieces=1, features=features.all)
    batching = Batching.of(InPlace(), HPARAMS)
    for _ in range(2):
        batch = next(iter(TrainBatches(shards, features, batching, seed=1)))
        assert sorted(batch["label"].tolist()) == [0, 1]
        assert set(batch["inputs"].flatten().tolist()) <= {0, 5}
    assert shards.rows[0]["inputs"][:2] == TEXT.encode("3 4")[:2]


def test_text_that_is_read_in_streams_has_no_examples_to_change(memory_shards):
    hparams = HPARAMS.replace(stream_length=4, stream_rows=2)
    batching = Batching.of(WordDropout(), hparams)
    with pytest.raises(HParamsError, match="preprocess_example changes one example at a time"):
        TrainingSplit.of(memory_shards, Features({}, {"targets": TEXT}), batching, seed=1)


def test_augmented_texts_are_equal_on_resume_and_differ_between_epochs(make_shards, tmp_path):
    draw, words = np.random.default_rng(0), "garden the playing house walks on".split()
    encoder = SubwordEncoder.train([" ".join(words)] * 50, 330, tmp_path / "vocab.subwords")
    texts = [" ".join(draw.choice(words, 6)) for _ in range(60)]
    shards = make_shards(
        [{"inputs": [*encoder.encode(text), EOS], "targets": [2]} for text in texts]
    )
    features = Features({"inputs": Text(encoder)}, {"targets": TEXT})
    kinds = ("typos", "case", "swap_words", "delete_words", "mask_spans", "sample_subwords")
    batching = Batching.of(Plain(), HPARAMS.replace(text_augmentation=kinds))

    def batches(start, workers):
        source = TrainBatches(shards, features, batching, seed=3, start=start, workers=workers)
        return take(source, 20 - start)

    whole = batches(0, 0)
    for start, workers in ((0, 3), (7, 0), (13, 2)):
        assert same(batches(start, workers), whole[start:])
    stored = {tuple(row["inputs"]) for row in shards.rows}
    seen = [tuple(i for i in ids.tolist() if i) for one in whole for ids in one["inputs"]]
    assert len([one for one in seen if one not in stored]) > 0.7 * len(seen)
    assert len(set(seen)) > 1.2 * len(texts)
    held_out = EvalBatches(shards, features, batching, workers=0)
    assert {
        tuple(i for i in ids.tolist() if i) for one in held_out for ids in one["inputs"]
    } == stored
