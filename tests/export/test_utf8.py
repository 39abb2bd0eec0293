"""Characters as bytes and numbers in a graph, and bytes as text: as Python has it."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_torch.export.graph import Graph
from t2t_torch.export.strings import NONE, characters, characters_with, code_points, texts_of, utf8


def asked(make, dtype, shape, made_dtype, made_shape):
    """What a graph of one function answers."""
    graph = Graph()
    made = make(graph.input("given", dtype, shape))
    graph.output("made", made, made_dtype, made_shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        graph.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda values: session.run(None, {"given": values})[0]


@pytest.fixture(scope="module")
def texts():
    decode = asked(texts_of, "int64", ["b", "t"], "string", ["b"])

    def decoded(rows):
        width = max(map(len, rows))
        padded = np.full((len(rows), width), NONE)
        for row, octets in zip(padded, rows, strict=True):
            row[: len(octets)] = list(octets)
        return decode(padded).tolist()

    return decoded


def test_every_character_has_its_number():
    number = asked(code_points, "string", ["n"], "int64", ["n"])
    numbers = number(np.array(characters(), object))
    assert numbers.tolist() == [ord(character) for character in characters()]


@pytest.mark.slow
def test_every_number_has_its_character():
    make = asked(characters_with, "int64", ["n"], "string", ["n"])
    numbers = np.array([ord(character) for character in characters()])
    assert make(numbers).tolist() == list(characters())
    assert make(numbers[:0]).tolist() == []


def test_bytes_are_those_of_utf8():
    letters = ["a", "", "\x00", "\x7f", "\x80", "é", "\u07ff", "\u0800", "漢", "\uffff", "😀"]
    made = asked(utf8, "string", ["n"], "int64", ["n", 4])(np.array(letters, object))
    assert made.shape == (len(letters), 4)
    assert [[i for i in row if i != NONE] for row in made.tolist()] == [
        list(letter.encode()) for letter in letters
    ]


# First and last of each kind of byte in Unicode 15.0, table 3-7, and a letter.
_BOUNDS = "00 41 7F 80 8F 90 9F A0 BF C0 C1 C2 DF E0 E1 EC ED EE EF F0 F1 F3 F4 F5 FF".split()
BOUNDS = [int(bound, 16) for bound in _BOUNDS]


def test_what_is_no_utf8_is_replaced_as_in_python(texts):
    rows = [bytes(octets) for n in range(4) for octets in itertools.product(BOUNDS, repeat=n)]
    rows += [b"\xf0" + row for row in rows] + [b"\xf4" + row + b"\x80" for row in rows]
    assert texts(rows) == [row.decode(errors="replace") for row in rows]


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=12),
            st.lists(st.sampled_from(BOUNDS), max_size=12).map(bytes),
            st.text(max_size=6).map(lambda text: text.encode(errors="surrogatepass")),
        ),
        min_size=1,
        max_size=5,
    )
)
@example([b""])
@example([b"\xe2\x82", b"\xac", b"\xf0\x9f\x98", b"\x80"])
def test_any_bytes_are_decoded_as_in_python_whatever_stands_in_the_next_row(texts, rows):
    assert texts(rows) == [row.decode(errors="replace") for row in rows]


def test_what_is_no_byte_is_passed_over(texts):
    assert texts([[NONE, 0xC3, NONE, NONE, 0xA9], [0xC3, NONE, 0x41]]) == ["é", "\ufffdA"]
