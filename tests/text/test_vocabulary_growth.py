"""Old ids of the tokens of a changed vocabulary, and words added to vocabulary files."""

from __future__ import annotations

import json

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.text.encoder import ByteEncoder, CharacterEncoder, TokenEncoder
from t2t_torch.text.pieces import PieceEncoder, vocabulary_file
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder
from t2t_torch.text.vocabulary_growth import add_words, row_sources


def words(*tokens, unknown="<UNK>"):
    return TokenEncoder([unknown, *tokens], replace_oov=unknown)


def test_equal_vocabularies_have_no_sources():
    assert row_sources(words("a", "b"), words("a", "b")) is None
    assert row_sources(ByteEncoder(), ByteEncoder()) is None


def test_tokens_are_found_in_another_order_and_the_unknown_one_under_another_name():
    found = row_sources(words("a", "b", "c"), words("c", "new", "a", unknown="<oov>"))
    assert found.sources == ((0,), (1,), (2,), (5,), (), (3,))
    assert (found.matched, found.composed, found.averaged, found.dropped) == (5, 0, 1, 1)


def test_a_new_token_is_made_of_old_pieces_without_unknown_ones():
    found = row_sources(CharacterEncoder("abc"), words("ab", "bz", "zz"))
    assert found.sources == ((0,), (1,), (2,), (3, 4), (4,), ())
    assert (found.matched, found.composed, found.averaged) == (3, 2, 1)


def test_names_of_tokens_of_other_kinds_are_not_compared():
    """A digit that is a byte here is a word there."""
    found = row_sources(ByteEncoder(), words("7"))
    assert found.sources == ((0,), (1,), (), (ord("7") + 2,))


def test_subtokens_that_end_a_word_are_not_those_that_do_not():
    old = SubtokenEncoder(["<pad>", "<EOS>", "the_", "the"])
    new = SubtokenEncoder(["<pad>", "<EOS>", "the", "the_"])
    assert row_sources(old, new).sources == ((0,), (1,), (3,), (2,))


@pytest.fixture
def file(tmp_path):
    def made(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return made


def test_words_are_added_once(file):
    path = file("vocab.a.words", "<pad>\n<EOS>\n<UNK>\nold\n")
    assert add_words(path, ["New", "", "old", "New"]) == b"<pad>\n<EOS>\n<UNK>\nold\nNew\n"
    assert add_words(path, ["New"], lower_case=True).endswith(b"old\nnew\n")
    assert add_words(path, []) == path.read_bytes()
    path = file("vocab.a.symbols", json.dumps(["b", "a"]))
    assert json.loads(add_words(path, ["cab", "ü"])) == ["b", "a", "c", "ü"]


def test_words_are_added_to_an_imported_list(file):
    path = file(
        "vocab.a.pieces",
        vocabulary_file(
            None,
            tokens=["<p>", "</s>", "<u>", "old"],
            unknown=2,
            silent=[],
            add_eos=True,
            strip=False,
        ),
    )
    path.write_bytes(add_words(path, ["new"]))
    assert PieceEncoder.load(path).encode("old new other") == [3, 4, 2]


def test_vocabularies_of_pieces_are_refused_by_name(file):
    given = {"tokens": ["<p>", "</s>"], "bpe": "a b\n", "separator": "@@"}
    path = file("vocab.a.pieces", json.dumps(given))
    with pytest.raises(UsageError, match=r"is a bpe vocabulary(.|\n)*matches its rows by token"):
        add_words(path, ["new"])
    path = file("vocab.a.pieces", json.dumps({"tokens": [], "tokenizer": "{}"}))
    with pytest.raises(UsageError, match=r"model\.resize_token_embeddings"):
        add_words(path, ["new"])
    with pytest.raises(UsageError, match="is a subword vocabulary"):
        add_words(file("vocab.a.subwords", b""), ["new"])


@pytest.mark.parametrize("word", ["two words", " before", "tab\tbed"])
def test_what_is_not_a_word_is_refused(file, word):
    with pytest.raises(DataError, match="is not one word"):
        add_words(file("vocab.a.words", "<pad>\n<EOS>\n"), [word])
