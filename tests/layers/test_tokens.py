"""What is known of words is a part of what every model of tokens reads."""

from __future__ import annotations

import pytest
import torch

from t2t_torch import registry, testing
from t2t_torch.features import (
    ClassLabel,
    Features,
    Gazetteer,
    GazetteerWeights,
    Span,
    Text,
    TreeFeature,
    WordCharacters,
    WordLabel,
    WordReal,
    Words,
    WordShape,
)
from t2t_torch.testing import random_batch
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.tree import TransitionEncoder

LABELS = ClassLabelEncoder(["a", "b", "c"])
WORDS = Words(IntegerEncoder(17))
TREE = TreeFeature(TransitionEncoder(["S", "NP", "VP"]))
MODELS = {
    "pair_classifier": (("first", "second"), ClassLabel(LABELS)),
    "span_qa": (("question", "context"), Span()),
    "lstm_seq2seq": (("inputs",), Text(IntegerEncoder(17))),
    "lstm_seq2seq_attention": (("inputs",), Text(IntegerEncoder(17))),
    "rnng": (("inputs",), TREE),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_tokens_reads_whatever_is_known_of_words(name):
    texts, target = MODELS[name]
    inputs, notes = dict.fromkeys(texts, WORDS), {}
    for of in texts:
        inputs |= {
            f"{of}_characters": WordCharacters(of, ByteEncoder(), width=4),
            f"{of}_shape": WordShape(of),
            f"{of}_tags": WordLabel(of, LABELS),
            f"{of}_entries": Gazetteer(of, LABELS),
            f"{of}_vectors": WordReal(of, 3),
        }
        notes[f"{of}_entries_weights"] = GazetteerWeights(of, LABELS)
    features = Features(inputs, {"targets": target}, notes=notes)
    model_class = registry.model(name)
    torch.manual_seed(0)
    model = model_class(testing.small(model_class.HParams()), features).eval()
    batch = random_batch(features)
    with torch.no_grad():
        before = model(batch).logits["targets"]
        for part in (f"{texts[-1]}_tags", f"{texts[-1]}_vectors"):
            changed = batch[part].flip(0) if "tags" in part else batch[part] + 5.0
            after = model({**batch, part: changed}).logits["targets"]
            there = before.isfinite()
            assert not torch.allclose(after[there], before[there]), part
