"""`decode(encode(s)) == s` for every Unicode string."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.text.encoder import EOS, PAD, ByteEncoder, TextEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

CORPUS = ["the quick brown fox jumps over the lazy dog", "Übung macht den Meister", "x\ty\nz"] * 20
# What a subword encoder could trip over: its mark for spaces, its escape, its own pieces' names.
HARD = [
    *("\u2581", "\u2585", "\x1a", "\x1a0", "\x1a1", "\t", "\n", "\r\n", " ", "   ", "\x00"),
    *(
        "\ufffd",
        "<0x41>",
        "<s>",
        "</s>",
        "<unk>",
        "<pad>",
        "<EOS>",
        "⁇",
        " ⁇ ",
        "\ufeff",
        "\u2028",
        "\xa0",
    ),
    *("👩‍👩‍👧", "🇩🇪", "e\u0301", "ﬁ", "Ⅷ", "\U0010ffff", "the", " fox", "日本語", "\\", "_", "0"),
]
TEXTS = st.lists(st.one_of(st.sampled_from(HARD), st.text(max_size=8)), max_size=12).map("".join)


@cache
def _subwords(folder: Path) -> SubwordEncoder:
    return SubwordEncoder.train(iter(CORPUS), 320, folder / "vocab.subwords")


@cache
def _subtokens(folder: Path) -> SubtokenEncoder:
    return SubtokenEncoder.train(iter(CORPUS), 320, folder / "vocab.subtokens")


@pytest.fixture(scope="module", params=["byte", "subword", "subtoken"])
def encoder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TextEncoder:
    folder = tmp_path_factory.getbasetemp()
    made = {"byte": ByteEncoder, "subword": lambda: _subwords(folder)}
    return made.get(request.param, lambda: _subtokens(folder))()


@pytest.mark.sample(1)
@settings(max_examples=400, deadline=None)
@given(text=TEXTS)
def test_decoding_an_encoded_text_gives_the_text(encoder: TextEncoder, text: str) -> None:
    ids = encoder.encode(text)
    assert encoder.decode(ids) == text
    assert encoder.decode([*ids, EOS, *ids, PAD, PAD]) == text
    assert all(EOS < i < encoder.vocab_size for i in ids)


@pytest.mark.sample(1)
@settings(max_examples=50, deadline=None)
@given(texts=st.lists(TEXTS, max_size=6))
def test_a_batch_is_encoded_as_its_texts_are(encoder: TextEncoder, texts: list[str]) -> None:
    assert encoder.encode_batch(texts) == [encoder.encode(text) for text in texts]


@pytest.mark.sample(1)
@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(-3, 400)))
def test_any_ids_decode_to_some_text(encoder: TextEncoder, ids: list[int]) -> None:
    assert isinstance(encoder.decode(ids), str)


@pytest.mark.parametrize("hard", HARD, ids=ascii)
def test_each_hard_string_comes_back_alone_and_among_words(encoder: TextEncoder, hard: str) -> None:
    for text in (hard, hard * 3, f"the{hard}fox", f" {hard} ", f"{hard}\u2581{hard}\x1a{hard}"):
        assert encoder.decode(encoder.encode(text)) == text


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "planes",
    [
        pytest.param((0, 1, 2, 3, 14, 15, 16), id="in_use"),
        pytest.param(range(4, 14), id="without_characters", marks=pytest.mark.slow),
    ],
)
def test_every_code_point_comes_back(encoder: TextEncoder, planes: Iterable[int]) -> None:
    points = (point for plane in planes for point in range(plane << 16, (plane + 1) << 16))
    text = "".join(chr(c) for c in points if not 0xD800 <= c <= 0xDFFF)
    assert encoder.decode(encoder.encode(text)) == text


def test_a_lone_surrogate_is_refused_by_place_and_name(encoder: TextEncoder) -> None:
    with pytest.raises(DataError, match=r"Character 2 of .* lone surrogate U\+D83D.*UTF-8"):
        encoder.encode_batch(["whole", "ab\ud83d"])
    with pytest.raises(DataError, match=r"U\+DFFF"):
        encoder.encode("\udfff")
