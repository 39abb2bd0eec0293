"""Rows of labels, of marks, and of tables that several texts share, in warm starts."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from t2t_torch import registry
from t2t_torch.features import ClassLabel, Features, Tags, Text
from t2t_torch.model import T2TModel
from t2t_torch.run import vocabulary_rows
from t2t_torch.run.warm_start import warm_start
from t2t_torch.text.encoder import ClassLabelEncoder, TokenEncoder

WORDS = TokenEncoder([f"word{number}" for number in range(20)])


def model_of(features, name="transformer_encoder", **hparams):
    known = registry.hparams({"transformer": "transformer_test"}.get(name, f"{name}_tiny"))
    return registry.model(name)(known.replace(**hparams), features).eval()


def of_labels(kind, labels):
    return Features({"inputs": Text(WORDS)}, {"targets": kind(ClassLabelEncoder(labels))})


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts a model with the weights of another one; returns the report."""

    def made(model, source):
        monkeypatch.setattr(vocabulary_rows, "_source_features", lambda path: source.features)
        state = {name: one.contiguous().clone() for name, one in source.state_dict().items()}
        save_file(state, tmp_path / "model.safetensors")
        return warm_start(model, tmp_path / "model.safetensors")

    return made


def test_the_rows_of_labels_are_matched_by_name(started):
    old = model_of(of_labels(ClassLabel, ["bad", "fine", "good"]))
    new = model_of(of_labels(ClassLabel, ["good", "great", "bad"]))
    drawn = new.modality("targets").top.weight[1].clone()
    report = started(new, old)
    rows, known = (one.modality("targets").top.weight for one in (new, old))
    assert rows[0].equal(known[2])
    assert rows[2].equal(known[0])
    assert rows[1].equal(drawn)
    counts = dict(report.by_token)
    assert counts["modalities.targets.top.weight"] == "2 by label, 1 new, 1 dropped"
    assert counts["modalities.targets.top.bias"] == "2 by label, 1 new, 1 dropped"


def test_further_labels_keep_the_others(started):
    old = model_of(of_labels(ClassLabel, ["bad", "good"]))
    new = model_of(of_labels(ClassLabel, ["bad", "fine", "good"]))
    report = started(new, old)
    assert new.modality("targets").top.bias[[0, 2]].equal(old.modality("targets").top.bias)
    assert not report.mismatched


def test_equal_labels_are_loaded_as_they_are(started):
    old, new = (model_of(of_labels(ClassLabel, ["bad", "good"])) for _ in range(2))
    assert not started(new, old).by_token
    assert new.modality("targets").top.weight.equal(old.modality("targets").top.weight)


def test_a_chain_of_tags_is_matched_by_name(started):
    old, new = (
        model_of(of_labels(Tags, labels), tag_decoder="crf")
        for labels in (["O", "A", "B"], ["B", "O", "C"])
    )
    started(new, old)
    rows, known = (one.modality("targets").crf for one in (new, old))
    assert rows.follow[1, 0] == known.follow[0, 2]
    assert rows.follow[0, 0] == known.follow[2, 2]
    assert rows.start[:2].equal(known.start[[2, 0]])


def test_marks_stay_marks_when_words_are_added(started):
    def of(words):
        text = Text(TokenEncoder(words), num_marks=7)
        return Features({"inputs": text}, {"targets": text})

    words = list(WORDS.tokens[3:])
    old, new = (
        model_of(of(some), "transformer", vocab_divisor=1) for some in (words, ["x", *words])
    )
    report = started(new, old)
    rows, known = (one.modality("inputs").bottom.weight for one in (new, old))
    assert rows[-7:].equal(known[-7:])
    assert all("7 after them" in counts for _, counts in report.by_token)


def test_a_table_of_the_user_is_of_the_vocabulary_that_fits_it(started):
    """It is not shared: of two vocabularies that have changed its size tells which one it is of."""

    class Own(T2TModel):
        name = "own"
        HParams = registry.model("transformer").HParams
        produces = (Text,)

        def __init__(self, hparams, features):
            super().__init__(hparams, features)
            self.table = torch.nn.Embedding(features.inputs["inputs"].vocab_size, 3)

        def body(self, features):
            raise NotImplementedError

    words = list(WORDS.tokens[3:])
    old, new = (
        Own(
            registry.hparams("transformer_test").replace(
                shared_embedding_and_softmax_weights=False
            ),
            Features(
                {"inputs": Text(TokenEncoder([*words, *more]))},
                {"targets": Text(TokenEncoder(["y", *more, *words[:9]]))},
            ),
        )
        for more in ([], ["x"])
    )
    report = started(new, old)
    assert new.table.weight[:-1].equal(old.table.weight)
    assert "share" not in report.warning


def test_a_table_of_texts_that_changed_differently_is_warned_of(started):
    def of(words):
        return Features({"inputs": Text(WORDS)}, {"targets": Text(TokenEncoder(words))})

    words = [f"target{number}" for number in range(20)]
    old, new = (model_of(of(some), "transformer") for some in (words, words[::-1]))
    report = started(new, old)
    assert "several texts share it" in report.warning
