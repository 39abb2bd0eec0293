"""Linear models: the graph's n-grams are those of the fit; runs that fit themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.features import Features, Tags, WordCharacters, Words
from t2t_torch.layers import ngrams as graph
from t2t_torch.models.linear_crf import LinearCrf
from t2t_torch.text import linear, ngrams
from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder, ClassLabelEncoder, TokenEncoder

ALPHABET = "aAbB1 9.,é\u0301Ж中😀\u2003-'_ \n"
BUCKETS = 2**12


def random_texts(count, seed):
    draw = random.Random(seed)
    return ["".join(draw.choices(ALPHABET, k=draw.randrange(40))) for _ in range(count)]


@pytest.mark.parametrize("encoder", [CharacterEncoder(sorted(set(ALPHABET))), ByteEncoder()])
@pytest.mark.parametrize("texts", [1, 2])
def test_the_graph_has_the_ngrams_of_the_fit(encoder, texts):
    codes = ngrams.codes_of_ids(encoder)
    rows = [encoder.encode_batch(random_texts(30, seed)) for seed in range(texts)]
    ragged = [ngrams.TokenRows.of_lists(one) for one in rows]
    counts = ngrams.count_ngrams(ragged, [codes] * texts, BUCKETS)
    idf = np.random.default_rng(0).uniform(1, 5, BUCKETS).astype(np.float32)
    expected = np.zeros((30, BUCKETS), np.float32)
    weighed = linear.weigh(counts, idf)
    expected[np.repeat(np.arange(30), np.diff(counts.offsets)), counts.columns] = weighed.values
    module, found = graph.TextNGrams(codes), []
    for one in rows:
        lists = [torch.tensor(ids, dtype=torch.int64) for ids in one]
        padded = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        found.append(module(padded, padded != 0))
    columns, values = graph.weigh(graph.columns_of(found, BUCKETS), torch.from_numpy(idf))
    table = torch.zeros(30, BUCKETS).scatter_add(1, columns, values)
    assert table.numpy() == pytest.approx(expected, abs=1e-5)
    if texts == 2:
        overlaps = ngrams.overlaps(ragged, [codes] * 2)
        assert graph.overlaps(found).numpy() == pytest.approx(overlaps, abs=1e-5)


def reviews(count, seed):
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(["bad", "good"])
        word = {"bad": ["awful", "dull"], "good": ["great", "fine"]}[label]
        made.append({"text": f"a {draw.choice(word)} film {draw.randrange(99)}", "label": label})
    return made


def declaration(kind, rows, dev, **more):
    fields = {"inputs": "text", "targets": "label"}
    return {
        "problem": kind,
        "kind": kind,
        "files": {"train": rows, "eval": dev},
        "fields": fields,
        **more,
    }


def test_a_run_fits_itself_stops_and_is_the_same_again(tmp_path):
    content = declaration("text2class", reviews(60, 0), reviews(20, 1))
    for name in ("one", "two"):
        places = {"data_dir": tmp_path / "data", "output_dir": tmp_path / name}
        model = t2t.train(content, "linear", "linear_tiny", **places)
    assert list(model(["a great film", "a dull film"])) == ["good", "bad"]
    one, two = (
        load_file(tmp_path / name / "ckpt-1" / "model.safetensors") for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_words_have_the_same_features_in_words_and_pieces():
    labels = Tags(ClassLabelEncoder(["A", "B"]), "inputs")
    words = Words(TokenEncoder("the Cat sat".split()))
    characters = WordCharacters("inputs", CharacterEncoder(sorted(set("theCatsat"))), 12)
    whole = Features({"inputs": words}, {"targets": labels})
    unknown = Words(TokenEncoder(["<unk>"], replace_oov="<unk>"))
    spelled = Features({"inputs": unknown, "inputs_characters": characters}, {"targets": labels})
    hparams = registry.hparams("linear_crf_tiny")
    found = []
    for features in (whole, spelled):
        batch = {}
        for name, feature in features.inputs.items():
            ids = torch.tensor([feature.encode(["the", "Cat"])])
            batch[name] = ids.view(1, 2, 12) if name != "inputs" else ids
        model = LinearCrf(hparams, features)
        found.append(model.word_features(model.bottom(batch)))
    assert torch.equal(*found)
    assert not torch.equal(found[0][0, 0], found[0][0, 1])


def test_a_crf_learns_from_affixes_and_neighbours(tmp_path):
    draw = random.Random(0)

    def sentence():
        words = [
            draw.choice(["run", "walk", "jump"]) + draw.choice(["ing", "er"]) for _ in range(5)
        ]
        tags = ["V" if word.endswith("ing") else "N" for word in words]
        return {"text": " ".join(words), "label": " ".join(tags)}

    train = [sentence() for _ in range(40)]
    dev = [{"text": "swimming flyer", "label": "V N"}] * 4
    extra = {"features": {"characters": 12}}
    content = declaration("text2tags", train, dev, **extra)
    places = {"data_dir": tmp_path / "data", "output_dir": tmp_path / "run"}
    model = t2t.train(content, "linear_crf", "linear_crf_tiny", **places)
    assert model([["swimming", "flyer"]]) == [["V", "N"]]
