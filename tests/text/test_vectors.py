"""Files of word vectors in every format give the vectors of the words that are asked for."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from t2t_torch.errors import DataError
from t2t_torch.text import vectors
from t2t_torch.text.vectors import read_vectors, width_of_vectors

WORDS = {"the": [0.5, -1.0, 2.0], "naïve": [1.5, 0.25, -3.0], "Zoo": [0.0, 4.0, 1e-3]}
NUMBERS = np.array(list(WORDS.values()), np.float32)
LINES = [f"{word} {' '.join(map(str, row))}" for word, row in WORDS.items()]


def glove():
    return "\n".join(LINES).encode() + b"\n"


def word2vec_text():
    return b"3 3\n" + " \n".join(LINES).encode() + b" \n"  # as word2vec.c: a space ends a line


def word2vec_binary(after=b"\n"):
    parts = [word.encode() + b" " + np.array(row, "<f4").tobytes() for word, row in WORDS.items()]
    return b"3 3\n" + after.join(parts) + after


def tabbed():
    return glove().replace(b" ", b"\t")


FORMATS = {
    "glove": glove(),
    "word2vec text": word2vec_text(),
    "tabs": tabbed(),
    "windows": glove().replace(b"\n", b"\r\n"),
    "no last line end": glove()[:-1],
    "binary": word2vec_binary(),
    "binary without line ends": word2vec_binary(b""),
}


@pytest.fixture
def file(tmp_path):
    """Writes a file."""

    def write(content: bytes, name="vectors"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def test_the_first_word_may_hold_spaces_where_the_width_is_told(file):
    found = read_vectors(file(b"2 3\nof the 1 2 3\ncat 4 5 6\n"), ["of the", "cat"])
    assert found.rows == {"of the": 0, "cat": 1}
    assert found.values.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no word vectors"),
        (b"\n \n", "has no word vectors"),
        (b"hello\nworld\n", "line 1: no number follows the word"),
        (b"\nflight a b c d\n", "line 2: 'a' is no number"),
    ],
)
def test_a_file_without_numbers_has_no_width(content, message, file):
    with pytest.raises(DataError, match=message):
        width_of_vectors(file(content))


def test_a_line_with_one_number_is_told_as_such(file):
    with pytest.raises(DataError, match="line 1: it has 1 number, not 3"):
        read_vectors(file(b"2 -3\na 1 2 3\n"), ["a"])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_vectors_of_the_words_wanted(name, packed, file):
    path = file(gzip.compress(FORMATS[name]) if packed else FORMATS[name])
    found = read_vectors(path, ["Zoo", "naïve", "absent"])
    assert found.rows.keys() == {"Zoo", "naïve"}
    np.testing.assert_array_equal(found.values[found.rows["Zoo"]], NUMBERS[2])
    np.testing.assert_array_equal(found.values[found.rows["naïve"]], NUMBERS[1])
    assert (found.in_file, found.width, found.duplicates) == (3, 3, 0)
    assert width_of_vectors(path) == 3


def test_a_binary_file_is_read_across_the_borders_of_chunks(file, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((50, 7)).astype("<f4")
    parts = [f"w{i}".encode() + b" " + row.tobytes() + b"\n" for i, row in enumerate(rows)]
    path = file(b"50 7\n" + b"".join(parts))
    monkeypatch.setattr(vectors, "_CHUNK", 64)
    found = read_vectors(path, [f"w{i}" for i in range(50)])
    order = [found.rows[f"w{i}"] for i in range(50)]
    np.testing.assert_array_equal(found.values[order], rows)


def test_of_a_word_that_is_there_twice_the_first_vector_counts(file):
    found = read_vectors(file(glove() + b"the 9 9 9\n"), ["the"])
    np.testing.assert_array_equal(found.values, NUMBERS[:1])
    assert (found.in_file, found.duplicates) == (4, 1)


def test_words_with_spaces_and_words_that_are_no_utf8_are_passed_over(file):
    more = b". . . 1 2 3\n\xff\xfe 1 2 3\n\xe2\x80\x89 1 2 3\n 1 2 3\n"
    found = read_vectors(file(LINES[0].encode() + b"\n" + more + LINES[2].encode()), ["Zoo", "."])
    assert found.rows.keys() == {"Zoo"}
    assert found.in_file == 6


@pytest.mark.parametrize(
    "content",
    [
        b". . . 1 2 3\nof the 4 5 6\ncat 7 8 9\n",
        b"of the 4 5 6\ncat 7 8 9\n",
        b"cat 7 8 9\nof the 4 5 6\nat 1@2.com 1 2 3\n",
        b"1 of 7 0 0 0\nof the 4 5 6\ncat 7 8 9\n42 1 2 3\n",
    ],
)
def test_the_first_words_may_hold_spaces_where_no_width_is_told(content, file):
    path = file(content)
    found = read_vectors(path, ["of the", "cat"])
    vectors = {word: found.values[row].tolist() for word, row in found.rows.items()}
    assert vectors == {"of the": [4.0, 5.0, 6.0], "cat": [7.0, 8.0, 9.0]}
    assert width_of_vectors(path) == found.width == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a 1 2 3\nb 1 2\n", r"line 2: it has 2 numbers, not 3"),
        (b"a 1 2 3 4\nb 1 2 3\n", r"line 2: it has 3 numbers, not 4"),
        (b"a 1 2 3\nb 1 2\nc 1 2 3\n", r"line 2: it has 2 numbers, not 3"),
        (b"a 1 2 3\nthe 1 x 3\n", r"line 2: could not convert.*'x'"),
        (b"a 1 2 3\nthe 1 nan 3\n", r"line 2: a number is not finite"),
        (b"a 1 2 3\n\nb 1 2 3\n", r"line 2: it is empty"),
        (b"2 3\na 1 2 3\nb 1 2 3 4 x 6\n", r"line 3: could not convert"),
        (b"word\n", r"line 1: it has 0 numbers"),
        (b"3 3\nthe 1 2 3\n", r"says that it has 3 vectors, but has 1 up to line 2"),
        (b"", r"has no word vectors"),
        (word2vec_binary()[:-8], r"ends in vector 3 of 3"),
        (b"PK\x03\x04zip", r"is a zip archive. Unpack it first"),
        (gzip.compress(glove() * 1000)[:-20], r"is damaged"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(content, message, file):
    with pytest.raises(DataError, match=message):
        read_vectors(file(content), ["the", "Zoo"])


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.*No such file.*GloVe"):
        read_vectors(tmp_path / "nowhere", ["the"])
