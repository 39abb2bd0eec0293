"""Rows of every kind of feature, as tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from t2t_torch.errors import HParamsError
from t2t_torch.features import (
    IGNORED,
    NO_SPAN,
    ClassLabel,
    Features,
    Image,
    MultiLabel,
    Real,
    RowWeight,
    SoftLabel,
    Span,
    Tags,
    Text,
    WordCharacters,
    Words,
    WordShape,
    WordStarts,
)
from t2t_torch.features.feature import select_measured
from t2t_torch.hparams.basic import basic_params1
from t2t_torch.pipeline.collate import Collator
from t2t_torch.pipeline.loader import EvalBatches
from t2t_torch.pipeline.plan import Batching, BatchingScheme, FixedShapes
from t2t_torch.pipeline.reader import LengthLimits, RowReader, paddings
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, IntegerEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])
NUMBERS = IntegerEncoder(100)
KINDS = {
    "inputs": Words(NUMBERS),
    "characters": WordCharacters("inputs", ByteEncoder(), 3),
    "shape": WordShape("inputs"),
    "label": ClassLabel(LABELS),
    "labels": MultiLabel(LABELS),
    "soft": SoftLabel(LABELS),
    "tags": Tags(LABELS),
    "dense": Real(2),
    "weight": RowWeight(),
    "picture": Image(1, 2, 3),
    "span": Span("inputs"),
}
PICTURE = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)


def example(words, tags, span=None):
    return {
        "inputs": words,
        "characters": words,
        "shape": words,
        "label": "b",
        "labels": ["a", "c"],
        "soft": [0.25, 0.5, 0.25],
        "tags": tags,
        "dense": [1.5, -2.0],
        "weight": 0.5,
        "picture": PICTURE,
        "span": span,
    }


TWO = [example("7 88 9", "a b c", (1, 2)), example("5", "c")]


@pytest.fixture
def batch_of(make_shards):
    """Makes a batch of samples, all of them."""

    def make(samples, kinds=KINDS, limits=None, pad_to=None):
        shards = make_shards(samples, pieces=2, features=kinds)
        reader = RowReader(shards, kinds, {name: name for name in kinds}, limits)
        return Collator(reader, pad_to)(np.arange(len(samples)))

    return make


def test_every_kind_of_feature_has_its_shape_type_and_padding(batch_of):
    batch = batch_of(TWO)
    expected = {
        "inputs": torch.tensor([[9, 90, 11], [7, 0, 0]]),
        "shape": torch.tensor([[6, 6, 6], [6, 0, 0]]),
        "label": torch.tensor([1, 1]),
        "labels": torch.tensor([[1, 0, 1]] * 2, dtype=torch.uint8),
        "soft": torch.tensor([[0.25, 0.5, 0.25]] * 2),
        "tags": torch.tensor([[0, 1, 2], [2, IGNORED, IGNORED]]),
        "dense": torch.tensor([[1.5, -2.0]] * 2),
        "weight": torch.tensor([0.5, 0.5]),
        "picture": torch.from_numpy(np.stack([PICTURE] * 2)),
        "span": torch.tensor([[1, 2], [NO_SPAN, NO_SPAN]]),
    }
    characters = batch.pop("characters")
    for name, tensor in expected.items():
        torch.testing.assert_close(batch[name], tensor, msg=name)
    assert batch.keys() == expected.keys()
    eight = 2 + ord("8")
    assert characters.shape == (2, 3, 3)
    assert characters[0, 1].tolist() == [eight, eight, 0]
    assert not characters[1, 1:].any()


def test_words_are_cut_together_with_all_that_belongs_to_them(batch_of):
    batch = batch_of(TWO, limits=LengthLimits({"inputs": 2}))
    assert batch["inputs"].tolist() == [[9, 90], [7, 0]]
    assert batch["tags"].tolist() == [[0, 1], [2, IGNORED]]
    assert batch["shape"].shape == (2, 2)
    assert batch["characters"].shape == (2, 2, 3)
    assert batch["dense"].shape == (2, 2)  # no sequence: not cut


def test_a_span_that_is_cut_off_is_no_span(batch_of):
    assert batch_of(TWO, limits=LengthLimits({"inputs": 2}))["span"].tolist() == [[NO_SPAN] * 2] * 2
    assert batch_of(TWO, limits=LengthLimits({"inputs": 3}))["span"].tolist()[0] == [1, 2]


def test_where_words_have_several_ids_those_are_kept_that_begin_in_what_is_left(batch_of):
    words = Words(ByteEncoder())
    kinds = {
        "inputs": words,
        "starts": WordStarts("inputs", words),
        "tags": Tags(LABELS),
        "span": Span("inputs"),
    }
    texts = [["ab", "cde", "f"], ["x"], ["abcdef", "g", "h", "i"]]
    samples = [
        {"inputs": text, "starts": text, "tags": "a b c a"[: 2 * len(text) - 1], "span": (0, 0)}
        for text in texts
    ]
    whole = batch_of(samples, kinds)
    assert whole["starts"][0, :3].tolist() == [0, 2, 6]  # a word takes the space before it
    batch = batch_of(samples, kinds, limits=LengthLimits({"inputs": 6}))
    assert batch["inputs"].shape == (3, 6)
    assert (batch["tags"] != IGNORED).sum(1).tolist() == [2, 1, 1]
    assert batch["starts"].tolist() == [[0, 2], [0, 0], [0, 0]]


def test_rows_without_any_number_are_all_padding(batch_of):
    kinds = {"inputs": Words(NUMBERS), "label": ClassLabel(LABELS)}
    batch = batch_of([{"inputs": "", "label": "a"}, {"inputs": "", "label": "b"}], kinds)
    assert batch["inputs"].tolist() == [[0], [0]]
    assert batch["label"].tolist() == [0, 1]


def test_sequences_are_padded_to_the_boundary_of_the_bucket(batch_of):
    scheme = BatchingScheme((2, 8), (9, 9, 9), 0, 20)
    batch = batch_of(TWO, pad_to=FixedShapes(scheme, fills_rows=False))
    assert batch["inputs"].shape == batch["tags"].shape == (2, 8)
    assert batch["characters"].shape == (2, 8, 3)


def test_only_texts_are_measured_and_counted():
    assert list(select_measured(KINDS)) == ["inputs"]
    assert paddings(KINDS) == {"inputs": 0}
    assert paddings({"tags": Tags(LABELS)}) == {"tags": IGNORED}  # its words are no feature here
    assert paddings({"picture": KINDS["picture"], "label": KINDS["label"]}) == {}


def test_limits_are_those_of_the_roles_and_of_the_bound():
    text = Text(NUMBERS)
    features = Features({"inputs": text, "context": text, "dense": Real(2)}, {"targets": text})
    hparams = basic_params1().replace(max_input_seq_length=7)
    assert LengthLimits.of(features, hparams).by_feature == {"inputs": 7, "context": 7}
    bounded = LengthLimits.of(features, hparams, bound=9)
    assert bounded.by_feature == {"inputs": 7, "context": 7, "targets": 9}


def test_tags_are_not_cut_without_their_words():
    features = Features({"inputs": Words(NUMBERS)}, {"targets": Tags(LABELS)})
    with pytest.raises(HParamsError, match="Use max_input_seq_length"):
        LengthLimits.of(features, basic_params1().replace(max_target_seq_length=7))


def test_data_without_sequences_makes_batches_of_examples(make_shards):
    kinds = {name: KINDS[name] for name in ("picture", "label")}
    shards = make_shards(TWO * 5, features=kinds)
    features = Features({"picture": kinds["picture"]}, {"label": kinds["label"]})
    batching = Batching(basic_params1().replace(batch_size=4), means_tokens=False, max_length=0)
    sizes = [batch["picture"].shape for batch in EvalBatches(shards, features, batching)]
    assert sorted(sizes) == [(2, 1, 2, 3), (4, 1, 2, 3), (4, 1, 2, 3)]
