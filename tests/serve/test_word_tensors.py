"""Entries and numbers of words, and pictures, as tensors and as JSON."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from served import LISTED, Served, listed_source

from t2t_torch.features import InputSpec
from t2t_torch.serve import tensors
from t2t_torch.serve.model import extent_of
from t2t_torch.serve.protocol import InputTensor
from t2t_torch.serve.tensors import word_column_of

TENSORS: dict[str, dict[str, Any]] = {
    "inputs": {"datatype": "BYTES", "shape": [2], "data": ["go to oslo", "go"]},
    "lists": {
        "datatype": "BYTES",
        "shape": [2, 3, 2],
        "data": ["", "", "", "", "city", "name", "city", "", "", "", "", ""],
    },
    "lists_weights": {
        "datatype": "FP64",
        "shape": [2, 3, 2],
        "data": [0, 0, 0, 0, 0.9, 0.25, 1, 0, 0, 0, 0, 0],
    },
    "vectors": {
        "datatype": "FP32",
        "shape": [2, 3, 2],
        "data": [[[0, 1], [0.5, 0], [0, 0]], [[0, 0], [0, 0], [0, 0]]],
    },
    "picture": {"datatype": "UINT8", "shape": [2, 1, 2, 3], "data": [0, 1, 2, 3, 4, 255, *[0] * 6]},
}
SECOND = {
    "inputs": "go",
    "lists": [{"city": 1}],
    "vectors": [[0, 0]],
    "picture": [[[0, 0, 0], [0, 0, 0]]],
}


def infer(server: Served, **changes: dict[str, Any]) -> Any:
    given = copy.deepcopy(TENSORS)
    for name, change in changes.items():
        given[name] |= change
    inputs = [{"name": name, **its} for name, its in given.items()]
    return server.post("/v2/models/listed/infer", {"inputs": inputs})


@pytest.fixture
def asked() -> list[Any]:
    """What the model was asked."""
    return []


@pytest.fixture
def listed(serve: Callable[..., Served], asked: list[Any]) -> Served:
    """A server of a model of all these kinds."""
    return serve(listed_source(asked))


def test_metadata_tell_the_tensors_of_each_field(listed: Served) -> None:
    told = listed.get("/v2/models/listed").json()
    assert [(one["name"], one["datatype"], one["shape"]) for one in told["inputs"]] == [
        ("lists", "BYTES", [-1, -1, -1]),
        ("lists_weights", "FP64", [-1, -1, -1]),
        ("inputs", "BYTES", [-1]),
        ("vectors", "FP32", [-1, -1, 2]),
        ("picture", "UINT8", [-1, 1, 2, 3]),
    ]
    assert told["outputs"] == [
        {"name": "part", "datatype": "BYTES", "shape": [-1]},
        {"name": "part_probability", "datatype": "FP32", "shape": [-1]},
    ]


def test_tensors_and_json_ask_the_same(listed: Served, asked: list[Any]) -> None:
    found = infer(listed)
    assert found.status_code == 200, found.text
    assert found.json()["outputs"][0]["data"] == ["go", "go"]
    plain = listed.post("/predict", {"inputs": [LISTED, SECOND]}).json()["outputs"]
    assert plain == [{"part": {"value": "go", "probability": 0.5}}] * 2
    assert asked[:2] == asked[2:] == [LISTED, SECOND]


def test_what_is_behind_the_words_is_kept_if_it_is_something(
    listed: Served, asked: list[Any]
) -> None:
    more = [[[0, 1], [0.5, 0], [0, 0]], [[0, 0], [0, 2], [0, 0]]]
    assert infer(listed, vectors={"data": more}).status_code == 200
    assert asked[1]["vectors"] == [[0, 0], [0, 2]]  # one too many, which the model refuses


def test_entries_that_are_none_may_take_no_room(listed: Served, asked: list[Any]) -> None:
    empty = {"shape": [2, 2**31 - 1, 0], "data": []}
    assert infer(listed, lists=empty, lists_weights=empty).status_code == 200
    assert [one["lists"] for one in asked] == [[{}] * 3, [{}]]
    few = {"shape": [2, 2, 0], "data": []}
    assert infer(listed, lists=few, lists_weights=few).status_code == 200
    assert [one["lists"] for one in asked[2:]] == [[{}] * 2, [{}]]  # the model refuses the first


def test_no_text_has_entries_for_the_words_of_another() -> None:
    tensors = [
        InputTensor(name=name, shape=[64, 2**31 - 1, 0], datatype=datatype, data=[])
        for name, datatype in (("lists", "BYTES"), ("lists_weights", "FP64"))
    ]
    counts = [100_000, *[0] * 63]
    tracemalloc.start()
    rows = word_column_of(InputSpec("lists", "gazetteer", of="inputs"), tensors, counts)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert list(map(len, rows)) == counts
    assert most < 2_000_000  # a reference for each word of the first; it was 64 times as much


def test_texts_are_not_cut_into_more_words_than_they_may_have(
    listed: Served, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "words_of", None)
    answer = infer(listed, inputs={"data": ["go", "a " * 5001]})
    assert (answer.status_code, "input 1 has 10,002 characters" in answer.text) == (413, True)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("lists", {"datatype": "FP32"}, "'lists' has the datatype 'FP32'; expected strings: BYTES"),
        ("lists", {"shape": [2, 6], "data": [""] * 12}, "expected [N, words, entries]"),
        ("lists", {"shape": [2, 2, 2], "data": [""] * 8}, "have different shapes"),
        ("lists", {"data": ["x", "x", *[""] * 10]}, "has a label twice for one word: ['x', 'x']"),
        ("lists", {"data": [""] * 11}, "has the shape [2, 3, 2] and 11 elements"),
        ("lists", {"data": [0] * 12}, "element 0 of 'lists' is not a string"),
        ("lists_weights", {"data": ["a"] * 12}, "element 0 of 'lists_weights' is not a number"),
        ("lists_weights", {"data": [1e39] * 12}, "an element that is no finite number"),
        ("vectors", {"shape": [2, 2, 3]}, "expected [N, words, 2]"),
        ("vectors", {"shape": [12]}, "the inputs have different first dimensions"),
        ("vectors", {"shape": [3, 0, 2], "data": []}, "different first dimensions"),
        ("vectors", {"shape": [2**31, 0, 2], "data": []}, "inputs.3.shape.0: Input should be less"),
        ("vectors", {"datatype": "BYTES"}, "expected numbers: FP16"),
        ("picture", {"shape": [2, 6]}, "Expected UINT8 [-1, 1, 2, 3]"),
        ("picture", {"data": [256] * 12}, "picture is of int64, where uint8 was expected"),
        ("picture", {"data": [0.5] * 12}, "picture is of float64, where uint8 was expected"),
        ("picture", {"data": ["a"] * 12}, "where uint8 was expected"),
    ],
)
def test_what_is_no_such_tensor_is_told_what_is_wrong(
    listed: Served, name: str, change: dict[str, Any], message: str
) -> None:
    found = infer(listed, **{name: change})
    assert found.status_code == 400
    assert message in found.json()["error"]


def test_each_tensor_is_wanted_once(listed: Served) -> None:
    inputs = [{"name": name, **its} for name, its in TENSORS.items() if name != "lists_weights"]
    found = listed.post("/v2/models/listed/infer", {"inputs": inputs})
    assert found.status_code == 400
    message = "takes lists, lists_weights, inputs, vectors, picture, each once"
    assert message in found.json()["error"]


def test_what_words_have_does_not_make_an_input_longer() -> None:
    assert extent_of(LISTED).tokens == 3
    assert extent_of({**LISTED, "vectors": [[0.0] * 300] * 3}).tokens == 3
    assert extent_of({"picture": [[0] * 28] * 28}).tokens == 28
    assert extent_of({"inputs": ["go", "to"], "dense": [1, 2, 3]}).tokens == 3
