"""Features: what each kind of value becomes, and becomes again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.errors import DataError, UsageError
from t2t_torch.features import (
    IGNORED,
    UNKNOWN,
    Choice,
    ClassLabel,
    Feature,
    Features,
    Gazetteer,
    GazetteerWeights,
    Image,
    MultiLabel,
    Real,
    RowWeight,
    SoftLabel,
    Span,
    Tags,
    Text,
    Turns,
    WordCharacters,
    Words,
    WordShape,
    WordStarts,
)
from t2t_torch.features.feature import count_positions
from t2t_torch.features.text import words_of
from t2t_torch.features.word import Shape, shape_of
from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder, ClassLabelEncoder, TokenEncoder

LABELS = ClassLabelEncoder(["x", "y", "z"])
BYTES = Words(ByteEncoder())
WORD = st.text(st.characters(exclude_categories=("Cs",), exclude_characters=" "), min_size=1)


@pytest.mark.parametrize(
    ("feature", "value", "numbers"),
    [
        (ClassLabel(LABELS), "y", [1]),
        (MultiLabel(LABELS), ["x", "z"], [1, 0, 1]),
        (MultiLabel(LABELS), [], [0, 0, 0]),
        (SoftLabel(LABELS), {"x": 0.25, "y": 0.75, "z": 0.0}, [0.25, 0.75, 0.0]),
        (Choice(("positive", "negative")), "negative", [1]),
        (Tags(LABELS), ["x", "x", "z"], [0, 0, 2]),
        (Real(2), [1.5, -2.0], [1.5, -2.0]),
        (Real(1, (3.0,), (2.0,)), [7.0], [2.0]),
        (RowWeight(), 0.5, [0.5]),
        (Span(), (2, 4), [2, 4]),
        (Span(), None, [-1, -1]),
        (Turns(ByteEncoder()), ["a", "", "b"], [99, 1, 1, 100, 1]),
        (BYTES, ["a", "b"], [99, 34, 100]),
    ],
)
def test_a_value_becomes_numbers_and_a_value_again(feature: Feature, value, numbers) -> None:
    assert list(feature.encode(value)) == numbers
    assert [list(row) for row in feature.encode_batch([value, value])] == [numbers] * 2
    assert feature.decode(np.array(numbers)) == value


@pytest.mark.parametrize(
    ("feature", "value", "complaint"),
    [
        (ClassLabel(LABELS), "w", "'w' is no label"),
        (MultiLabel(LABELS), "xy", "one label, where a list"),
        (MultiLabel(LABELS), ["w"], "no label"),
        (SoftLabel(LABELS), {"x": 0.5}, "no distribution"),
        (SoftLabel(LABELS), [0.5, 0.5], "no distribution"),
        (SoftLabel(LABELS), [1.5, -0.5, 0.0], "no distribution"),
        (Choice(("a", "b")), "c", "no candidate"),
        (Tags(LABELS), [], "no labels"),
        (Real(2), [1.0], "1 numbers; 2 were expected"),
        (Real(), "many", "no number"),
        (Real(), float("nan"), "not finite"),
        (Real(), 1e39, "not finite as a 32-bit float"),
        (Real(), 10**400, "no number"),
        (Real(1, (0.0,), (0.1,)), 1e38, "no 32-bit float any more"),
        (RowWeight(), 1e39, "not finite"),
        (RowWeight(), -1, "no weight"),
        (Span(), (3, 2), "no span"),
        (Turns(ByteEncoder()), "one", "one text"),
        (BYTES, ["a b"], "no word"),
        (BYTES, ["a", ""], "no word"),
        (Image(2, 2, 1), np.zeros((3, 2, 1), np.uint8), "expected \\(2, 2, 1\\)"),
        (Image(2, 2, 3), np.zeros((2, 2), np.uint8), "without channels"),
        (Image(2, 2, 1), np.zeros((2, 2, 1)), "float64"),
        (Gazetteer("inputs", LABELS), ["x"], "no mapping"),
        (Gazetteer("inputs", LABELS), [{"x": 1e39}], "not finite"),
    ],
)
def test_what_is_no_value_of_its_kind_is_refused(feature: Feature, value, complaint) -> None:
    with pytest.raises(DataError, match=complaint):
        feature.encode(value)


def test_a_label_that_only_evaluation_data_has_is_unknown() -> None:
    assert ClassLabel(LABELS, allow_unknown=True).encode("w") == [UNKNOWN]
    assert ClassLabel(LABELS, allow_unknown=True).decode([UNKNOWN]) is None
    assert Tags(LABELS, allow_unknown=True).encode(["x", "w"]) == [0, UNKNOWN]
    assert Tags(LABELS).decode([0, UNKNOWN, IGNORED]) == ["x", None]
    assert MultiLabel(LABELS, allow_unknown=True).encode(["w", "x"]) == [1, 0, 0]


def test_only_the_last_turns_are_kept() -> None:
    turns = Turns(ByteEncoder(), max_turns=2)
    assert turns.decode(turns.encode(["a", "b", "c"])) == ["b", "c"]


@given(st.lists(WORD, min_size=1, max_size=6))
def test_words_read_back_and_each_starts_where_the_note_says(words: list[str]) -> None:
    ids = BYTES.encode(words)
    starts = WordStarts("inputs", BYTES).encode(words)
    assert BYTES.decode(ids) == words
    assert len(starts) == len(words) and starts[0] == 0
    pieces = np.split(np.array(ids), starts[1:])
    encoded = [("" if i == 0 else " ") + word for i, word in enumerate(words)]
    assert [ByteEncoder().decode(piece) for piece in pieces] == encoded


def test_a_vocabulary_of_words_gives_each_word_one_id_whatever_is_in_it() -> None:
    words = Words(TokenEncoder(["<UNK>", "a\u00a0b", "c"], replace_oov="<UNK>"))
    assert words.encode(["c", "a\u00a0b", "d"]) == [4, 3, 2]


def test_characters_are_cut_and_filled_up_to_a_width() -> None:
    feature = WordCharacters("inputs", CharacterEncoder("abc"), width=2)
    assert feature.encode(["abc", "c", "?"]) == [3, 4, 5, 0, 2, 0]
    assert count_positions(feature, np.array([6])) == [3]
    assert feature.decode([3, 4, 5, 0, 0, 0]) == ["ab", "c"]


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        ("cat", Shape.LOWER),
        ("NATO", Shape.UPPER),
        ("I", Shape.CAPITALIZED),
        ("Paris", Shape.CAPITALIZED),
        ("iPhone", Shape.MIXED),
        ("1999", Shape.NUMBER),
        ("A4", Shape.WITH_DIGIT),
        ("--", Shape.OTHER),
        ("猫", Shape.MIXED),
    ],
)
def test_the_shape_of_a_word(word: str, shape: Shape) -> None:
    assert shape_of(word) is shape
    assert WordShape("inputs").decode([int(shape), 0]) == [shape.name]


def test_a_word_has_the_gazetteer_entries_of_greatest_weight() -> None:
    value = [{"x": 0.1, "z": 0.9, "y": 0.5, "unheard": 2.0}, {}]
    assert Gazetteer("inputs", LABELS, width=2).encode(value) == [3, 2, 0, 0]
    weights = GazetteerWeights("inputs", LABELS, width=2)
    assert weights.encode(value) == [0.9, 0.5, 0.0, 0.0]
    assert Gazetteer("inputs", LABELS, width=2).decode([3, 2, 0, 0]) == [["z", "y"], []]


def test_a_picture_is_stored_as_bytes() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    feature = Image(2, 2)
    assert np.array_equal(feature.decode(feature.encode(pixels)), pixels)
    assert np.array_equal(Image(2, 2, 1).encode(pixels[..., 0]), pixels[..., 0].reshape(-1))


def test_only_texts_can_be_exchanged() -> None:
    text = Text(ByteEncoder())
    with pytest.raises(UsageError, match="ClassLabel"):
        Features({"inputs": text}, {"targets": ClassLabel(LABELS)}).reversed()
    noted = Features({"inputs": text}, {"targets": text}, notes={"weight": RowWeight()})
    with pytest.raises(UsageError, match="Name the problem without"):
        noted.reversed()


def test_a_feature_says_where_it_comes_from_and_what_it_is() -> None:
    features = Features(
        {"inputs": BYTES, "inputs_shape": WordShape("inputs")},
        {"targets": Tags(LABELS)},
        notes={"inputs_starts": WordStarts("inputs", BYTES)},
    )
    assert features.sources == {
        "inputs": "inputs",
        "inputs_shape": "inputs",
        "targets": "targets",
        "inputs_starts": "inputs",
    }
    assert [features.role(name) for name in features.all] == [
        "inputs",
        "inputs",
        "targets",
        "notes",
    ]


def test_the_largest_32_bit_float_is_a_number() -> None:
    largest = float(np.finfo(np.float32).max)
    assert np.isfinite(np.float32(Real().encode(-largest))).all()


def test_a_string_is_cut_into_words_where_files_are() -> None:
    words = words_of(" 10\u00a0000 a\u2028b\tc  d\n")
    assert words == ["10\u00a0000", "a\u2028b", "c", "d"]
    assert words_of(" ") == []
