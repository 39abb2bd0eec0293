"""Vectors of fastText's models are those that fastText gives; see make_fasttext.py."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from t2t_torch.errors import DataError
from t2t_torch.text import vectors
from t2t_torch.text.vectors import read_vectors, width_of_vectors

GOLDEN = Path(__file__).parent / "fasttext"
GIVEN = json.loads((GOLDEN / "vectors.json").read_text("utf-8"))["vectors"]
MODELS = sorted({name for name, *_ in GIVEN})
_AFTER_SETTINGS = 8 + 12 * 4 + 8  # magic and version, numbers, t


def expected_of(model):
    """By word, what fastText gives; zeros where it has nothing."""
    return {word: numbers for name, word, *numbers in GIVEN if name == model}


@pytest.fixture
def changed(tmp_path):
    """Writes a model of which some bytes are others."""

    def write(at, content, name="skipgram.bin"):
        whole = bytearray((GOLDEN / name).read_bytes())
        whole[at : at + len(content)] = content
        (tmp_path / "changed.bin").write_bytes(whole)
        return tmp_path / "changed.bin"

    return write


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("chunk", [16, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_vectors_are_those_of_fasttext(model, chunk, packed, monkeypatch, tmp_path):
    monkeypatch.setattr(vectors, "_MODEL_CHUNK", chunk)
    path = GOLDEN / f"{model}.bin"
    if packed:
        (tmp_path / "packed").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "packed"
    expected = expected_of(model)
    found = read_vectors(path, list(expected))
    assert found.width == width_of_vectors(path) == 4
    assert found.in_file == 12
    nothing = {word for word, numbers in expected.items() if not any(numbers)}
    assert found.rows.keys() == expected.keys() - nothing
    for word, row in found.rows.items():
        np.testing.assert_allclose(found.values[row], expected[word], rtol=1e-5, atol=1e-7)
    assert bool(nothing) is (model != "skipgram"), "only that one has pieces of words"


def test_a_word_that_was_not_seen_has_the_vector_of_its_pieces_unless_it_was_in_small_letters():
    path = GOLDEN / "skipgram.bin"
    found = read_vectors(path, ["the", "cats", "Mat", "mat", "\ud800"])
    assert list(found.rows) == ["the", "cats", "mat", "\ud800"]
    assert found.composed == 2


def test_a_model_of_version_11_that_classifies_reads_no_pieces(changed):
    new = struct.pack("<i", 4)  # maxn, which such models have and do not read
    given = ["the", "cats"]
    path = changed(8 + 10 * 4, new, "supervised.bin")
    assert read_vectors(path, given).composed == 1
    path.write_bytes(path.read_bytes()[:4] + struct.pack("<i", 11) + path.read_bytes()[8:])
    assert read_vectors(path, given).composed == 0


@pytest.mark.parametrize(
    ("at", "content", "told"),
    [
        (4, struct.pack("<i", 13), "of format 13, where 11 or 12"),
        (8, struct.pack("<i", 0), "vectors would have 0 numbers"),
        (_AFTER_SETTINGS, struct.pack("<i", 10**6), "it ends too early"),
        (_AFTER_SETTINGS + 4, struct.pack("<i", 0), "it would have 0 words"),
        (_AFTER_SETTINGS + 20, struct.pack("<q", 0), "some of its vectors were left out"),
        (8 + 8 * 4, struct.pack("<i", 10**6), "it has 52 vectors of 4 numbers"),
    ],
)
def test_what_is_wrong_with_a_model_is_told(at, content, told, changed):
    with pytest.raises(DataError, match=told):
        read_vectors(changed(at, content), ["the"])


def test_a_model_that_ends_too_early_is_told(tmp_path):
    whole = (GOLDEN / "skipgram.bin").read_bytes()
    for end in range(4, 12 * 4 * 4, 7):
        (tmp_path / "cut.bin").write_bytes(whole[:end])
        with pytest.raises(DataError, match="damaged fastText model: it ends"):
            read_vectors(tmp_path / "cut.bin", ["the", "on", "zzz"])


def test_a_quantized_model_is_refused():
    with pytest.raises(DataError, match=r"is a quantized fastText model \(.ftz\).*\.bin or \.vec"):
        read_vectors(GOLDEN / "quantized.ftz", ["the"])
