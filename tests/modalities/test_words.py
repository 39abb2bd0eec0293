"""What is known of words becomes their vectors, concatenated to their own."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.errors import DataError, HParamsError
from t2t_torch.features import (
    Features,
    Gazetteer,
    GazetteerWeights,
    Tags,
    WordCharacters,
    WordReal,
    Words,
    WordShape,
)
from t2t_torch.hparam_groups import TokenHParams
from t2t_torch.layers.tokens import ModelInput, Tokens
from t2t_torch.modalities.build import build_modalities
from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder, ClassLabelEncoder, TokenEncoder

LISTS = ClassLabelEncoder(["city", "name", "river"])
WORDS = Words(TokenEncoder(["<UNK>", "Po", "near", "Paris"], replace_oov="<UNK>"))
FEATURES = Features(
    {
        "inputs": WORDS,
        "inputs_characters": WordCharacters("inputs", CharacterEncoder("Porisnea"), 6),
        "inputs_bytes": WordCharacters("inputs", ByteEncoder(), 8),
        "inputs_shape": WordShape("inputs"),
        "gazetteer": Gazetteer("inputs", LISTS, width=2),
        "word_dense": WordReal("inputs", size=2),
    },
    {"targets": Tags(ClassLabelEncoder(["O"]), "inputs")},
    notes={"gazetteer_weights": GazetteerWeights("inputs", LISTS, width=2)},
)
SENTENCES = [["Po", "near", "Paris"], ["Paris"]]
ENTRIES = [[{"river": 0.5}, {}, {"city": 0.75, "name": 0.25, "river": 0.1}], [{"city": 1.0}]]
NUMBERS = [[[1.0, 2.0], [0.0, 0.0], [-3.0, 0.5]], [[4.0, 5.0]]]
HPARAMS = TokenHParams().replace(
    embedding_size=6,
    character_size=5,
    shape_size=2,
    gazetteer_size=4,
    word_dense_size=3,
    multiply_embedding_mode="none",
)


def batch():
    rows = {}
    for name, feature in FEATURES.all.items():
        if name != "targets":
            values = ENTRIES if "gazetteer" in name else SENTENCES
            values = NUMBERS if name == "word_dense" else values
            flat = [torch.tensor(feature.encode(value)) for value in values]
            shaped = [row.view(-1, *feature.shape[1:]) for row in flat]
            rows[name] = torch.nn.utils.rnn.pad_sequence(shaped, batch_first=True)
    return rows


def bottoms(hparams=HPARAMS):
    torch.manual_seed(0)
    return build_modalities(hparams, FEATURES)


def test_a_words_entries_are_the_mean_of_their_vectors_each_times_its_weight():
    modality = bottoms()["gazetteer"]
    found = modality.embed("gazetteer", batch())
    city, name, river = modality.bottom.weight[1:]
    torch.testing.assert_close(found[0, 0], 0.5 * river)
    assert not found[0, 1].any() and not found[1, 1:].any()
    torch.testing.assert_close(found[0, 2], (0.75 * city + 0.25 * name) / 2)  # two are kept
    torch.testing.assert_close(found[1, 0], city)


def test_a_tokens_vector_is_its_parts_side_by_side():
    modalities, tokens, given = bottoms().eval(), Tokens(FEATURES, HPARAMS, "inputs"), batch()
    embedded = {name: m.embed(name, given) for name, m in modalities.items() if name in given}
    mask = modalities["inputs"].mask(given["inputs"])
    found = tokens(
        {name: ModelInput(given[name], embedded.get(name, given[name]), mask) for name in given}
    )
    assert found.shape == (2, 3, tokens.size) and tokens.size == 6 + 5 + 5 + 2 + 4 + 3
    parts = [embedded[name] for name in FEATURES.inputs]
    torch.testing.assert_close(found[0], torch.cat(parts, -1)[0])
    assert not found[1, 1:].any()


def test_numbers_of_words_are_mapped_and_zeros_stay_zeros():
    modality, given = bottoms()["word_dense"], batch()
    found = modality.embed("word_dense", given)
    torch.testing.assert_close(found[0, 2], modality.bottom.weight @ torch.tensor([-3.0, 0.5]))
    assert not found[0, 1].any() and not found[1, 1:].any()
    feature = FEATURES.inputs["word_dense"]
    assert feature.decode(feature.encode(NUMBERS[0])) == NUMBERS[0]
    with pytest.raises(DataError, match="a word has 1 numbers, where 2 were expected"):
        feature.encode([[1.0]])


def test_what_belongs_to_words_is_no_target():
    shape = Features({"inputs": WORDS}, {"targets": WordShape("inputs")})
    with pytest.raises(HParamsError, match="can be an input, but no target"):
        build_modalities(HPARAMS, shape)
