from __future__ import annotations

import pytest

from t2t_torch.features import Features, Text, WordCharacters, Words
from t2t_torch.features.text import TreeFeature
from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder, TokenEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tree import TransitionEncoder

WORDS = TokenEncoder(["<UNK>", "the", "cat"], replace_oov="<UNK>")


def unknowns(statistics_of, features, *texts):
    statistics = statistics_of(features, train=[{"inputs": text} for text in texts])
    return statistics.features[0].splits["train"].unknowns


def test_unknown_words_are_counted(statistics_of):
    found = unknowns(statistics_of, Features({"inputs": Text(WORDS)}, {}), "the cat", "the dog ran")
    assert (found.noun, found.tokens, found.unknown) == ("unknown words", 5, 2)
    assert found.share == pytest.approx(0.4)
    assert (found.rows, found.first_row, found.used) == (1, 1, 4)
    assert found.most_frequent == (), "what they are is not stored"


def test_unknown_words_are_spelt_where_their_characters_are_stored(statistics_of):
    features = Features(
        {"inputs": Words(WORDS), "letters": WordCharacters("inputs", ByteEncoder(), width=4)}, {}
    )
    texts = ["the", "dog"], ["rhinoceros", "cat"], ["dog", "dog"]
    found = unknowns(statistics_of, features, *texts)
    assert found.most_frequent == (("dog", 3), ("rhin", 1))


def test_characters_without_a_piece_are_told(statistics_of, tmp_path):
    texts = ["a cat sat on a mat and ate"] * 200
    encoder = SubwordEncoder.train(texts, 300, tmp_path / "vocab")
    found = unknowns(statistics_of, Features({"inputs": Text(encoder)}, {}), *texts, "a 猫 a 猫é")
    assert found.noun == "byte fallback"
    assert found.most_frequent == (("猫", 2), ("é", 1))
    assert (found.unknown, found.rows, found.first_row) == (3 + 3 + 2, 1, 200)


def test_unknown_characters_are_counted(statistics_of):
    text = Text(CharacterEncoder("abc"))
    found = unknowns(statistics_of, Features({"inputs": text}, {}), "abx", "z")
    assert (found.noun, found.unknown, found.rows) == ("unknown characters", 2, 2)


def test_unknown_labels_of_trees_are_counted(statistics_of):
    feature = TreeFeature(TransitionEncoder(["S"]))
    found = unknowns(statistics_of, Features({"inputs": feature}, {}), "(S (X a) b)", "(S a)")
    assert (found.noun, found.unknown, found.rows) == ("unknown labels", 1, 1)


def test_nothing_is_unknown_to_bytes(statistics_of):
    found = unknowns(statistics_of, Features({"inputs": Text(ByteEncoder())}, {}), "né")
    assert (found.unknown, found.tokens, found.first_row) == (0, 3, -1)
