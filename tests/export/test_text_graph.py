"""From strings to features in a graph: what `LabelPredictor` gives the model, number for number."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import onnxruntime_extensions
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_torch.decode.label_predictor import InputError, LabelPredictor
from t2t_torch.errors import DataError, ExportError
from t2t_torch.export import decode_ids
from t2t_torch.export.graph import Graph
from t2t_torch.export.text_graph import InputGraph
from t2t_torch.features import (
    ClassLabel,
    Features,
    Real,
    Tags,
    Text,
    Turns,
    WordCharacters,
    WordLabel,
    Words,
    WordShape,
    WordStarts,
)
from t2t_torch.hparam import HParams
from t2t_torch.problem import Problem
from t2t_torch.runtime.session import open_session
from t2t_torch.text.encoder import (
    ByteEncoder,
    CharacterEncoder,
    ClassLabelEncoder,
    IntegerEncoder,
    TokenEncoder,
    WordCutter,
)
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.tensor2tensor_subword import SubtokenEncoder
from t2t_torch.text.tokenizer import TOKENIZERS, tokenize, word_expression
from t2t_torch.text.tree import TransitionEncoder

WORDS = (
    "the The THE don't fooBar New\\line İstanbul ΟΔΟΣ ΟΔΟΣ' <br /> <br> <BR/> x1 12 ٣٤ ² Ⅻ 漢字 é "
    "e\u0301 ǅ ǅa Aa aB A 🙂 a\u00a0b <pad> <EOS> \u2581 \x1a \x1a1 , . \\"
).split(" ")
SIGNS = "abAB Σσıİ'.,-\\<>/0²٣\t\n\r\u00a0\u2028\x1c\x85\u0301😀ǅß漢\u200d\u2581\x1a"
VOCABULARY = (
    "unk the The don't foo bar new line οδος οδοσ i̇stanbul 漢字 12 x1 é e\u0301 < > br / 🙂 . ' t "
    "a a\u00a0b \\ ,"
).split(" ")
TARGETS = {"targets": ClassLabel(ClassLabelEncoder(["x", "y"]))}
ALPHABET = CharacterEncoder([*"abcdeABΣ'.😀漢 <"])

PIECES = st.one_of(
    st.sampled_from(WORDS),
    st.text(SIGNS, max_size=6),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6),
)
TEXTS = st.lists(PIECES, max_size=8).flatmap(
    lambda pieces: st.sampled_from([" ", "", "  ", "\t"]).map(lambda space: space.join(pieces))
)
BATCHES = st.lists(TEXTS, min_size=1, max_size=4)


class Asked(Problem):
    """A problem with fields."""

    name = "asked"

    def generate_samples(self, tmp_dir, split):
        """Yields nothing."""
        return iter(())

    def stored_features(self, directory):
        """There are none."""
        raise NotImplementedError


class Network(torch.nn.Module):
    """What a predictor asks a model for before it asks it for an answer."""

    def __init__(self, **hparams):
        super().__init__()
        self.hparams = HParams(**hparams)
        self.weight = torch.nn.Parameter(torch.zeros(1))


class Both:
    """A predictor, and a graph of what it makes of its inputs."""

    def __init__(self, features, limit=0, cutters=None):
        problem = Asked()
        problem.cutters = cutters or {}
        self.predictor = LabelPredictor(Network(max_input_seq_length=limit), problem, features)
        self.graph = Graph()
        found = InputGraph(self.graph, problem, features, self.predictor.limits).encoded()
        for name, value in found.items():
            dtype = "float32" if isinstance(features.given[name], Real) else "int64"
            shape = ["batch", *features.given[name].shape]
            self.graph.output(f"{name}.made", value, dtype, shape)
        self.session = session_of(self.graph)

    def made(self, samples):
        """What the graph makes of samples."""
        given = {}
        for one in self.session.get_inputs():
            kind = object if "string" in one.type else np.float32
            given[one.name] = np.array([sample[one.name] for sample in samples], kind)
        made = self.session.run(None, given)
        names = [one.name for one in self.session.get_outputs()]
        self.others = {n: v for n, v in zip(names, made, strict=True) if not n.endswith(".made")}
        return {
            name.removesuffix(".made"): value
            for name, value in zip(names, made, strict=True)
            if name not in self.others
        }

    def check(self, samples):
        """Compares both on one batch."""
        samples = [{"inputs": one} if isinstance(one, str) else one for one in samples]
        expected = self.predictor.batch_of(samples)
        made = self.made(samples)
        assert made.keys() == expected.keys()
        for name, tensor in expected.items():
            assert made[name].dtype == tensor.numpy().dtype, name
            np.testing.assert_array_equal(made[name], tensor.numpy(), name, strict=True)
        if "inputs_offsets" in self.others:
            tokenizer = self.predictor.specs["inputs"].tokenizer
            self.check_offsets([sample["inputs"] for sample in samples], tokenizer)

    def check_offsets(self, texts, tokenizer):
        """Compares the positions of words."""
        for text, row in zip(texts, self.others["inputs_offsets"].tolist(), strict=True):
            places = [list(token[1:]) for token in tokenize(text, tokenizer)]
            assert row == places + [[0, 0]] * (len(row) - len(places)), text


def session_of(graph):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is to fail says so itself
    options.intra_op_num_threads = 1
    if graph.needs_extensions:
        options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    model = graph.model().SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def of_words(encoder, *, add_eos=False, tokenizer=""):
    words = Words(encoder, add_eos, word_expression(tokenizer) if tokenizer else "")
    notes = {
        "starts": WordStarts("inputs", words),
        "shapes": WordShape("inputs"),
        "characters": WordCharacters("inputs", ALPHABET, 5),
        "bytes": WordCharacters("inputs", ByteEncoder(), 5),
    }
    return Features({"inputs": words}, TARGETS, notes=notes)


def of_text(encoder, *, add_eos=True):
    return Features({"inputs": Text(encoder, add_eos)}, TARGETS)


def table(**options):
    return TokenEncoder(VOCABULARY, replace_oov="unk", **options)


@functools.cache
def subwords():
    """A vocabulary of few subwords, so that most characters go by their bytes."""

    texts = [
        "the quick brown fox don't foo",
        "naïve café 😀 New line",
        "one two three",
        "漢字",
    ] * 20
    with tempfile.TemporaryDirectory() as folder:
        return SubwordEncoder.train(texts, 330, Path(folder) / "subwords")


@functools.cache
def subtokens():
    """A vocabulary of tensor2tensor's kind, which most characters are not in."""
    texts = ["the quick brown fox don't foo", "naïve café, New line", "a_b \\ <br />", "漢字 ٣"]
    with tempfile.TemporaryDirectory() as folder:
        return SubtokenEncoder.train(texts * 20, 90, Path(folder) / "subtokens")


CASES = {
    **{name: lambda name=name: Both(of_words(table(), tokenizer=name)) for name in TOKENIZERS},
    "subwords of words by an expression, cut": lambda: Both(
        of_words(subwords(), tokenizer=r"[^\W\d_]+|\d+"), 4
    ),
    "words": lambda: Both(of_words(table())),
    "words in lower case, cut": lambda: Both(of_words(table(lower_case=True)), 4),
    "words and their end": lambda: Both(of_words(table(reverse=True), add_eos=True), 4),
    "a text of words": lambda: Both(of_text(table())),
    "from its end, cut": lambda: Both(of_text(table(lower_case=True, reverse=True)), 4),
    "without an end": lambda: Both(of_text(table(lower_case=True), add_eos=False)),
    "characters": lambda: Both(of_text(ALPHABET), 9),
    "words of characters": lambda: Both(of_words(ALPHABET), 9),
    "subwords": lambda: Both(of_text(subwords())),
    "subwords, cut": lambda: Both(of_text(subwords(), add_eos=False), 9),
    "bytes": lambda: Both(of_text(ByteEncoder())),
    "bytes, cut": lambda: Both(of_text(ByteEncoder(), add_eos=False), 9),
    "words of bytes": lambda: Both(of_words(ByteEncoder())),
    "words of bytes, cut": lambda: Both(of_words(ByteEncoder(), add_eos=True), 9),
    "subtokens": lambda: Both(of_text(subtokens())),
    "subtokens, cut": lambda: Both(of_text(subtokens(), add_eos=False), 9),
    "words of subtokens": lambda: Both(of_words(subtokens())),
    "words of subtokens, cut": lambda: Both(of_words(subtokens(), add_eos=True), 9),
    "words of subwords": lambda: Both(of_words(subwords())),
    "words of subwords, cut": lambda: Both(of_words(subwords(), add_eos=True), 9),
    "plain words": lambda: Both(of_text(table()), cutters={"inputs": WordCutter()}),
    "plain words, cut where they are glued": lambda: Both(
        of_text(subwords()), cutters={"inputs": WordCutter(splits_glued=True)}
    ),
    "other words": lambda: Both(
        of_words(table()), 4, {"inputs": WordCutter(r"[\w\d]{1,3}|\.+", "", "", True, False)}
    ),
}
both = functools.cache(lambda name: CASES[name]())


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15)
@given(texts=BATCHES)
@example(texts=[""])
@example(texts=["", " \t", "a"])
@example(texts=["a " * 300, "the " * 3])
@example(texts=["x😀" * 2500, "the"])
@example(texts=["madeEurope<br  />BySOMEone\\don't \\, İΣΣ", "aBaBab'sAa"])
def test_every_text_is_encoded_as_in_python(name, texts):
    both(name).check(texts)


def test_only_subwords_need_the_extensions():
    needing = {name for name in CASES if both(name).graph.needs_extensions}
    assert needing == {name for name in CASES if "subwords" in name or "glued" in name}


def test_rows_are_the_same_alone_and_among_others():
    texts = [" ".join(WORDS[i : i + 7]) for i in range(0, len(WORDS), 5)]
    together = both("words in lower case, cut").made([{"inputs": text} for text in texts])
    for number, text in enumerate(texts):
        alone = both("words in lower case, cut").made([{"inputs": text}])
        for name, values in alone.items():
            np.testing.assert_array_equal(together[name][number, : values.shape[1]], values[0])


def test_a_nul_is_a_character_like_others_but_to_subwords():
    texts = ["a\x00b", "\x00", "don't \x00"]
    for name in ("words", "a text of words", "characters", "plain words", "bytes", "subtokens"):
        both(name).check(texts)
    with pytest.raises(Exception, match="inputs: a text holds the character NUL"):
        both("subwords").made([{"inputs": "a\x00b"}])


def test_a_word_without_an_id_is_refused_where_none_stands_for_it():
    refusing = Both(of_text(TokenEncoder(["a", "b"])))
    refusing.check(["a b a", ""])
    with pytest.raises(InputError, match="no 'c'"):
        refusing.predictor.batch_of(["a c"])
    with pytest.raises(Exception, match="inputs: a word is not in the vocabulary"):
        refusing.made([{"inputs": "a c"}])


@pytest.mark.parametrize("feature", [Text, Words])
def test_integers_are_read_and_others_are_refused(feature: type[Text]):
    target = {"label": ClassLabel(ClassLabelEncoder(["x"]))}
    numbers = Both(Features({"inputs": feature(IntegerEncoder(40))}, target))
    numbers.check(["0 39 007", "", "  1 \t+3 -0", "5"])
    for text in ("40", "1 -1", "1 x", "1.0", "3 9999999999999999999999", "1e3", "0x1"):
        with pytest.raises(InputError, match="not an integer from 0 to 39"):
            numbers.predictor.batch_of([text])
        with pytest.raises(Exception, match=r"inputs: an? (word|integer) is n"):
            numbers.made([{"inputs": text}])


def test_a_character_that_pieces_cannot_write_is_refused():
    cut_off = Both(of_text(SubtokenEncoder(["<pad>_", "<EOS>_", "a", "b_", *"\\;_0123456789"])))
    cut_off.check(["ab a", "\u00e9"])
    for text in ("a_b", "ab d"):
        with pytest.raises(DataError, match="has no entry for the character"):
            cut_off.predictor.batch_of([text])
        with pytest.raises(Exception, match="inputs: the vocabulary has no entry for it"):
            cut_off.made([{"inputs": text}])


def test_words_that_want_a_tag_are_not_cut():
    words = Words(table())
    tags = {"tags": Tags(ClassLabelEncoder(["x"]), "inputs")}
    tagged = Both(Features({"inputs": words}, tags), 3)
    tagged.check(["the the the", ""])
    with pytest.raises(InputError, match="trained on 3 at most"):
        tagged.predictor.batch_of(["a a a a"])
    with pytest.raises(Exception, match="inputs: more than 3 ids"):
        tagged.made([{"inputs": "a a a a"}])


def labelled():
    words = Words(table())
    notes = {"pos": WordLabel("inputs", ClassLabelEncoder(["N", "V"]), "pos_tags")}
    return Both(Features({"inputs": words}, TARGETS, notes=notes), 2)


def test_given_labels_of_words_are_known_or_nothing():
    rows = [("the don't 12", "N\u00a0V X"), ("", ""), ("a", " V"), ("a b", "Q\x1cN")]
    labelled().check([{"inputs": text, "pos_tags": tags} for text, tags in rows])
    with pytest.raises(Exception, match="pos_tags: not one for each word of inputs"):
        labelled().made([{"inputs": "a", "pos_tags": "N N"}])


def test_numbers_are_standardized_as_in_python():
    dense = {"dense": Real(2, (1.5, 0.1), (3.0, 0.7)), "more": Real(1)}
    numbers = Both(Features({**of_text(table()).inputs, **dense}, TARGETS))
    given_numbers = np.random.default_rng(0).normal(0, 100, (20, 3)).astype(np.float32)
    rows = [
        {"inputs": "the", "dense": [float(a), float(b)], "more": [float(c)]}
        for a, b, c in given_numbers
    ]
    numbers.check(rows)


def test_several_fields_are_inputs_in_their_order():
    pair = {"first": Text(table()), "second": Text(table(), add_eos=False)}
    cutters = {"second": WordCutter()}
    asked = Both(Features(pair, TARGETS), cutters=cutters)
    assert [one.name for one in asked.session.get_inputs()] == ["first", "second"]
    asked.check([{"first": "The the", "second": "THE,the"}, {"first": "", "second": "a"}])


WORD_INPUTS = {"inputs": Words(table())}


@pytest.mark.parametrize(
    ("features", "told"),
    [
        (of_text(TransitionEncoder(["x"])), "'inputs' is a text of a TransitionEncoder"),
        (Features({"inputs": Turns(table())}, TARGETS), "'inputs' is Turns"),
        (
            Features({**WORD_INPUTS, "c": WordCharacters("inputs", table())}, TARGETS),
            "'c' is WordCharacters of a TokenEncoder",
        ),
    ],
)
def test_what_cannot_stand_in_a_graph_is_refused_by_name(features, told):
    with pytest.raises(ExportError, match=told):
        Both(features)


class Remade(Asked):
    """Inputs that Python code makes."""

    def inputs_of(self, sample):
        """Returns the text twice."""
        return [{"inputs": sample["inputs"] * 2}]


def test_inputs_that_python_makes_are_refused():
    features = of_text(table())
    limits = both("a text of words").predictor.limits
    with pytest.raises(ExportError, match="'asked' makes inputs of a sample in Python"):
        InputGraph(Graph(), Remade(), features, limits)
    with pytest.raises(ExportError, match="cannot stand in a graph"):
        Both(features, cutters={"inputs": WordCutter(r"\w+(?=,)")})


@functools.cache
def decoding():
    graph = Graph()
    ids = graph.input("ids", "int64", ["b", "s"])
    graph.output("texts", decode_ids(subwords(), graph, ids), "string", ["b"])
    return session_of(graph)


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXTS, st.lists(st.integers(-1, 340), max_size=5)), min_size=1))
@example([("", [])])
@example([("\x1a1\u2581\x1a", []), ("a", [1, 5, 1, 200])])
def test_ids_are_decoded_as_in_python(rows):
    """What follows a text's ids are ids of any kind, but that of the byte NUL."""
    nul = subwords().encode("\x00")[0]
    ids = [subwords().encode(text) + [i for i in more if i != nul] for text, more in rows]
    longest = max(1, *map(len, ids))
    padded = np.array([one + [0] * (longest - len(one)) for one in ids])
    texts = decoding().run(None, {"ids": padded})[0].tolist()
    assert texts == [subwords().decode(one) for one in ids]


def test_a_session_with_subwords_writes_nothing_to_stderr(tmp_path, capfd):
    model = tmp_path / "model.onnx"
    model.write_bytes(Both(of_text(subwords())).graph.model().SerializeToString())
    capfd.readouterr()  # of the session that the test itself opens
    open_session(model, SimpleNamespace(needs_extensions=True), 1)
    assert capfd.readouterr().err == ""
