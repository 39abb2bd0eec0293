"""Tensors as bytes behind the JSON, as Triton's clients send them unless told otherwise."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as some
from served import Served, length_of, stub_source
from test_protocol import INPUTS

from t2t_torch.serve import tensors
from t2t_torch.serve.protocol import HEADER

PLACE = "/v2/models/made/infer"


def of_texts(*texts: str) -> bytes:
    """Texts as elements of a tensor."""
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


BLOBS = {
    "inputs": of_texts("go to oslo", "go"),
    "pos": of_texts("X X X", "X"),
    "note": of_texts("", "n"),
    "dense": np.array([1, 2.5, 0, 1], "<f4").tobytes(),
}


def sent(told: dict[str, Any], behind: bytes, length: int | None = None) -> dict[str, Any]:
    """The keywords of a request."""
    text = json.dumps(told).encode()
    headers = {"Content-Type": "application/octet-stream", HEADER: str(length or len(text))}
    return {"content": text + behind, "headers": headers}


def request_of(as_bytes: tuple[str, ...] = tuple(BLOBS), **more: Any) -> dict[str, Any]:
    """A request of which some tensors are bytes."""
    inputs: list[dict[str, Any]] = []
    for tensor in INPUTS:
        if tensor["name"] in as_bytes:
            size = len(BLOBS[str(tensor["name"])])
            tensor = {**tensor, "parameters": {"binary_data_size": size}}
            del tensor["data"]
        inputs.append(tensor)
    behind = b"".join(BLOBS[str(one["name"])] for one in INPUTS if one["name"] in as_bytes)
    return sent({"inputs": inputs, **more}, behind)


def read(answer: Any) -> dict[str, Any]:
    """The outputs of a response by name, with data wherever they were."""
    assert answer.status_code == 200, answer.text
    length = int(answer.headers[HEADER])
    told, behind = json.loads(answer.content[:length]), answer.content[length:]
    found = {}
    for output in told["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[output["name"]] = output["data"]
            continue
        assert "data" not in output
        blob, behind = behind[:size], behind[size:]
        if output["datatype"] == "BYTES":
            texts = []
            while blob:
                (count,) = struct.unpack_from("<I", blob)
                texts.append(blob[4 : 4 + count].decode())
                blob = blob[4 + count :]
            found[output["name"]] = texts
        else:
            kind = {"FP32": "<f4", "INT64": "<i8", "BOOL": "?"}[output["datatype"]]
            found[output["name"]] = np.frombuffer(blob, kind).tolist()
    assert not behind
    return found


@pytest.mark.parametrize("as_bytes", [tuple(BLOBS), ("inputs", "dense"), ("pos",)])
def test_tensors_of_bytes_are_answered_as_those_in_json(
    server: Served, as_bytes: tuple[str, ...]
) -> None:
    plain = server.post(PLACE, {"inputs": INPUTS}).json()
    assert server.post(PLACE, **request_of(as_bytes)).json() == plain


def test_all_outputs_or_some_are_answered_as_bytes(server: Served) -> None:
    plain = {
        one["name"]: one["data"] for one in server.post(PLACE, {"inputs": INPUTS}).json()["outputs"]
    }
    every = read(server.post(PLACE, **request_of(parameters={"binary_data_output": True})))
    assert every.keys() == plain.keys()
    assert every["slots"] == plain["slots"]
    assert every["topics"] == plain["topics"]
    assert every["doubled"] == pytest.approx(plain["doubled"])
    wanted = [
        {"name": "intent_scores", "parameters": {"binary_data": True}},
        {"name": "intent", "parameters": {"binary_data": False}},
    ]
    answer = server.post(PLACE, {"inputs": INPUTS, "outputs": wanted})
    assert read(answer) == {
        "intent_scores": pytest.approx(plain["intent_scores"]),
        "intent": plain["intent"],
    }
    # Of one that says no, all the same where all others are wanted so.
    told = {"inputs": INPUTS, "outputs": wanted[1:], "parameters": {"binary_data_output": True}}
    assert server.post(PLACE, told).json()["outputs"][0]["data"] == plain["intent"]


def test_the_server_says_that_it_can(server: Served) -> None:
    assert server.get("/v2").json()["extensions"] == ["binary_tensor_data"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda told: told[0].update(data=["go", "go"]), "expected one"),
        (lambda told: told[0]["parameters"].update(binary_data_size=-1), "no number of bytes"),
        (lambda told: told[0]["parameters"].update(binary_data_size=True), "no number of bytes"),
        (lambda told: told[0]["parameters"].update(binary_data_size=10**9), "are left"),
        (lambda told: told[0]["parameters"].update(binary_data_size=3), "element 0 goes beyond"),
        (
            lambda told: (
                told[3]["parameters"].update(binary_data_size=8),
                told[3].update(shape=[1, 2]),
            ),
            "of no tensor",
        ),
        (lambda told: told[3].update(datatype="FP99"), "no elements of FP99"),
        (lambda told: told[3].update(shape=[4]), "expected [N, 2]"),
        (lambda told: told[3].update(shape=[2, 3]), "has the shape [2, 3] and 4 elements"),
        (lambda told: told[0].update(shape=[1]), "has the shape [1] and more than 1 elements"),
        (lambda told: told[0].update(shape=[3]), "has the shape [3] and 2 elements"),
        (lambda told: told[0].update(shape=[2] * 9), "inputs.0.shape: List should have at most 8"),
        (
            lambda told: told[0].update(name=[["x"]]),
            "inputs.0.name: Input should be a valid string",
        ),
        (lambda told: told[0].pop("parameters"), "inputs.0.data: Field required"),
        (lambda told: told[0].update(datatype="FP32"), "5 elements"),
    ],
)
def test_bytes_that_are_not_what_the_json_says_are_refused(
    server: Served, change: Any, why: str
) -> None:
    given = request_of()
    length = int(given["headers"][HEADER])
    told = json.loads(given["content"][:length])
    change(told["inputs"])
    answer = server.post(PLACE, **sent(told, given["content"][length:]))
    assert answer.status_code == 400
    assert why in answer.json()["error"]


@pytest.mark.parametrize("length", ["", "x", "-1", "1e3", "999999999", "9" * 30, "²"])
def test_a_length_that_is_none_is_refused(server: Served, length: str) -> None:
    given = request_of()
    headers = {**given["headers"], HEADER: length.encode("utf-8")}
    answer = server.post(PLACE, content=given["content"], headers=headers)
    assert (answer.status_code, HEADER in answer.json()["error"]) == (400, True)


def test_too_many_inputs_are_refused_before_their_bytes_are_read(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(tensors, "_elements", never)
    tensor = {"shape": [65], "datatype": "BYTES", "parameters": {"binary_data_size": 260}}
    told = {"inputs": [{"name": "inputs", **tensor}]}
    answer = server.post(PLACE, **sent(told, b"\0" * 260))
    assert (answer.status_code, "has 65 inputs, and 64 are" in answer.text) == (413, True)


@pytest.mark.parametrize("value", ["false", 0, 1.0])
def test_what_says_which_outputs_are_bytes_is_a_boolean(server: Served, value: Any) -> None:
    every = {"parameters": {"binary_data_output": value}}
    one = {"outputs": [{"name": "intent", "parameters": {"binary_data": value}}]}
    for name, more in {"binary_data_output": every, "binary_data": one}.items():
        answer = server.post(PLACE, {"inputs": INPUTS, **more})
        assert answer.status_code == 400
        message = f"the parameter {name} is {value!r}: expected a boolean"
        assert message in answer.json()["error"]


def test_a_text_without_json_is_refused(serve: Callable[..., Served]) -> None:
    headers = {"Content-Type": "application/octet-stream", HEADER: "0"}
    server = serve(stub_source(length_of))
    answer = server.post("/v2/models/stub/infer", content=b"go to oslo", headers=headers)
    assert answer.status_code == 400
    assert "0, a text without JSON, is not supported" in answer.json()["error"]


def test_bytes_are_for_tensors_alone(server: Served) -> None:
    given = request_of()
    for place in ("/predict", "/models/made/predict"):
        assert server.post(place, **given).status_code in (400, 415)
    without = {"Content-Type": "application/octet-stream"}
    assert server.post(PLACE, content=given["content"], headers=without).status_code == 415


@hypothesis.settings(
    max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
    some.binary(max_size=60), some.integers(0, 400), some.integers(0, 70), some.sampled_from("abc")
)
def test_no_bytes_are_a_defect(server: Served, noise: bytes, at: int, size: int, how: str) -> None:
    given = request_of(parameters={"binary_data_output": True})
    body, length = given["content"], int(given["headers"][HEADER])
    if how == "a":  # other bytes
        body = body[:at] + noise + body[at + len(noise) :]
    elif how == "b":  # another length
        length = at
    else:  # other bytes behind, and another size
        told = json.loads(body[:length])
        told["inputs"][at % 4]["parameters"]["binary_data_size"] = size
        text = json.dumps(told).encode()
        body, length = text + noise + body[length:], len(text)
    headers = {"Content-Type": "application/octet-stream", HEADER: str(length)}
    answer = server.post(PLACE, content=body, headers=headers)
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
