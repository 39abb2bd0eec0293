"""The Transformer learns packed examples as it would each of them alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import Features, Tags, Text, Words, WordShape, WordStarts
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.pipeline.collate import Collator
from t2t_torch.pipeline.packing import PackedCollator, pack, spacing_of
from t2t_torch.pipeline.reader import RowReader
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, IntegerEncoder

NUMBERS = IntegerEncoder(30)
TEXT = Text(NUMBERS)
PAIRS = Features({"inputs": TEXT}, {"targets": TEXT})
ALONE = Features({}, {"targets": TEXT})
EXAMPLES = 24


class Stored:
    """Rows in memory, as shards give them."""

    def __init__(self, rows):
        self.rows = rows
        self.lengths = {name: np.asarray(list(map(len, rows[name]))) for name in rows}

    def column(self, name):
        """Returns one piece."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths[name])])
        return [(np.concatenate(self.rows[name]).astype(np.int32), offsets)]


def random_texts(features):
    rng = np.random.default_rng(0)
    lengths = {name: rng.integers(1, 12, EXAMPLES) for name in features.all}
    return Stored({name: [rng.integers(2, 32, n) for n in lengths[name]] for name in lengths})


def token_losses(model, batch):
    """The loss of every target token, [B, T]."""
    return cross_entropy(model(batch).logits["targets"], batch["targets"], 0.0)


@pytest.mark.parametrize("features", [PAIRS, ALONE], ids=["pairs", "language model"])
def test_the_loss_of_every_token_is_that_of_the_example_alone(features):
    model = registry.model("transformer")(registry.hparams("transformer_test"), features).eval()
    stored = random_texts(features)
    reader = RowReader(stored, features.all, features.columns)
    bins = pack(stored.lengths, 32, spacing=spacing_of(features))
    assert len(bins) < EXAMPLES / 2
    numbers = np.arange(len(bins))
    with torch.no_grad():
        packed = PackedCollator(reader, bins)(numbers)
        found = token_losses(model, packed)
        alone = Collator(reader)(np.arange(EXAMPLES))
        expected = token_losses(model, alone)
    for row, number in enumerate(numbers):
        members = bins.members[bins.offsets[number] : bins.offsets[number + 1]]
        for segment, example in enumerate(members, start=1):
            mine = packed["targets_segmentation"][row] == segment
            length = stored.lengths["targets"][example]
            torch.testing.assert_close(
                found[row][mine], expected[example, :length], atol=2e-5, rtol=0
            )


def test_another_neighbour_changes_nothing():
    model = registry.model("transformer")(registry.hparams("transformer_test"), PAIRS).eval()
    stored = random_texts(PAIRS)
    reader = RowReader(stored, PAIRS.all, PAIRS.columns)
    bins = pack(stored.lengths, 32, spacing=1)
    batch = PackedCollator(reader, bins)(np.arange(1))
    other = {name: ids.clone() for name, ids in batch.items()}
    for name in ("inputs", "targets"):
        second = other[f"{name}_segmentation"] == 2
        assert second.any()
        other[name][second] = 33 - other[name][second]
    with torch.no_grad():
        losses, changed = token_losses(model, batch), token_losses(model, other)
    segments = batch["targets_segmentation"]
    others = (segments > 0) & (segments != 2)
    assert torch.equal(losses[others], changed[others])
    assert not torch.equal(losses, changed)


@pytest.mark.parametrize("of_ids", [NUMBERS, ByteEncoder()], ids=["an id a word", "bytes"])
def test_the_tags_of_packed_words_are_those_of_the_text_alone(of_ids):
    words = Words(of_ids)
    inputs = {"inputs": words, "inputs_shape": WordShape("inputs")}
    labels = ClassLabelEncoder(["a", "b"])
    starts = {"inputs_starts": WordStarts("inputs", words)}
    features = Features(inputs, {"targets": Tags(labels)}, notes=starts)
    rng = np.random.default_rng(0)
    texts = [[str(n) for n in rng.integers(0, 30, 1 + i % 4)] for i in range(EXAMPLES)]
    kinds = {**features.inputs, **features.notes}
    rows = {name: [kind.encode(text) for text in texts] for name, kind in kinds.items()}
    stored = Stored({**rows, "targets": [[0] * len(text) for text in texts]})
    reader = RowReader(stored, features.all, features.columns)
    hparams = registry.hparams("transformer_encoder_small").replace(hidden_size=32, filter_size=64)
    model = registry.model("transformer_encoder")(hparams, features).eval()
    bins = pack({"inputs": stored.lengths["inputs"]}, 40)
    numbers = np.arange(len(bins))
    with torch.no_grad():
        packed = PackedCollator(reader, bins)(numbers)
        found = model(packed).logits["targets"]
        expected = model(Collator(reader)(np.arange(EXAMPLES))).logits["targets"]
    assert len(bins) < EXAMPLES / 2
    for row, number in enumerate(numbers):
        members = bins.members[bins.offsets[number] : bins.offsets[number + 1]]
        for segment, example in enumerate(members, start=1):
            mine = packed["targets_segmentation"][row] == segment
            alone = expected[example, : len(texts[example])]
            torch.testing.assert_close(found[row][mine], alone, atol=2e-5, rtol=0)
