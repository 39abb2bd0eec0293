from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.text import subword
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.text.subword import SubwordEncoder, _escape

WORDS = "ein Mann in blauem Hemd steht auf einer Leiter und putzt das Fenster".split()
CORPUS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))] * 10


def test_the_same_texts_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        SubwordEncoder.train(iter(CORPUS), 300, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_small_corpus_gives_fewer_subwords_than_asked_and_says_how_many(tmp_path: Path) -> None:
    encoder = SubwordEncoder.train(["hello world"] * 3, 8192, tmp_path / "vocab")
    assert 259 < encoder.vocab_size < 300
    assert max(encoder.encode("hello world \x00\U0010ffff")) < encoder.vocab_size


def test_frequent_words_become_one_id(tmp_path: Path) -> None:
    encoder = SubwordEncoder.train(CORPUS, 8192, tmp_path / "vocab")
    assert len(encoder.encode("auf einer Leiter")) == 3
    assert len(encoder.encode("日")) == 3  # no piece: its three bytes


def test_texts_with_marks_of_the_trainer_are_learnt_from(tmp_path: Path) -> None:
    marked = [f"{text}\u2585{text}\x00\t\n" for text in CORPUS]
    encoder = SubwordEncoder.train(marked, 8192, tmp_path / "vocab")
    assert len(encoder.encode("auf einer Leiter")) == 3


def test_a_text_longer_than_the_trainers_limit_is_learnt_from(tmp_path: Path) -> None:
    encoder = SubwordEncoder.train(["ein Fenster " * 20_000], 8192, tmp_path / "vocab")
    assert len(encoder.encode("ein Fenster")) == 2


def test_a_written_model_reads_back_the_same(tmp_path: Path) -> None:
    trained = SubwordEncoder.train(CORPUS, 300, tmp_path / "vocab")
    loaded = SubwordEncoder.load(tmp_path / "vocab")
    sent = pickle.loads(pickle.dumps(loaded))
    assert trained.encode_batch(CORPUS) == loaded.encode_batch(CORPUS) == sent.encode_batch(CORPUS)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SubwordEncoder:
    texts = [*CORPUS, *(f"  {text}  {text}\t" for text in CORPUS)]
    return SubwordEncoder.train(texts, 340, tmp_path_factory.mktemp("vocab") / "vocab")


HARD = [
    "Mann",
    " Mann",
    "  ",
    " ",
    "\u2581",
    "\u2585",
    "\x1a",
    "\x00",
    "\t",
    "</s>",
    "日",
    "Fenster ",
]


@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.one_of(st.sampled_from([*HARD, *WORDS]), st.text(max_size=5)), max_size=9).map(
            "".join
        ),
        max_size=4,
    )
)
def test_encoding_by_remembered_words_is_that_of_sentencepiece(
    encoder: SubwordEncoder, texts: list[str]
) -> None:
    expected = encoder._pieces.encode([_escape(text) for text in texts])
    for _ in range(2):  # remembered the second time
        assert encoder.encode_batch(texts) == expected


def test_the_words_remembered_are_bounded(
    encoder: SubwordEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subword, "_MAX_REMEMBERED", 10)
    texts = [f"{number} {'x' * number} {number}" for number in range(50)]
    expected = encoder._pieces.encode(texts)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.encode_batch(texts) == expected
    assert 0 < len(copy._words._others) <= 10
    assert max(map(len, copy._words._others)) <= 32


def test_an_id_list_belongs_to_its_text_alone(encoder: SubwordEncoder) -> None:
    first = encoder.encode("Mann")
    first.append(EOS)
    assert encoder.encode("Mann") == first[:-1]


def test_reserved_ids_and_ids_outside_decode_to_nothing(tmp_path: Path) -> None:
    encoder = SubwordEncoder.train(CORPUS, 300, tmp_path / "vocab")
    ids = encoder.encode("Mann")
    unknown = 2
    assert encoder.decode([PAD, *ids, unknown, 10**9, -1, EOS, *ids]) == "Mann"
    assert encoder.decode([]) == ""


def test_a_failed_training_leaves_no_file_and_shows_its_own_error(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise DataError("line 2 is broken")

    with pytest.raises(DataError, match="line 2 is broken"):
        SubwordEncoder.train(broken(), 300, tmp_path / "vocab")
    with pytest.raises(DataError, match="No text to learn"):
        SubwordEncoder.train(["", "\x00"], 300, tmp_path / "vocab")
    with pytest.raises(DataError, match=r"vocabulary of 260 subwords is too small.* need 2\d\d"):
        SubwordEncoder.train(CORPUS, 260, tmp_path / "vocab")
    assert not list(tmp_path.iterdir())


def test_what_is_no_model_is_refused_by_path(tmp_path: Path) -> None:
    path = tmp_path / "vocab.subwords"
    path.write_text("'the_'\n'of_'\n")  # as tensor2tensor stores it
    with pytest.raises(DataError, match=r"vocab\.subwords: .*no sentencepiece model.*t2t-datagen"):
        SubwordEncoder.load(path)
    with pytest.raises(DataError, match=r"Cannot read .*absent"):
        SubwordEncoder.load(tmp_path / "absent")
