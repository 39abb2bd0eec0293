"""Whatever a body holds, the server answers with a sentence: never with a defect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import jsonschema
import pytest
from hypothesis import strategies as some
from served import ROW, Served, artifact_source, write_artifact
from test_protocol import INPUTS, SCHEMA

PHRASES = ("/models/phrases/predict", "/v2/models/phrases/infer")
PLACES = ("/predict", "/models/made/predict", "/v2/models/made/infer")
GOOD = ({"inputs": [ROW]}, {"inputs": [ROW, ROW], "best": 1}, {"inputs": INPUTS, "id": "1"})
GOOD_PHRASES = (
    {"inputs": ["one two", {"inputs": "seven"}]},
    {"inputs": [{**INPUTS[0], "data": ["one", "two"]}], "outputs": [{"name": "targets_ids"}]},
)

_leaves = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text(max_size=20)
    | some.sampled_from(["BYTES", "FP32", "inputs", "go to oslo", "Z", "", "X X X", "\x00", 2**70])
)
_json = some.recursive(
    _leaves,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(
            some.sampled_from([*ROW, "inputs", "name", "shape", "datatype", "data"]) | some.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all parts of a body."""
    found = [at]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in parts:
        found += places_in(inner, (*at, key)) if isinstance(inner, dict | list) else [(*at, key)]
    return found


def changed(body: Any, at: tuple[Any, ...], part: Any) -> Any:
    """A body with another part."""
    if not at:
        return part
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[at[0]] = changed(copy[at[0]], at[1:], part)
    return copy


@some.composite
def _almost(draw: Any) -> Any:
    """A good body with something else in some places."""
    body = draw(some.sampled_from(GOOD + GOOD_PHRASES))
    for _ in range(draw(some.integers(0, 2))):
        if isinstance(body, dict | list):
            body = changed(body, draw(some.sampled_from(places_in(body))), draw(_json))
    return body


_bodies = some.one_of(
    _almost().map(lambda body: json.dumps(body).encode()),
    _almost().map(lambda body: json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")),
    _json.map(lambda body: json.dumps(body).encode()),
    some.binary(max_size=200),
)
_torn = some.tuples(_bodies, some.integers(0, 400)).map(lambda one: one[0][: one[1]])


def check(server: Served, place: str, body: bytes) -> int:
    headers = {"Content-Type": "application/json"}
    answer = server.post(place, content=body, headers=headers)
    assert answer.status_code < 500 or answer.status_code == 503, (body, answer.text)
    if answer.status_code == 200:
        assert answer.json()["outputs"] is not None
    else:
        error = {**SCHEMA, "$ref": "#/$defs/error_response"}
        jsonschema.validate(answer.json(), error)
    return answer.status_code


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("fuzzed") / "made"
    server = Served(artifact_source(write_artifact(folder)))
    yield server
    server.repository.close()


@hypothesis.settings(max_examples=60)
@hypothesis.given(some.sampled_from(PLACES), _bodies | _torn)
def test_no_body_is_a_defect(fuzzed: Served, place: str, body: bytes) -> None:
    check(fuzzed, place, body)


@pytest.mark.slow
@hypothesis.settings(max_examples=2000)
@hypothesis.given(some.sampled_from(PLACES), _bodies | _torn)
def test_none_of_two_thousand_bodies_is_a_defect(fuzzed: Served, place: str, body: bytes) -> None:
    check(fuzzed, place, body)


@pytest.fixture(scope="module")
def fuzzed_phrases(phrases: Path) -> Any:
    server = Served(artifact_source(phrases, "phrases"))
    yield server
    server.repository.close()


@pytest.mark.slow
@hypothesis.settings(max_examples=30)
@hypothesis.given(some.sampled_from(PHRASES), _bodies | _torn)
def test_no_body_is_a_defect_of_what_writes_texts(
    fuzzed_phrases: Served, place: str, body: bytes
) -> None:
    check(fuzzed_phrases, place, body)


@pytest.mark.quick
def test_good_bodies_are_answered(fuzzed: Served) -> None:
    bodies = [json.dumps(body).encode() for body in GOOD]
    assert [check(fuzzed, place, body) for place, body in zip(PLACES, bodies, strict=True)] == [
        200,
        200,
        200,
    ]


@pytest.mark.slow
def test_good_bodies_are_answered_with_texts(fuzzed_phrases: Served) -> None:
    for place, body in zip(PHRASES, GOOD_PHRASES, strict=True):
        assert check(fuzzed_phrases, place, json.dumps(body).encode()) == 200
