"""Texts of any Unicode have the ids of the folder's tokenizer, in Python and in graphs."""

from __future__ import annotations

import bisect
import itertools
import json
import random

import numpy as np
import pytest
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime_extensions import get_library_path

from t2t_torch.errors import ExportError
from t2t_torch.export.graph import Graph
from t2t_torch.export.normalizers import normalized, normalizer_of
from t2t_torch.export.pieces import PieceGraph, decode_pieces
from t2t_torch.export.strings import FieldText
from t2t_torch.text.pieces import HuggingFacePieces
from tests.pretrained.folders import FAMILIES, SENTENCES, SEQ2SEQ, TEXTS, save_model

AMOUNTS = [200, pytest.param(10_000, marks=pytest.mark.slow)]
BATCH = 100
POOLS = [
    "abcdefghijklmnopqrstuvwxyz ",
    "  \t\n\u00a0\u3000\u2581",
    "\u0301\u0308\u0323\u200d\ufe0f",
    "\u00e9\u00e0\u00fc\u00df\ufb01\u2460\uff21\uff22\u00bd\ufdfa\u0130",
    "\U0001f600\U0001f468\U0001f469\U0001f3fd\U0001f1e9",
    "\u6570\u5b57\u3068\u65e5\u672c\ud55c\u0915\u094d\u0e01\u0e33",
    "\r\n\x00\x01\x7f\x80\xad\u200b\ufeff\ufffd",
    "\u1112\u1161\u11ab\uac00\u0345\u0334\u05b0\u0344\u212b\u0958\u09c7\u09be\u1100\u1175",
]


def random_texts(amount):
    """Returns texts of all planes, marks, controls, emoji, mixed scripts and runs of spaces."""
    draw = random.Random(0)

    def part():
        kind = draw.random()
        if kind < 0.2:
            number = draw.randrange(0x110000 - 0x800)
            return chr(number + 0x800 * (number >= 0xD800))  # no surrogates
        if kind < 0.3:
            return " " * draw.randint(1, 9)
        if kind < 0.45:
            return draw.choice(SENTENCES)[: draw.randint(1, 20)]
        return draw.choice(draw.choice(POOLS))

    texts = ("".join(part() for _ in range(draw.randint(0, 25))) for _ in range(amount))
    return [*TEXTS, *texts]


def saved(family, folder, text_of):
    """Returns the tokenizer of a family, and the encoder made of it."""
    kind = "AutoModelForSeq2SeqLM" if family in SEQ2SEQ else "AutoModel"
    _, tokenizer = save_model(family, folder, kind)
    return tokenizer, text_of(folder).encoder


def session_of(graph):
    options = SessionOptions()
    options.register_custom_ops_library(get_library_path())
    return InferenceSession(graph.model().SerializeToString(), options)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_the_tokenizer(family, amount, tmp_path, text_of):
    tokenizer, encoder = saved(family, tmp_path, text_of)
    texts = random_texts(amount)
    theirs = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    vocabulary, unknown = tokenizer.get_vocab(), tokenizer.unk_token
    for text, ids, known in zip(texts, encoder.encode_batch(texts), theirs, strict=True):
        expected = [one if one in vocabulary else unknown for one in known.tokens]
        assert [encoder.tokens[number] for number in ids] == expected, ascii(text)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_words_have_the_pieces_that_offsets_give_them(family, amount, tmp_path, text_of):
    tokenizer, encoder = saved(family, tmp_path, text_of)
    vocabulary, unknown = tokenizer.get_vocab(), tokenizer.unk_token
    # Offsets of tokenizers are wrong after Precompiled and NFC, which shorten texts.
    shorten = encoder.pieces.normalize if "▁" in "".join(vocabulary) else str
    for text in random_texts(amount):
        words = shorten(text).replace("\u2581", "").split()  # a letter that stands for a space
        line = " ".join(words)
        ends = list(itertools.accumulate(len(word) + 1 for word in words))
        known = tokenizer.backend_tokenizer.encode(line, add_special_tokens=False)
        expected = [[] for _ in words]
        for piece, (_, end) in zip(known.tokens, known.offsets, strict=True):
            word = bisect.bisect_right(ends[:-1], end)  # a lone space is of the word after it
            expected[word].append(piece if piece in vocabulary else unknown)
        own = encoder.encode_words(words)
        found = [[encoder.tokens[number] for number in ids] for ids in own]
        assert found == [its or [unknown] for its in expected], ascii(line)


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_of_a_graph_are_those_of_the_encoder(family, amount, tmp_path, text_of):
    _, encoder = saved(family, tmp_path, text_of)
    graph = Graph()
    rows = PieceGraph(encoder, graph, "x").of_texts(FieldText(graph.input("t", "string", [None])))
    graph.output("ids", rows.values, "int64", [None, None])
    graph.output("lengths", rows.lengths, "int64", [None])
    session, texts = session_of(graph), random_texts(amount)
    if family not in ("llama", "t5", "xlm-roberta"):  # their operators end a text at NUL
        texts = [text.replace("\0", "") for text in texts]
    for start in range(0, len(texts), BATCH):
        some = texts[start : start + BATCH]
        ids, lengths = session.run(None, {"t": np.array(some, object)})
        for text, row, length in zip(some, ids, lengths, strict=True):
            assert list(row[:length]) == encoder.encode(text), ascii(text)
    assert session.run(None, {"t": np.array([""], object)})[1] == [0]


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5"])
def test_words_of_a_graph_have_the_ids_of_the_encoder(family, tmp_path, text_of):
    _, encoder = saved(family, tmp_path, text_of)
    graph = Graph()
    words = FieldText(words=graph.input("words", "string", [None, None]))
    ids = PieceGraph(encoder, graph, "x").of_words(words).ids
    graph.output("ids", ids.values, "int64", [None, None])
    graph.output("lengths", ids.lengths, "int64", [None])
    rows = [["the", "quick", "fox"], ["lazy", "don't", ""]]
    own, lengths = session_of(graph).run(None, {"words": np.array(rows, object)})
    for row, ids, length in zip(rows, own, lengths, strict=True):
        known = encoder.encode_words([word for word in row if word])
        assert list(ids[:length]) == [number for word in known for number in word]


def test_texts_of_byte_fallback_are_those_of_the_encoder(tmp_path, text_of):
    _, encoder = saved("llama", tmp_path, text_of)
    graph = Graph()
    texts = decode_pieces(encoder, graph, graph.input("ids", "int64", [None, None]))
    graph.output("texts", texts, "string", [None])
    draw = random.Random(0)
    octets = [number for number, one in enumerate(encoder.tokens) if one.startswith("<0x")]
    rows = [encoder.encode(text) for text in random_texts(200)]
    for _ in range(300):  # most are no UTF-8
        pool = [octets, range(2, encoder.vocab_size)]
        rows.append([draw.choice(draw.choice(pool)) for _ in range(draw.randint(1, 12))])
    longest = max(map(len, rows))
    ids = np.array([[*row, *[0] * (longest - len(row))] for row in rows])
    (own,) = session_of(graph).run(None, {"ids": ids})
    assert list(own) == [encoder.decode(row) for row in rows]


def test_texts_of_unigram_are_those_of_the_encoder(tmp_path, text_of):
    _, encoder = saved("t5", tmp_path, text_of)
    graph = Graph()
    texts = decode_pieces(encoder, graph, graph.input("ids", "int64", [None, None]))
    graph.output("texts", texts, "string", [None])
    draw = random.Random(0)
    rows = [encoder.encode(text) for text in random_texts(200)]
    rows += [[draw.randrange(2, encoder.vocab_size) for _ in range(9)] for _ in range(100)]
    longest = max(map(len, rows))
    ids = np.array([[*row, *[0] * (longest - len(row))] for row in rows])
    (own,) = session_of(graph).run(None, {"ids": ids})
    assert list(own) == [encoder.decode(row) for row in rows]


FORMS = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"]
OTHERS = [
    {"type": "Prepend", "prepend": "_"},
    {"type": "Replace", "pattern": {"String": "``"}, "content": "\\1"},
    {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}]},
]


@pytest.mark.parametrize("step", [*({"type": form} for form in FORMS), *OTHERS])
def test_normalized_texts_are_those_of_the_tokenizer(step):
    graph = Graph()
    graph.output("made", normalized(step, graph.input("t", "string", [None])), "string", [None])
    texts = [text.replace("\0", "") for text in random_texts(1000)]
    (made,) = session_of(graph).run(None, {"t": np.array(texts, object)})
    for text, its, expected in zip(texts, made, map(normalizer_of(step), texts), strict=True):
        assert its == expected, ascii(text)


def _spell_as_llama_2(config):
    config["pre_tokenizer"] = None
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    config["normalizer"] = {"type": "Sequence", "normalizers": [prepend, space]}


def _merge_all_splits(config):
    """Merges any two pieces that are one, as vocabularies of sentencepiece are converted."""
    known = config["model"]["vocab"]
    whole = [token for token in known if not token.startswith("<")]
    config["model"]["merges"] = [
        [token[:at], token[at:]]
        for token in reversed(whole)
        for at in range(1, len(token))
        if {token[:at], token[at:]} <= known.keys()
    ]


def _leave_a_gap(config):
    vocabulary = config["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] += 1


@pytest.mark.parametrize(
    ("family", "change"),
    [("llama", _spell_as_llama_2), ("llama", _merge_all_splits), ("gpt2", _leave_a_gap)],
)
def test_ids_of_other_tokenizers_with_bytes(family, change, tmp_path, text_of):
    _, encoder = saved(family, tmp_path, text_of)
    config = json.loads(json.dumps(encoder.pieces.config))
    change(config)
    encoder.pieces = HuggingFacePieces(json.dumps(config))
    graph = Graph()
    rows = PieceGraph(encoder, graph, "x").of_texts(FieldText(graph.input("t", "string", [None])))
    graph.output("ids", rows.values, "int64", [None, None])
    texts = [text.replace("\0", "") for text in random_texts(300)]
    (ids,) = session_of(graph).run(None, {"t": np.array(texts, object)})
    for text, row in zip(texts, ids, strict=True):
        known = encoder.encode(text)
        assert list(row) == [*known, *[0] * (len(row) - len(known))], ascii(text)


def _normalize_as_bert(config):
    config["normalizer"] = {"type": "BertNormalizer"}


def _split_digits(config):
    config["pre_tokenizer"] = {"type": "Digits", "individual_digits": True}


def _change_decoder(config):
    config["decoder"]["decoders"].pop()


def _drop_byte(config):
    del config["model"]["vocab"]["<0xFF>"]


def _add_token(config):
    config["added_tokens"].append({"content": "x", "special": False})


def _empty_map(config):
    config["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": None}


def _forget(config):
    config["model"]["unk_id"] = None


def _ignore_merges(config):
    config["model"]["ignore_merges"] = True


def _draw_merges(config):
    config["model"]["dropout"] = 0.1


def _split_digits_too(config):
    digits = {"type": "Digits", "individual_digits": True}
    steps = [digits, config["pre_tokenizer"]]
    config["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}


def _leave_spaces(config):
    config["pre_tokenizer"] = config["decoder"]


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        ("llama", _normalize_as_bert, "normalizer has the step BertNormalizer"),
        ("llama", _drop_byte, "lacks tokens of bytes"),
        ("llama", _add_token, "added tokens"),
        ("llama", _ignore_merges, "ignores merges"),
        ("gpt2", _draw_merges, "model has dropout"),
        ("gpt2", _split_digits_too, "words are split by Digits"),
        ("t5", _split_digits, "words are split by Digits"),
        ("t5", _leave_spaces, "in a graph differ for"),
        ("t5", _forget, "no unknown token"),
        ("t5", _empty_map, "its graph fails: "),
    ],
)
def test_what_a_graph_cannot_compute_is_refused(family, change, reason, tmp_path, text_of):
    _, encoder = saved(family, tmp_path, text_of)
    changed = json.loads(json.dumps(encoder.pieces.config))
    change(changed)
    encoder.pieces.config = changed
    with pytest.raises(ExportError, match=reason):
        PieceGraph(encoder, Graph(), "x")


def test_texts_that_a_graph_writes_otherwise_are_refused(tmp_path, text_of):
    _, encoder = saved("llama", tmp_path, text_of)
    changed = json.loads(json.dumps(encoder.pieces.config))
    _change_decoder(changed)
    encoder.pieces.config = changed
    graph = Graph()
    with pytest.raises(ExportError, match="in a graph differ for"):
        decode_pieces(encoder, graph, graph.input("ids", "int64", [None, None]))
