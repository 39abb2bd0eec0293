"""Questions about a text in a graph: its words, its windows, and the answer as it stands in it."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_torch.decode.label_predictor import InputError, LabelPredictor
from t2t_torch.errors import ExportError
from t2t_torch.export.answers import add_answers, windows_of
from t2t_torch.export.graph import Graph
from t2t_torch.export.text_graph import InputGraph
from t2t_torch.features import Features, Gazetteer, Span, Words, WordShape, WordStarts
from t2t_torch.hparam import HParams
from t2t_torch.problem_types.words import SpanQAProblem
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.text.encoder import CharacterEncoder, ClassLabelEncoder, TokenEncoder

SIGNS = (
    "ab1_ \t\n\u00a0.,-'\x00é\u0301\u200d々漢かカー\uff66\u3099\u302a\U00020001\u0903\u0e01\u0e31"
)
TEXTS = st.one_of(
    st.text(SIGNS, max_size=20),
    st.lists(st.sampled_from(["the", "Cat", "漢字", "a.b", "é\u0301"]), max_size=30).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


class Asked(SpanQAProblem):
    """Questions about texts of four words, which overlap by one."""

    name = "asked"
    max_context = 4
    context_stride = 3

    def generate_samples(self, tmp_dir, split):
        """Yields nothing."""
        return iter(())


class Network(torch.nn.Module):
    """What a predictor asks a model for before it asks it for an answer."""

    def __init__(self, limit=0):
        super().__init__()
        self.hparams = HParams(max_input_seq_length=limit)
        self.weight = torch.nn.Parameter(torch.zeros(1))


class Both:
    """A predictor, and a graph of what it makes of its inputs."""

    def __init__(self, features, limit=0):
        problem = Asked()
        self.predictor = LabelPredictor(Network(limit), problem, features)
        graph = Graph()
        limits = self.predictor.limits
        for name, value in InputGraph(graph, problem, features, limits).encoded().items():
            shape = ["windows", *features.all[name].shape]
            graph.output(f"{name}.made", value, "int64", shape)
        self.session = session_of(graph)

    def check(self, samples):
        """Compares both on one batch; where a text has no word, both refuse."""
        try:
            expected = self.predictor.batch_of(samples)
        except InputError as error:
            assert "a question or a context without a word" in error.why
            with pytest.raises(Exception, match="a question or a context without a word"):
                self.made(samples)
            return
        made = self.made(samples)
        assert made.keys() == expected.keys()
        for name, tensor in expected.items():
            np.testing.assert_array_equal(made[name], tensor.numpy(), name, strict=True)

    def made(self, samples):
        given = {
            name: np.array([sample[name] for sample in samples], object)
            for name in ("question", "context")
        }
        names = [one.name.removesuffix(".made") for one in self.session.get_outputs()]
        return dict(zip(names, self.session.run(None, given), strict=True))


def session_of(graph):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph.model().SerializeToString(), options)


def features_of(encoder, **more):
    words = Words(encoder)
    notes = {}
    if isinstance(encoder, CharacterEncoder):
        notes["starts"] = WordStarts("context", words)
    inputs = {"question": words, "context": words, "shapes": WordShape("context"), **more}
    return Features(inputs, {"targets": Span("context")}, notes=notes)


TOKENS = TokenEncoder(["the", "a", "unk", "漢", "."], replace_oov="unk")
CASES = {
    "words": lambda: Both(features_of(TOKENS)),
    "words, cut": lambda: Both(features_of(TOKENS), 3),
    "characters": lambda: Both(features_of(CharacterEncoder([*"aé漢. "])), 7),
}
both = functools.cache(lambda name: CASES[name]())


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
@example(pairs=[("a", "a b c d")])
@example(pairs=[("a", "a b c d e"), ("who is it?", "a"), ("b", "x " * 30)])
@example(pairs=[("a", "a"), (" ", "b")])
def test_windows_are_encoded_as_in_python(name, pairs):
    both(name).check([{"question": one, "context": other} for one, other in pairs])


@functools.cache
def answering():
    """A graph of what is answered from spans and probabilities of windows, which it is given."""
    graph, problem = Graph(), Asked()
    windows = windows_of(graph, problem)
    found = {
        "targets.numbers": graph.input("spans", "int64", ["windows", 2]),
        "targets.probability": graph.input("sure", "float32", ["windows"]),
    }
    add_answers(graph, features_of(TOKENS), found, windows)
    return session_of(graph)


@settings(max_examples=120)
@given(st.lists(TEXTS.map("a".__add__), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_an_answer_is_the_most_probable_of_all_windows_as_it_stands_in_the_text(contexts, draw):
    problem = Asked()
    spans, sure, expected = [], [], []
    for context in contexts:
        sample = {"question": "who", "context": context}
        found = []
        for window in problem.inputs_of(sample):
            last = draw.randrange(len(window["context"]))
            its = (draw.randint(0, last), last) if draw.random() < 0.7 else None
            found.append(
                Prediction.of_value(
                    "targets", its, float(np.float32(draw.choice([0.0, 0.25, draw.random()])))
                )
            )
            spans.append(its or (-1, -1))
            sure.append(found[-1].probability)
        expected.append(problem.answer_of("targets", found, sample))
    given_ = {
        "question": np.array(["who"] * len(contexts), object),
        "context": np.array(contexts, object),
        "spans": np.array(spans),
        "sure": np.array(sure, np.float32),
    }
    texts, places, probabilities = answering().run(None, given_)
    assert texts.tolist() == [one.value for one in expected]
    assert probabilities.tolist() == [one.probability for one in expected]
    for context, text, (start, end) in zip(contexts, texts, places.tolist(), strict=True):
        assert (start, end) == (-1, -1) if not text else context[start:end] == text


def test_a_graph_says_what_it_answers():
    names = [one.name for one in answering().get_outputs()]
    assert names == ["targets", "targets_span", "targets_probability"]


class Otherwise(Asked):
    """Answers that Python code makes."""

    def answer_of(self, target, found, sample):
        """Returns the answer in capitals."""
        one = super().answer_of(target, found, sample)
        return one._replace(value=one.value.upper())


def test_what_cannot_stand_in_a_graph_is_refused():
    with pytest.raises(ExportError, match=r"'asked' makes answers in Python \(`answer_of`\)"):
        windows_of(Graph(), Otherwise())
    lists = Gazetteer("context", ClassLabelEncoder(["x"]))
    with pytest.raises(ExportError, match="'g' is Gazetteer, given of words that are found"):
        Both(features_of(TOKENS, g=lists))
