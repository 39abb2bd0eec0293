"""A user's own kinds of feature are exported by what is registered for them, and served."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.errors import ExportError
from t2t_torch.export import GraphOutput, decode_graph, encode_graph, has_graph
from t2t_torch.export.answers import add_answers
from t2t_torch.export.graph import Graph, Proxy
from t2t_torch.export.targets import signature_fields
from t2t_torch.export.text_graph import InputGraph
from t2t_torch.features import Feature, Features, InputSpec, OutputSpec
from t2t_torch.hparam import HParams
from t2t_torch.problem import Problem
from t2t_torch.runtime.feeds import Feeds, answers_of
from t2t_torch.serve.model import ServedModel
from t2t_torch.serve.tensors import input_metadata, output_metadata


@dataclass(frozen=True)
class Angle(Feature):
    """Degrees, as sine and cosine; `[B, 2]` in a batch."""

    arrow_type = "list<float32>"
    shape = (2,)

    def encode(self, value: Any) -> list[float]:
        radians = math.radians(value[0] if isinstance(value, list) else value)
        return [math.sin(radians), math.cos(radians)]

    def decode(self, ids: Any) -> list[float]:
        return [math.degrees(math.atan2(*ids))]

    def input_spec(self, name: str, features: Features) -> InputSpec:
        return InputSpec(name, "numbers", "float32", size=1)


@encode_graph.register(Angle)
def encode_angle(feature: Angle, name: str, inputs: Any) -> Proxy:
    degrees, graph = inputs.input(name, "float32", [1]), inputs.graph
    radians = graph.add("Mul", degrees, graph.constant(math.pi / 180, "float32"))
    return graph.add("Concat", graph.add("Sin", radians), graph.add("Cos", radians), axis=1)


@dataclass(frozen=True)
class Stars(Feature):
    """A rating from one star to five; `[B]` in a batch."""

    arrow_type = "list<int32>"
    shape = ()
    labels = tuple("*" * count for count in range(1, 6))

    def encode(self, value: str) -> list[int]:
        return [len(value) - 1]

    def decode(self, ids: Sequence[int]) -> str:
        return "*" * (1 + next(iter(ids)))

    def output_spec(self, name: str, features: Features) -> OutputSpec:
        return OutputSpec(name, "class", self.labels)


@decode_graph.register(Stars)
def decode_stars(
    feature: Stars, name: str, outputs: Mapping[str, Proxy], graph: Graph
) -> GraphOutput:
    only = graph.add("Squeeze", outputs[f"{name}.numbers"], graph.constant([1]))
    return graph.add("Gather", graph.constant(list(feature.labels)), only), "string", ()


FEATURES = Features({"direction": Angle()}, {"rating": Stars()})


class Winds(Problem):
    """A problem of a direction and a rating."""

    name = "winds"

    def generate_samples(self, tmp_dir: Any, split: Any) -> Any:
        """Yields nothing."""
        return iter(())

    def stored_features(self, directory: Any) -> Features:
        """Returns its own."""
        return FEATURES


class Network(torch.nn.Module):
    """A model that is asked for nothing but its settings."""

    def __init__(self) -> None:
        super().__init__()
        self.hparams = HParams()
        self.weight = torch.nn.Parameter(torch.zeros(1))


class Served(ServedModel):
    """A served model of these features."""

    def predict(self, samples: Any, token: Any) -> Any:
        raise NotImplementedError


def test_a_graph_encodes_an_own_input_as_the_feature_does() -> None:
    network: Any = Network()
    predictor, graph = LabelPredictor(network, Winds(), FEATURES), Graph()
    (made,) = InputGraph(graph, Winds(), FEATURES, predictor.limits).encoded().values()
    graph.output("made", made, "float32", ["batch", 2])
    session = onnxruntime.InferenceSession(graph.model().SerializeToString())
    feeds = Feeds(signature_fields(predictor))
    rows = [feeds.row(0, {"direction": 30}), feeds.row(1, {"direction": [-90.0]})]
    (found,) = session.run(None, feeds.batch(rows))
    expected = predictor.batch_of([{"direction": 30}, {"direction": [-90.0]}])["direction"]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


def test_a_graph_answers_with_an_own_target_and_says_its_kind() -> None:
    graph = Graph()
    numbers = graph.input("numbers", "int64", ["batch", 1])
    add_answers(graph, FEATURES, {"rating.numbers": numbers})
    session = onnxruntime.InferenceSession(graph.model().SerializeToString())
    outputs = {"rating": session.run(None, {"numbers": np.array([[2], [0]])})[0]}
    assert has_graph(decode_graph, Stars()) and not has_graph(decode_graph, Angle())
    spec = FEATURES.targets["rating"].output_spec("rating", FEATURES)
    rows = [Feeds(()).row(0, {}), Feeds(()).row(1, {})]
    assert [one.values for one in answers_of([spec], outputs, rows)] == [
        {"rating": "***"},
        {"rating": "*"},
    ]


def test_a_kind_that_is_not_registered_is_refused_with_the_function_to_register() -> None:
    graph, network = Graph(), Network()
    given = Features({"direction": Stars()}, {"rating": Angle()})
    limits = LabelPredictor(network, Winds(), FEATURES).limits  # type: ignore[arg-type]
    with pytest.raises(ExportError, match=r"'direction' is Stars.*export.encode_graph.*docs/"):
        InputGraph(graph, Winds(), given, limits).encoded()
    with pytest.raises(ExportError, match=r"'rating' is a Angle.*export.decode_graph.*docs/"):
        add_answers(graph, given, {})


def test_registering_an_own_kind_imports_neither_torch_nor_onnx() -> None:
    script = (
        "import sys\nfor name in ('torch', 'onnx', 'onnxruntime'): sys.modules[name] = None\n"
        "from t2t_torch.export import encode_graph, decode_graph, encoder_graph, decode_ids\n"
        "from t2t_torch.features import Feature\n"
        "encode_graph.register(Feature, lambda feature, name, inputs: name)\n"
        "print('registered')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "registered\n"


def test_a_server_publishes_the_specifications_of_own_features() -> None:
    field = FEATURES.inputs["direction"].input_spec("direction", FEATURES)
    target = FEATURES.targets["rating"].output_spec("rating", FEATURES)
    model = Served("winds", "1", "winds", "m", "none", [field], [target])
    assert input_metadata(field) == [{"name": "direction", "datatype": "FP32", "shape": [-1, 1]}]
    names = [one["name"] for one in output_metadata(model)]
    assert names == ["rating", "rating_probability", "rating_scores"]
