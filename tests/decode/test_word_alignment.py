"""Each word of an output is aligned with the word of the input that it attends to most."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.decode.files import decode_file
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.word_alignment import Aligner, Attends
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.layers.attention import CrossAttention
from t2t_torch.model import T2TModel
from t2t_torch.runtime.prediction import Hypothesis, Prediction
from t2t_torch.text.encoder import IntegerEncoder

ALIGNED = "extra_length=4,beam_size=2,return_beams=true,write_alignments=true"
NAMES = ("inputs", "targets")


def text() -> Text:
    return Text(IntegerEncoder(12))


def model(name: str, hparams: str, changes: str = "") -> T2TModel:
    torch.manual_seed(3)
    features = Features({"inputs": text()}, {"targets": text()})
    found = registry.hparams(hparams)
    return registry.model(name)(found.parse(changes, "test"), features).eval()


TRANSFORMER = ("transformer", "transformer_test", "num_hidden_layers=3")
LSTM = ("lstm_seq2seq_attention", "lstm_seq2seq_attention_tiny", "hidden_size=16")


def layers_of(network: T2TModel) -> list[torch.nn.Module]:
    return [module for module in network.modules() if isinstance(module, Attends)]


@pytest.mark.parametrize(
    ("read", "expected"), [(False, ((2, 0), (0, 1))), (True, ((0, 0), (1, 1)))]
)
def test_attention_that_is_known_gives_its_alignment(monkeypatch, read, expected) -> None:
    network = model(*TRANSFORMER)
    # At 0 nothing was read and the first token is written; at 2 the last was read, the end written.
    known = torch.tensor([[0.1, 0.0, 0.6, 0.3], [0.6, 0.0, 0.1, 0.3], [0.0, 0.5, 0.1, 0.4]])
    monkeypatch.setattr(CrossAttention, "attention_of", lambda self, *_: known[None, None])
    source = text().encode("5 6 7")
    prediction = Prediction.of_texts(
        "targets", (Hypothesis("7 5", tuple(text().encode("7 5")[:-1]), -1.0),)
    )
    aligner = Aligner(network, text(), text(), NAMES, read=read)
    (found,) = aligner.align([source], [prediction])
    assert found.hypotheses[0].alignment == expected
    assert found.hypotheses[0].ids == prediction.hypotheses[0].ids


@pytest.mark.parametrize(
    ("settings", "chosen"), [((0, False), 1), ((0, True), 1), ((1, False), 0), ((3, True), 2)]
)
def test_the_layer_that_is_asked_is_asked(settings: tuple[int, bool], chosen: int) -> None:
    network = model(*TRANSFORMER)
    asked = Aligner(network, text(), text(), NAMES, settings[0], read=settings[1])._layers
    assert asked == [layers_of(network)[chosen]]


@pytest.mark.parametrize("which", [TRANSFORMER, LSTM], ids=["transformer", "lstm"])
def test_the_weights_are_those_that_the_values_are_mixed_with(which) -> None:
    network = model(*which)
    (layer, *_) = layers_of(network)
    seen: list[Tensor] = []
    layer.register_forward_pre_hook(lambda module, args: seen.append(module.attention_of(*args)))
    batch = {
        "inputs": torch.tensor([[5, 6, 7, 1], [8, 1, 0, 0]]),
        "targets": torch.tensor([[4, 1]] * 2),
    }
    network.body(network.bottom(batch))
    weights = torch.cat(seen, 2)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert weights.shape[2:] == (2, 4)
    assert not weights[1, :, :, 2:].any()  # of padding


@pytest.mark.parametrize("which", [TRANSFORMER, LSTM], ids=["transformer", "lstm"])
def test_an_alignment_does_not_depend_on_the_batch(which) -> None:
    network = model(*which)
    texts, ends = ["5 6 7", "8", "1 2 3 4 5"], ["7 5", "3 3 3 3", ""]
    inputs = [text().encode(one) for one in texts]
    found = [
        Prediction.of_texts("targets", (Hypothesis(one, tuple(text().encode(one)[:-1]), 0.0),))
        for one in ends
    ]
    aligner = Aligner(network, text(), text(), NAMES)
    together = aligner.align(inputs, found)
    alone = [aligner.align([ids], [one])[0] for ids, one in zip(inputs, found, strict=True)]
    assert together == alone
    assert [len(one.hypotheses[0].alignment) for one in together] == [2, 4, 0]
    ensemble = Aligner(Ensemble([network, network]), text(), text(), NAMES)
    assert ensemble.align(inputs, found) == together


def test_pieces_of_words_are_counted_as_their_words(run_dir: Path) -> None:
    predictor = load(run_dir, device="cpu")  # of bytes
    hparams = parse_decode_hparams(f"{ALIGNED},output_format=jsonl")
    texts = ["May 1", "", "June  22 2020"]
    for text, found in zip(texts, predictor.predict(texts, hparams), strict=True):
        for hypothesis in found.hypotheses:
            words = len(hypothesis.text.split()) if text.split() else 0
            assert [j for _, j in hypothesis.alignment] == list(range(words))


@pytest.mark.parametrize("form", ["jsonl", "tsv"])
def test_alignments_are_written(predictor: Predictor, tmp_path: Path, form: str) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("1 2 3\n4\n\n")
    hparams = parse_decode_hparams(f"{ALIGNED},output_format={form}")
    predictions = decode_file(predictor, source, target, hparams).predictions
    assert predictions[0].hypotheses[1].alignment
    if form == "jsonl":
        records = [
            json.loads(line)["output"]["targets"] for line in target.read_text().splitlines()
        ]
        told = [[one["alignment"] for one in record["hypotheses"]] for record in records]
        assert told == [
            [[list(pair) for pair in one.alignment] for one in found.hypotheses]
            for found in predictions
        ]
        assert told[2] == [[], []]  # there are no words
        return
    header, *rows = [line.split("\t") for line in target.read_text().splitlines()]
    assert header[3] == "targets_alignment" and header[6] == "targets_alignment_2"
    best = predictions[0].hypotheses[0].alignment
    assert rows[0][3] == " ".join(f"{i}-{j}" for i, j in best)


def test_what_attends_to_no_input_is_refused(language_model: Predictor) -> None:
    hparams = parse_decode_hparams("write_alignments=true,output_format=jsonl")
    with pytest.raises(HParamsError, match="a language model continues its input"):
        language_model.predict(["1"], hparams)
    plain = model("lstm_seq2seq", "lstm_seq2seq_tiny")
    with pytest.raises(HParamsError, match="a LSTMSeq2seq does not attend to its inputs"):
        Aligner(plain, text(), text(), NAMES)
    with pytest.raises(HParamsError, match="alignment_layer=4: a Transformer of 3 layers"):
        Aligner(model(*TRANSFORMER), text(), text(), NAMES, 4)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("write_alignments=true", "output_format=text does not read write_alignments"),
        ("alignment_layer=2", "write_alignments=false does not read alignment_layer"),
        ("alignment_step=read", "write_alignments=false does not read alignment_step"),
    ],
)
def test_settings_that_do_nothing_are_refused(settings: str, told: str) -> None:
    with pytest.raises(HParamsError, match=told):
        parse_decode_hparams(settings)
