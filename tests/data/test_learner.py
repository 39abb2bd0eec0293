"""What is learnt from training samples."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from t2t_torch.data.vocabulary_builder import (
    CharacterVocabularyBuilder,
    LabelVocabularyBuilder,
    MomentsBuilder,
    SubwordVocabularyBuilder,
    WordVocabularyBuilder,
    learn,
    load_moments,
)
from t2t_torch.errors import DataError
from t2t_torch.text.encoder import CharacterEncoder, ClassLabelEncoder, TokenEncoder
from t2t_torch.text.subword import SubwordEncoder

SAMPLES = [
    {"text": "the cat sat", "label": "b", "dense": [1.0, 5.0]},
    {"text": "the dog the cat", "label": "a", "dense": [4.0, 5.0]},
    {"text": "<UNK> dog <pad>", "label": "b", "dense": [-2.0, 5.0]},
]


def words(sample):
    return sample["text"].split()


def texts(sample):
    return [sample["text"]]


def labels(sample):
    return [sample["label"]]


def test_all_is_learnt_in_one_pass(tmp_path: Path) -> None:
    passes = []

    def samples():
        passes.append(1)
        yield from SAMPLES

    learners = [
        SubwordVocabularyBuilder("subwords", texts, 280, None, seed=1),
        WordVocabularyBuilder("words", words, 6),
        CharacterVocabularyBuilder("symbols", texts),
        LabelVocabularyBuilder("labels", labels),
        MomentsBuilder("moments", "dense"),
    ]
    learn(learners, samples(), tmp_path)
    assert passes == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "labels",
        "moments",
        "subwords",
        "symbols",
        "words",
    ]
    subwords = SubwordEncoder.load(tmp_path / "subwords")
    assert subwords.decode(subwords.encode("a cat")) == "a cat"
    assert ClassLabelEncoder.load(tmp_path / "labels").labels == ("a", "b")
    characters = CharacterEncoder.load(tmp_path / "symbols")
    assert characters.decode(characters.encode("dog?")) == "dog\ufffd"
    mean, std = load_moments(tmp_path / "moments")
    assert mean == pytest.approx([1.0, 5.0])
    assert std == pytest.approx([statistics.pstdev([1, 4, -2]), 1.0])


def test_the_most_frequent_words_are_kept_and_reserved_ones_are_none(tmp_path: Path) -> None:
    learn([WordVocabularyBuilder("words", words, 6)], iter(SAMPLES), tmp_path)
    lines = (tmp_path / "words").read_text().split()
    assert lines == ["<pad>", "<EOS>", "<UNK>", "the", "cat", "dog"]
    encoder = TokenEncoder.load(tmp_path / "words", replace_oov="<UNK>")
    assert encoder.encode("the sat <pad>") == [3, 2, 2]


def test_rare_words_can_be_left_out(tmp_path: Path) -> None:
    learn([WordVocabularyBuilder("words", words, 99, min_count=3)], iter(SAMPLES), tmp_path)
    assert (tmp_path / "words").read_text().split()[3:] == ["the"]


@pytest.mark.parametrize(
    "learner",
    [
        WordVocabularyBuilder("x", words, 9),
        LabelVocabularyBuilder("x", labels),
        MomentsBuilder("x", "dense"),
        SubwordVocabularyBuilder("x", texts, 300, None, seed=0),
    ],
)
def test_nothing_is_learnt_from_nothing(learner, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        learn([learner], iter([]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_numbers_that_are_none_or_not_as_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 numbers after 1"):
        learn([MomentsBuilder("x", "d")], iter([{"d": [1]}, {"d": [1, 2]}]), tmp_path)
    with pytest.raises(DataError, match="no number"):
        learn([MomentsBuilder("x", "d")], iter([{"d": ["?"]}]), tmp_path)


def test_a_label_with_a_line_break_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line break"):
        learn([LabelVocabularyBuilder("x", labels)], iter([{"label": "a\nb"}]), tmp_path)


def test_words_with_joiners_and_odd_spaces_are_learnt_as_they_are(tmp_path: Path) -> None:
    kept = ["می‌روم", "क्‍ष", "10\u00a0000", "co\u00adop", "a\u2028b", "\rx", "\u0085"]
    left_out = ["a\nb", "a\r", "\ud800"]
    learner = WordVocabularyBuilder("vocab", lambda sample: sample["words"], 100)
    learn([learner], iter([{"words": [*kept, *left_out]}]), tmp_path)
    encoder = TokenEncoder.load(tmp_path / "vocab", replace_oov="<UNK>")
    ids = [i for (i,) in encoder.encode_words([*kept, *left_out])]
    assert len(set(ids)) == len(kept) + 1
    assert [encoder.decode([i]) for i in ids] == [*kept, "<UNK>", "<UNK>", "<UNK>"]


@pytest.mark.parametrize("label", ["a\r", "\udfff"])
def test_a_label_that_a_file_cannot_hold_is_refused(label: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Take it out"):
        learn([LabelVocabularyBuilder("x", labels)], iter([{"label": label}]), tmp_path)
