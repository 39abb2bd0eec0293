"""Stored numbers as what an input gives: encoded again they are the same."""

from __future__ import annotations

import numpy as np

from t2t_torch.export.verification import text_of, unusual_values
from t2t_torch.features import (
    Features,
    Gazetteer,
    GazetteerWeights,
    Image,
    WordLabel,
    WordReal,
    Words,
)
from t2t_torch.pipeline.reader import restore
from t2t_torch.problem_types.words import tokens_of
from t2t_torch.text.encoder import ClassLabelEncoder, TokenEncoder

LISTS = ClassLabelEncoder(["city", "name", "river"])
WORDS = Words(TokenEncoder(["<UNK>", "go", "to", "w1w0"], replace_oov="<UNK>"))


def restored(feature, numbers):
    return restore(feature, "own", Features({"own": feature}, {}), {"own": numbers})


def test_entries_numbers_labels_and_pictures_are_encoded_to_what_was_stored():
    ids, weights = Gazetteer("inputs", LISTS, width=2), GazetteerWeights("inputs", LISTS, width=2)
    stored = [[3, 1, 0, 0, 2, 0], np.array([0.75, 0.1, 0, 0, -1, 0], np.float32)]
    features = Features({"ids": ids, "weights": weights}, {})
    value = restore(ids, "ids", features, dict(zip(("ids", "weights"), stored, strict=True)))
    assert [list(entries) for entries in value] == [["river", "city"], [], ["name"]]
    assert ids.encode(value) == stored[0]
    assert np.array_equal(np.array(weights.encode(value), np.float32), stored[1])
    numbers = WordReal("inputs", 2)
    assert numbers.encode(restored(numbers, [0.5, 1.0, -2.0, 0.0])) == [0.5, 1.0, -2.0, 0.0]
    labels = WordLabel("inputs", LISTS)
    assert labels.encode(restored(labels, [1, 0, 3])) == [1, 0, 3]
    picture = Image(1, 2, 1)
    assert picture.encode(restored(picture, [7, 255])).tolist() == [7, 255]


def test_a_text_of_unknown_words_is_cut_into_as_many_and_each_is_another():
    ids = [WORDS.encode(["go"])[0], *WORDS.encode(["x", "y", "to", "z"])]
    text = text_of(WORDS, ids)
    words = [token.text for token in tokens_of(text)]
    assert len(set(words)) == len(ids) == 5
    assert text == " ".join(words) and words[0] == "go" and words[3] == "to"
    assert WORDS.encode(words) == ids  # "w1w0" is a word that is known


def test_what_words_seldom_have_can_be_encoded():
    for kind in (Gazetteer("inputs", LISTS, width=2), WordReal("inputs", 3)):
        assert kind.encode(list(unusual_values(kind).values()))
    label = WordLabel("inputs", LISTS)
    assert label.encode(list(unusual_values(label).values())) == [0]
