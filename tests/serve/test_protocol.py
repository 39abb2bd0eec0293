"""The Open Inference Protocol v2, held against its published schema."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from served import ROW, Served, StubModel, length_of, stub_source

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime.prediction import Hypothesis, Prediction
from t2t_torch.serve.model import ServedModel
from t2t_torch.serve.repository import ModelSource

SCHEMA = json.loads(Path(__file__).with_name("open_inference.json").read_text("utf-8"))
INPUTS = [
    {"name": "inputs", "shape": [2], "datatype": "BYTES", "data": ["go to oslo", "go"]},
    {"name": "pos", "shape": [2, 1], "datatype": "BYTES", "data": [["X X X"], ["X"]]},
    {"name": "note", "shape": [2], "datatype": "BYTES", "data": ["", "n"]},
    {"name": "dense", "shape": [2, 2], "datatype": "FP32", "data": [1, 2.5, 0, 1]},
]


def check(kind: str, told: Any) -> Any:
    """Holds a response against a part of the schema; returns it."""
    jsonschema.validate(told, {**SCHEMA, "$ref": f"#/$defs/{kind}"})
    for output in told.get("outputs", ()) if kind == "inference_response" else ():
        assert len(output["data"]) == math.prod(output["shape"])
    return told


def infer(server: Served, **request: Any) -> Any:
    answer = server.post("/v2/models/made/infer", {"inputs": INPUTS, **request})
    assert answer.status_code == 200, answer.text
    return check("inference_response", answer.json())


def test_the_server_says_what_it_is_and_that_it_is_ready(server: Served) -> None:
    assert check("metadata_server_response", server.get("/v2").json())["name"] == "t2t_torch"
    assert server.get("/v2/").json() == server.get("/v2").json()
    assert check("live_server_response", server.get("/v2/health/live").json()) == {"live": True}
    assert check("ready_server_response", server.get("/v2/health/ready").json()) == {"ready": True}
    ready = check("ready_model_response", server.get("/v2/models/made/ready").json())
    assert ready == {"name": "made", "ready": True}
    assert server.get("/v2/models/made/versions/3/ready").json() == ready


def test_a_model_tells_its_inputs_and_outputs(server: Served) -> None:
    told = check("metadata_model_response", server.get("/v2/models/made").json())
    assert told == server.get("/v2/models/made/versions/3").json()
    assert (told["versions"], told["platform"]) == (["3"], "onnxruntime_onnx")
    assert [(one["name"], one["datatype"], one["shape"]) for one in told["inputs"]] == [
        ("inputs", "BYTES", [-1]),
        ("pos", "BYTES", [-1]),
        ("note", "BYTES", [-1]),
        ("dense", "FP32", [-1, 2]),
    ]
    outputs = {one["name"]: (one["datatype"], one["shape"]) for one in told["outputs"]}
    assert outputs == {
        "slots": ("BYTES", [-1, -1]),
        "slots_lengths": ("INT64", [-1]),
        "slots_scores": ("FP32", [-1, -1]),
        "intent": ("BYTES", [-1]),
        "intent_probability": ("FP32", [-1]),
        "intent_scores": ("FP32", [-1, 2]),
        "topics": ("BOOL", [-1, 2]),
        "topics_scores": ("FP32", [-1, 2]),
        "doubled": ("FP32", [-1, 2]),
    }


def test_tensors_are_answered_with_tensors(server: Served) -> None:
    told = infer(server, id="42", parameters={"tenant": "a"})
    assert (told["id"], told["parameters"]) == ("42", {"tenant": "a"})
    assert (told["model_name"], told["model_version"]) == ("made", "3")
    outputs = {one["name"]: one for one in told["outputs"]}
    metadata = server.get("/v2/models/made").json()["outputs"]
    assert list(outputs) == [one["name"] for one in metadata]
    for one in metadata:
        assert outputs[one["name"]]["datatype"] == one["datatype"]
        sizes = zip(outputs[one["name"]]["shape"], one["shape"], strict=True)
        assert all(size == told or told == -1 for size, told in sizes)
    assert outputs["slots"]["data"] == ["O", "O", "B-city", "O", "", ""]
    assert outputs["slots_lengths"]["data"] == [3, 1]
    assert outputs["intent"]["data"] == ["go", "go"]
    assert outputs["intent_scores"]["data"] == pytest.approx([0.047426, 0.952574] * 2, abs=1e-6)
    assert json.loads(outputs["intent_scores"]["parameters"]["labels"]) == ["stay", "go"]
    assert outputs["topics"]["data"] == [False, True] * 2
    assert outputs["doubled"]["data"] == [2.0, 5.0, 0.0, 2.0]


def test_parameters_of_a_client_s_own_are_none_of_an_extension(server: Served) -> None:
    own = {"timeout_of": 1, "priority_class": "a", "sequence_number": 2, "classification_id": 3}
    own["shared_memory"] = True
    assert infer(server, parameters=own)["parameters"] == own


def test_outputs_that_are_asked_for_come_in_that_order(server: Served) -> None:
    told = infer(server, outputs=[{"name": "topics"}, {"name": "intent"}])
    assert [one["name"] for one in told["outputs"]] == ["topics", "intent"]
    assert "id" not in told and "parameters" not in told
    assert infer(server, outputs=[])["outputs"] == []


def test_numbers_may_be_whole(server: Served) -> None:
    whole = [*INPUTS[:3], {**INPUTS[3], "datatype": "INT64", "data": [[1, 2], [0, 1]]}]
    answer = server.post(
        "/v2/models/made/infer", {"inputs": whole, "outputs": [{"name": "doubled"}]}
    )
    assert answer.json()["outputs"][0]["data"] == [2.0, 4.0, 0.0, 2.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": INPUTS[:3]}, "takes inputs, pos, note, dense, each once"),
        ({"inputs": [*INPUTS, INPUTS[0]]}, "each once"),
        ({"inputs": [{**INPUTS[0], "shape": [3]}, *INPUTS[1:]]}, "shape [3] and 2 elements"),
        ({"inputs": [{**INPUTS[0], "shape": [1, 2]}, *INPUTS[1:]]}, "expected [N] or [N, 1]"),
        ({"inputs": [{**INPUTS[0], "datatype": "FP32"}, *INPUTS[1:]]}, "strings: BYTES"),
        ({"inputs": [{**INPUTS[0], "data": ["a", 1]}, *INPUTS[1:]]}, "element 1 of 'inputs'"),
        ({"inputs": [{**INPUTS[0], "data": ["a", ["b"]]}, *INPUTS[1:]]}, "element 1"),
        ({"inputs": [{**INPUTS[0], "shape": [1], "data": ["a"]}, *INPUTS[1:]]}, "first dimensions"),
        ({"inputs": [{**INPUTS[0], "shape": [-2]}, *INPUTS[1:]]}, "inputs.0.shape.0"),
        ({"inputs": [{**INPUTS[0], "shape": ["2"]}, *INPUTS[1:]]}, "inputs.0.shape.0"),
        ({"inputs": [*INPUTS[:3], {**INPUTS[3], "shape": [4]}]}, "expected [N, 2]"),
        ({"inputs": [*INPUTS[:3], {**INPUTS[3], "data": [1, 2, 3, True]}]}, "no finite number"),
        ({"inputs": [*INPUTS[:3], {**INPUTS[3], "data": [1, 2, 3, 1e39]}]}, "no finite number"),
        ({"inputs": [*INPUTS[:3], {**INPUTS[3], "data": [1, 2, 3, "4"]}]}, "element 3"),
        ({"inputs": [*INPUTS[:3], {**INPUTS[3], "datatype": "BOOL"}]}, "numbers: FP16"),
        ({"outputs": [{"name": "labels"}]}, "no output 'labels'; there are slots"),
        ({"outputs": [{"name": "slots_probability"}]}, "no output 'slots_probability'"),
        ({"outputs": [{"name": "topics"}, {"name": "intent"}] * 2}, "'topics' is requested twice"),
        ({"parameters": {"shared_memory_region": "a"}}, "'shared_memory_region' requests an ext"),
        ({"parameters": {"timeout": 5}}, "the parameter 'timeout' requests an extension"),
        ({"parameters": {"triton_enable_empty_final_response": True}}, "'triton_enable_empty"),
        (
            {"outputs": [{"name": "intent", "parameters": {"classification": 2}}]},
            "'classification'",
        ),
        (
            {
                "inputs": [
                    {
                        "name": "inputs",
                        "shape": [1],
                        "datatype": "BYTES",
                        "parameters": {"shared_memory_byte_size": 3},
                    }
                ]
            },
            "'shared_memory_byte_size'",
        ),
        (
            {"inputs": [{**INPUTS[0], "shape": [1] * 9}]},
            "inputs.0.shape: List should have at most 8",
        ),
        ({"inputs": [{**INPUTS[0], "shape": [2**31]}]}, "inputs.0.shape.0: Input should be less"),
        ({"inputs": [1] * 1001}, "inputs: List should have at most 1000 items"),
        ({"outputs": [1] * 1001}, "outputs: List should have at most 1000 items"),
        ({"parameters": {"a": []}}, "parameters: 'a' is no string, number or boolean"),
        ({"id": 5}, "id: Input should be a valid string"),
        ({"inputs": "go"}, "inputs: Input should be a valid list"),
    ],
)
def test_what_is_no_request_of_the_protocol_is_told_what_is_wrong(
    server: Served, change: dict[str, Any], message: str
) -> None:
    answer = server.post("/v2/models/made/infer", {"inputs": INPUTS, **change})
    assert answer.status_code == 400
    assert message in check("error_response", answer.json())["error"]


def test_what_there_is_not_is_told_with_what_there_is(server: Served) -> None:
    for path, message in {
        "/v2/models/other": "there is no model 'other'; there are: made.",
        "/v2/models/made/versions/4": "has no version '4'; there are: 3.",
        "/v2/nowhere": "GET /v2/nowhere: Not Found.",
    }.items():
        answer = server.get(path)
        assert answer.status_code == 404
        assert message in check("error_response", answer.json())["error"]
    answer = server.get("/v2/models/made/infer")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    check("error_response", answer.json())


def test_inputs_without_elements_are_refused(server: Served) -> None:
    empty = [{**one, "shape": [0, *one["shape"][1:]], "data": []} for one in INPUTS]
    answer = server.post("/v2/models/made/infer", {"inputs": empty})
    assert (answer.status_code, "first dimension is 0" in answer.text) == (400, True)


def test_texts_are_answered_with_their_hypotheses(serve) -> None:
    def ask(samples, stop):
        second = (Hypothesis("gut", (7,), -1.5),)
        return [
            Prediction.of_texts(
                "targets", (Hypothesis(one["inputs"].upper(), (4, 5), -0.5), *second * number)
            )
            for number, one in enumerate(samples, start=1)
        ]

    def load(name: str, version: str, path: Path) -> ServedModel:
        fields, targets = [InputSpec("inputs", "text")], [OutputSpec("targets", "text")]
        return StubModel(name, "7", "p", "m", "none", fields, targets, ask)

    server = serve(ModelSource("texts", Path(), load, is_run=True))
    tensor = {"name": "inputs", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}
    answer = server.post("/v2/models/texts/infer", {"inputs": [tensor]})
    told = {one["name"]: one for one in check("inference_response", answer.json())["outputs"]}
    assert (told["targets"]["shape"], told["targets_scores"]["shape"]) == ([2, 3], [2, 3])
    assert told["targets"]["data"] == ["A", "gut", "", "B", "gut", "gut"]
    assert told["targets_scores"]["data"] == [-0.5, -1.5, -1e9, -0.5, -1.5, -1.5]
    ids = told["targets_ids"]
    assert (ids["datatype"], ids["shape"]) == ("INT64", [2, 3, 2])
    assert ids["data"] == [4, 5, 7, 0, 0, 0, 4, 5, 7, 0, 7, 0]
    metadata = server.get("/v2/models/texts").json()["outputs"]
    assert metadata[2] == {"name": "targets_ids", "datatype": "INT64", "shape": [-1, -1, -1]}
    records = server.post("/predict", {"inputs": ["a"]}).json()["outputs"]
    assert records[0]["targets"]["hypotheses"][1] == {"value": "gut", "score": -1.5}


def test_plain_json_is_answered_with_records_by_target(server: Served) -> None:
    told = server.post("/predict", {"inputs": [ROW, {**ROW, "inputs": ["go"], "pos": "X"}]}).json()
    assert (told["model"], told["version"]) == ("made", "3")
    first, second = told["outputs"]
    assert first["intent"]["value"] == "go"
    assert first["intent"]["probabilities"] == {"go": 0.952574, "stay": 0.047426}
    assert first["slots"]["words"] == ["go", "to", "oslo"]
    assert first["slots"]["spans"] == [{"kind": "city", "first": 2, "last": 2, "text": "oslo"}]
    assert first["doubled"] == {"value": [2.0, 5.0]}
    assert second["slots"]["value"] == ["O"]
    best = server.post("/models/made/predict", {"inputs": [ROW], "best": 1}).json()["outputs"][0]
    assert best["intent"]["probabilities"] == {"go": 0.952574}
    assert server.post("/models/made/versions/3/predict", {"inputs": []}).json()["outputs"] == []


def test_of_several_models_one_is_named(serve) -> None:
    server = serve(stub_source(length_of, "a"), stub_source(length_of, "b"))
    answer = server.post("/predict", {"inputs": ["x"]})
    assert (answer.status_code, "a, b. Ask one of them" in answer.text) == (404, True)
    assert server.post("/models/b/predict", {"inputs": ["x"]}).json()["model"] == "b"


def test_the_description_names_what_the_published_one_requires(server: Served) -> None:
    told = server.get("/openapi.json").json()
    schemas = told["components"]["schemas"]
    for name, ours in {
        "metadata_server_response": "ServerMetadata",
        "metadata_tensor": "TensorMetadata",
        "response_output": "ResponseOutput",
        "inference_response": "InferenceResponse",
    }.items():
        published = SCHEMA["$defs"][name]
        assert set(published["required"]) <= set(schemas[ours]["required"])
        assert set(published["properties"]) == set(schemas[ours]["properties"])
    infer = told["paths"]["/v2/models/{model}/infer"]["post"]
    assert infer["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/InferenceRequest"
    )
    assert {one["name"] for one in infer["parameters"] if one["in"] == "path"} == {"model"}
    assert {"data"} <= set(schemas["InputTensor"]["required"])
