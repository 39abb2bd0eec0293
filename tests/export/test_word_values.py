"""Entries, numbers of words and pictures in a graph: what `LabelPredictor` makes of them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_torch.decode.label_predictor import InputError, LabelPredictor
from t2t_torch.errors import ExportError
from t2t_torch.export.graph import Graph
from t2t_torch.export.targets import signature_fields
from t2t_torch.export.text_graph import InputGraph, entries_of
from t2t_torch.features import (
    ClassLabel,
    Features,
    Gazetteer,
    GazetteerWeights,
    Image,
    WordReal,
    Words,
    WordStarts,
)
from t2t_torch.hparam import HParams
from t2t_torch.problem import Problem
from t2t_torch.runtime.feeds import Feeds
from t2t_torch.runtime.session import batches_of
from t2t_torch.runtime.signature import Signature
from t2t_torch.text.encoder import CharacterEncoder, ClassLabelEncoder, TokenEncoder

TARGETS = {"targets": ClassLabel(ClassLabelEncoder(["x", "y"]))}
LISTS = ClassLabelEncoder(["city", "name", "river", "Straße", "two words", "\x00"])
WIDTH = 2


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

    def __init__(self, limit):
        super().__init__()
        self.hparams = HParams(max_input_seq_length=limit)
        self.weight = torch.nn.Parameter(torch.zeros(1))


class Both:
    """A predictor, and a graph of what it makes of its inputs."""

    def __init__(self, features, limit=0):
        self.predictor = LabelPredictor(Network(limit), Asked(), features)
        graph = Graph()
        for name, value in (
            InputGraph(graph, Asked(), features, self.predictor.limits).encoded().items()
        ):
            dtype = {"list<float32>": "float32", "list<uint8>": "uint8"}
            dtype = dtype.get(features.all[name].arrow_type, "int64")
            graph.output(f"{name}.made", value, dtype, ["batch", *features.all[name].shape])
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
        self.feeds = Feeds(signature_fields(self.predictor))

    def made(self, samples):
        """What the graph makes of samples, by feature."""
        rows = [self.feeds.row(number, sample) for number, sample in enumerate(samples)]
        return self.run(self.feeds.batch(rows))

    def run(self, tensors):
        names = [one.name.removesuffix(".made") for one in self.session.get_outputs()]
        return dict(zip(names, self.session.run(None, tensors), strict=True))

    def check(self, samples):
        """Compares both on one batch."""
        made, expected = self.made(samples), self.predictor.batch_of(samples)
        assert made.keys() == expected.keys()
        for name, tensor in expected.items():
            np.testing.assert_array_equal(made[name], tensor.numpy(), name, strict=True)

    def check_refuses(self, sample, match):
        """Checks that both refuse an input, with the same words."""
        for refuse in (self.predictor.batch_of, self.made):
            with pytest.raises(InputError, match=match):
                refuse([sample])


def of_words(words, **more):
    inputs = {
        "inputs": words,
        "gazetteer": Gazetteer("inputs", LISTS, width=WIDTH),
        "word_dense": WordReal("inputs", 3),
    }
    notes = {"gazetteer_weights": GazetteerWeights("inputs", LISTS, width=WIDTH), **more}
    return Features(inputs, TARGETS, notes=notes)


TOKENS = Words(TokenEncoder(["go", "unk"], replace_oov="unk"))
LETTERS = Words(CharacterEncoder([*"gou"]))
WHOLE = Both(of_words(TOKENS))
CUT = Both(of_words(LETTERS, starts=WordStarts("inputs", LETTERS)), 5)

FLOATS = st.one_of(
    st.sampled_from([0.0, 0.5, 0.5 + 1e-12, -1.0, 1e30]), st.floats(-1e3, 1e3, width=64)
)
WORD = st.tuples(
    st.sampled_from(["go", "o", "ugo", "Aé"]),
    st.dictionaries(st.sampled_from([*LISTS.labels, "lake", "", "\ud800"]), FLOATS),
    st.lists(FLOATS, min_size=3, max_size=3),
)
TEXTS = st.lists(WORD, max_size=5)


def sample_of(words):
    return {
        "inputs": [word for word, _, _ in words],
        "gazetteer": [entries for _, entries, _ in words],
        "word_dense": [numbers for _, _, numbers in words],
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", [WHOLE, CUT], ids=["words", "cut"])
@settings(max_examples=60)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@example(texts=[[]])
@example(texts=[[], []])
@example(texts=[[("go", {}, [0.0] * 3)]])
@example(texts=[[("go", dict.fromkeys(reversed(LISTS.labels), 1), [0, 0, 1])] * 7, []])
def test_what_words_have_is_encoded_as_in_python(asked, texts):
    asked.check([sample_of(words) for words in texts])


def test_no_empty_tensor_is_sorted():
    graph = Graph()
    labels = graph.input("labels", "string", ["batch", "words", "entries"])
    weights = graph.input("weights", "float64", ["batch", "words", "entries"])
    parts = entries_of(labels, weights, "gazetteer", LISTS.labels, WIDTH)
    for name, part, dtype in zip(("ids", "found"), parts, ("int64", "float32"), strict=True):
        graph.output(name, part, dtype, ["batch", "more", WIDTH])
    session = onnxruntime.InferenceSession(graph.model().SerializeToString())
    nothing = {"labels": np.empty((1, 0, 0), object), "weights": np.empty((1, 0, 0))}
    assert [one.shape for one in session.run(None, nothing)] == [(1, 1, WIDTH)] * 2


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"gazetteer": [{}]}, "2 words and 1 gazetteer, where one for each word was expected"),
        ({"word_dense": [[1, 2, 3]] * 3}, "2 words and 3 word_dense, where one for each"),
        ({"word_dense": [[1, 2]] * 2}, "word_dense: a word has 2 numbers, where 3 were expected"),
        ({"word_dense": "1 2 3"}, "'1 2 3' is no list of lists of numbers"),
        ({"word_dense": [[1, 2, None]] * 2}, "is no number"),
        ({"gazetteer": [["city"], {}]}, "is no mapping of gazetteer labels to weights"),
        ({"gazetteer": {"city": 1}}, "is no list of mappings of labels to weights"),
        ({"gazetteer": [{"city": []}, {}]}, r"\[\] of 'city' is no weight: a number was expected"),
        ({"gazetteer": [{"city": 1e39}, {}]}, "is not finite as a 32-bit float"),
    ],
)
def test_what_is_not_of_each_word_is_refused_as_in_python(change, match):
    sample = sample_of([("go", {"city": 1.0}, [1, 2, 3]), ("to", {}, [0, 0, 0])])
    WHOLE.check([sample])
    WHOLE.check_refuses({**sample, **change}, match)


def tensors_of(**changes):
    """Tensors of two texts, of two words and one, as another program may give them."""
    labels = np.full((2, 3, 1), "", object)
    labels[0, 1, 0] = "river"
    given = {
        "inputs": np.array(["go to", "go"], object),
        "gazetteer": labels,
        "gazetteer_weights": np.full((2, 3, 1), 0.25),
        "word_dense": np.zeros((2, 2, 3), np.float32),
    }
    return {**given, **changes}


def test_a_graph_alone_refuses_too_few_words_and_what_is_behind_them():
    found = WHOLE.run(tensors_of())
    assert found["gazetteer"].tolist() == [[[0, 0], [3, 0]], [[0, 0], [0, 0]]]
    assert found["gazetteer_weights"].tolist() == [[[0, 0], [0.25, 0]], [[0, 0], [0, 0]]]
    more = np.zeros((2, 2, 3), np.float32)
    more[1, 1, 2] = 0.5
    for changes, match in (
        ({"word_dense": np.zeros((2, 1, 3), np.float32)}, "word_dense: not one for each word"),
        ({"word_dense": more}, "word_dense: not one for each word of inputs"),
        ({"inputs": np.array(["go", "go"], object)}, "gazetteer: not one for each word of inputs"),
    ):
        with pytest.raises(Exception, match=match):
            WHOLE.run(tensors_of(**changes))


def test_too_many_entries_to_lie_in_a_tensor_are_refused():
    many = {f"label {number}": 1.0 for number in range(100)}
    words = [("go", many, [0, 0, 0])] + [("go", {}, [0, 0, 0])] * 10_000
    with pytest.raises(InputError, match=r"10001 words, of which one has 100 labels, are more"):
        WHOLE.made([sample_of(words)])
    half = sample_of([words[0], *words[1:2_500]])
    assert WHOLE.feeds.row(0, half).words["gazetteer"] == 2_500
    with pytest.raises(InputError, match=r"2501 words, of which one has 100 .* than the 250,000 "):
        WHOLE.feeds.row(0, sample_of(words[:2_501]))


def test_one_with_many_entries_is_no_load_to_others():
    def row(entries, words=1):
        many = {f"label {number}": 1.0 for number in range(entries)}
        return WHOLE.feeds.row(0, sample_of([("go", many, [0] * 3)] * words))

    assert [row(n, words=3).length for n in (0, 1, 8, 9, 16, 17)] == [3, 3, 3, 6, 6, 9]
    rows = [row(60_000), *(row(entries=n % 3) for n in range(255))]
    batches = batches_of([one.length for one in rows], 256, 20.0)
    assert sorted(map(len, batches)) == [1, 255]
    fed = [WHOLE.feeds.batch([rows[number] for number in numbers]) for numbers in batches]
    assert sum(one["gazetteer"].size for one in fed) <= 60_000 + 255 * 2


def test_a_label_of_nothing_cannot_be_told_from_none():
    lists = ClassLabelEncoder(["", "city"])
    features = Features({"inputs": TOKENS, "lists": Gazetteer("inputs", lists)}, TARGETS)
    with pytest.raises(ExportError, match="a label of 'gazetteer' is the empty string"):
        Both(features)


def test_a_picture_is_given_in_bytes():
    grey, coloured = (Both(Features({"inputs": Image(2, 3, n)}, TARGETS)) for n in (1, 3))
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (4, 2, 3, 3), np.uint8)
    coloured.check([{"inputs": one} for one in pixels])
    coloured.check([{"inputs": one.tolist()} for one in pixels])
    grey.check([{"inputs": pixels[0, ..., :1].tolist()}, {"inputs": pixels[1, ..., 0].tolist()}])
    for value, match in (
        ([[0, 1, 2], [3, 4]], "rows of different lengths"),
        ([[0, 1, 2], [3, 4, 256]], "lists of whole numbers from 0 to 255"),
        ([[0, 1, 2], [3, 4, -1]], "lists of whole numbers from 0 to 255"),
        ([[0, 1, 2], [3, 4, 0.5]], "a picture of float64"),
        ([[0, 1, 2]], r"expected \(2, 3, 1\)"),
        ("a picture", "'a picture' is no picture"),
    ):
        grey.check_refuses({"inputs": value}, match)
    coloured.check_refuses({"inputs": [[0, 1, 2], [3, 4, 5]]}, "without channels, where 3")


def test_a_signature_tells_what_each_field_is(tmp_path):
    picture = Both(Features({"inputs": Image(2, 3, 1)}, TARGETS))
    fields = (*signature_fields(WHOLE.predictor), *signature_fields(picture.predictor))
    told = dict.fromkeys(("problem", "model", "checkpoint", "created", "quantized"), "")
    told |= {"opset": 20, "step": 3}
    kept = {"targets": (), "needs_extensions": False, "made_with": {}, "files": {}}
    signature = Signature(fields=fields, **told, **kept)
    (tmp_path / "signature.json").write_text(signature.to_json(), "utf-8")
    assert Signature.read(tmp_path).fields == fields
    assert [(one.name, one.kind, one.of, one.size, one.shape) for one in fields] == [
        ("inputs", "words", "", 0, ()),
        ("gazetteer", "gazetteer", "inputs", 0, ()),
        ("word_dense", "word_numbers", "inputs", 3, ()),
        ("inputs", "image", "", 0, (2, 3, 1)),
    ]
    assert signature.to_json().count('"shape"') == 1
