"""Subtoken vocabularies against tensor2tensor 1.15.7 (golden/text/subtokens.json)."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.text import tensor2tensor_subword
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.text.subword import SubwordEncoder, load_subwords
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder

FOLDER = Path(__file__).parents[1] / "golden" / "text"
VOCABULARY = FOLDER / "vocab.subwords"
GOLDEN = json.loads((FOLDER / "subtokens.json").read_text(encoding="utf-8"))
# The tests of every encoder, with hostile texts, are in test_lossless.py.


@pytest.fixture(scope="module")
def encoder() -> SubtokenEncoder:
    return SubtokenEncoder.load(VOCABULARY)


def _entries(encoder: SubtokenEncoder) -> list[str]:
    return encoder.__reduce__()[1][0]


def test_texts_have_tensor2tensors_tokens_and_ids_and_come_back(encoder: SubtokenEncoder) -> None:
    cases = GOLDEN["encodings"]
    assert len(cases) == 394
    for case in cases:
        text = case["text"]
        assert tensor2tensor_subword.split(text) == case["tokens"]
        assert encoder.encode(text) == case["ids"]
        assert encoder.decode(case["ids"]) == case.get("decoded", text) == text
        assert encoder.encode_without_tokenizing(text) == case["ids_without_tokenizing"]


def test_any_ids_decode_to_tensor2tensors_text(encoder: SubtokenEncoder) -> None:
    assert len(GOLDEN["decodings"]) == 78
    for case in GOLDEN["decodings"]:  # with ids that `decode` takes for end and padding
        assert encoder._decode(case["ids"]) == case["decoded"]


def test_letters_and_numbers_are_those_of_unicode_11() -> None:
    golden = GOLDEN["tokenizer"]["is_alnum"]
    assert {c: len(tensor2tensor_subword.split(f"a{c}")) == 1 for c in golden} == golden


def test_tokens_are_escaped_and_joined_as_in_tensor2tensor() -> None:
    golden = GOLDEN["tokenizer"]
    alphabet = set(golden["escape_alphabet"])
    for case in golden["escape"]:
        assert tensor2tensor_subword.escape(case["token"], alphabet) == case["escaped"]
        assert tensor2tensor_subword.unescape(case["escaped"]) == case["unescaped"]
    for case in golden["unescape"]:
        # A surrogate is no text: tensor2tensor lets it through, and it cannot be written.
        expected = case["out"] if isinstance(case["out"], str) else tensor2tensor_subword.UNKNOWN
        assert tensor2tensor_subword.unescape(case["in"]) == expected
    for case in golden["tokenizer_decode"]:
        assert tensor2tensor_subword.join(case["tokens"]) == case["text"]


@pytest.mark.parametrize("case", GOLDEN["small_builds"]["builds"], ids=lambda case: case["name"])
def test_a_small_vocabulary_is_learnt_as_tensor2tensor_does(case: dict[str, Any]) -> None:
    counts = GOLDEN["small_builds"][f"{case['counts']}_counts"]
    options = dict(case["args"])
    rounds = options.pop("num_iterations")
    reserved = options.pop("reserved_tokens") or ["<pad>", "<EOS>"]
    max_length = options.pop("max_subtoken_length")
    if case["function"] == "build_to_target_size":
        assert rounds == tensor2tensor_subword.NUM_ROUNDS
        least = (options["min_val"], options["max_val"])
        learnt = tensor2tensor_subword.learn(
            counts,
            options["target_size"],
            reserved=reserved,
            max_length=max_length,
            least_counts=least,
        )
    else:
        learnt = tensor2tensor_subword.build(
            counts,
            options["min_count"],
            num_rounds=rounds,
            reserved=reserved,
            max_length=max_length,
        )
    assert learnt == case["vocab"]
    encoder = SubtokenEncoder(learnt)
    for text, ids in case["encode"].items():
        assert encoder.encode(text) == ids


def test_the_whole_vocabulary_is_learnt_as_tensor2tensor_does(
    encoder: SubtokenEncoder, tmp_path: Path
) -> None:
    learnt = tensor2tensor_subword.learn(GOLDEN["token_counts"]["counts"], GOLDEN["target_size"])
    assert len(learnt) == 1980
    assert learnt == _entries(encoder)
    SubtokenEncoder(learnt).save(tmp_path / "vocab")
    assert (tmp_path / "vocab").read_bytes() == VOCABULARY.read_bytes()


def test_a_file_is_read_with_and_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "vocab"
    path.write_text(GOLDEN["loader_quoting"]["file"], encoding="utf-8")
    assert _entries(SubtokenEncoder.load(path)) == GOLDEN["loader_quoting"]["vocab"]


@pytest.mark.parametrize("break_", ["newline", "carriage_return"])
def test_a_file_that_line_breaks_broke_has_tensor2tensors_ids(break_: str, tmp_path: Path) -> None:
    golden = GOLDEN[f"{break_}_in_alphabet_trap"]
    path = tmp_path / "vocab"
    path.write_bytes(golden["file_bytes"].encode())
    encoder = SubtokenEncoder.load(path)
    assert _entries(encoder) == golden["vocab_loaded"]
    texts = golden["encode_loaded"]
    if break_ == "newline":
        texts = {"a\nb": texts}
    for text, ids in texts.items():
        assert encoder.encode(text) == ids


def test_a_vocabulary_learnt_from_line_breaks_reads_back_the_same(tmp_path: Path) -> None:
    texts = ["one\ntwo", "three\r\nfour \u2028 five\x85"] * 3
    learnt = SubtokenEncoder.train(texts, 100, tmp_path / "vocab")
    loaded = SubtokenEncoder.load(tmp_path / "vocab")
    assert _entries(learnt) == _entries(loaded)
    assert [loaded.decode(loaded.encode(text)) for text in texts] == texts


def test_training_from_texts_equals_learning_from_the_counts_of_their_tokens(
    tmp_path: Path,
) -> None:
    texts = ["the cat sat on the mat", "the dog, the cat"] * 4
    trained = SubtokenEncoder.train(iter(texts), 40, tmp_path / "vocab")
    counts = {"the": 16, "cat": 8, "sat": 4, "on": 4, "mat": 4, "dog": 4, ", ": 4}
    assert _entries(trained) == tensor2tensor_subword.learn(counts, 40)
    with pytest.raises(DataError, match="No text to learn"):
        SubtokenEncoder.train(["", ""], 40, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.text("aé9_.,\\-", min_size=1, max_size=4), max_size=6))
def test_the_ids_of_words_are_the_text_of_the_words(words: list[str]) -> None:
    encoder = SubtokenEncoder.load(VOCABULARY)
    ids = [i for word in encoder.encode_words(words) for i in word]
    assert encoder.decode(ids) == " ".join(words)
    if all(word.isalnum() for word in words):
        assert ids == encoder.encode(" ".join(words))


def test_an_encoder_can_be_sent_to_another_process(encoder: SubtokenEncoder) -> None:
    sent = pickle.loads(pickle.dumps(encoder))
    assert sent.encode("the Leiter, 12") == encoder.encode("the Leiter, 12")


def test_what_is_handed_out_may_be_changed(encoder: SubtokenEncoder) -> None:
    for encode in (encoder.encode, encoder.encode_without_tokenizing):
        expected = encode("word")[:]
        encode("word").append(EOS)
        assert encode("word") == expected


def test_padding_is_skipped_and_the_first_end_ends_the_text(encoder: SubtokenEncoder) -> None:
    ids = encoder.encode("one two")
    assert encoder.decode([PAD, *ids, PAD, EOS, *ids]) == "one two"


def test_more_tokens_than_the_cache_holds_have_the_same_ids(
    encoder: SubtokenEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"n{number} {number}" for number in range(40)]
    expected = encoder.encode_batch(texts)
    monkeypatch.setattr("t2t_torch.text.tensor2tensor_subword._MAX_CACHED", 3)
    monkeypatch.setattr("t2t_torch.text.tensor2tensor_subword._MAX_CACHED_LENGTH", 2)
    small = SubtokenEncoder.load(VOCABULARY)
    assert small.encode_batch(texts) == small.encode_batch(texts) == expected
    assert len(small._cache) <= 3


def test_the_kind_of_a_subword_vocabulary_is_seen_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "vocab.x.300.subwords"
    SubwordEncoder.train(["one two three"] * 9, 300, path)
    assert isinstance(load_subwords(path), SubwordEncoder)
    path.write_bytes(VOCABULARY.read_bytes())
    assert isinstance(load_subwords(path), SubtokenEncoder)
    path.write_text("the\nof\n")
    with pytest.raises(DataError, match=r"300\.subwords.*no sentencepiece model"):
        load_subwords(path)
    with pytest.raises(DataError, match="Cannot read the vocabulary"):
        load_subwords(tmp_path / "absent")


def test_reserved_tokens_without_end_markers_as_in_the_published_vocabularies(
    encoder: SubtokenEncoder, tmp_path: Path
) -> None:
    path = tmp_path / "vocab.published.300.subwords"
    text = VOCABULARY.read_text("utf-8")
    path.write_text(text.replace("<pad>_", "<pad>").replace("<EOS>_", "<EOS>"), "utf-8")
    published = load_subwords(path)
    assert published.vocab_size == encoder.vocab_size
    for case in GOLDEN["encodings"]:
        ids = published.encode(case["text"])
        assert ids == case["ids"] and published.decode(ids) == case["text"]


def test_what_is_no_subtoken_vocabulary_is_refused_by_path(tmp_path: Path) -> None:
    path = tmp_path / "vocab"
    path.write_bytes(b"'<pad>_'\npassword=tiger\n")  # it may be a link to a file of another kind
    with pytest.raises(DataError, match=r"vocab: .*with the lines <pad> and <EOS>") as refused:
        SubtokenEncoder.load(path)
    assert "tiger" not in str(refused.value)
    path.write_bytes(b"'<pad>_'\n'<EOS>_'\n'\xff'\n")
    with pytest.raises(DataError, match="byte 20 is not UTF-8"):
        SubtokenEncoder.load(path)
    with pytest.raises(DataError, match="Cannot read"):
        SubtokenEncoder.load(tmp_path / "absent")
    path.write_bytes(b"'<pad>_'\n'<EOS>_'\n'a'\n")
    with pytest.raises(DataError, match=r"no entry for the character '\\\\'.*whole file"):
        SubtokenEncoder.load(path).encode("b")
