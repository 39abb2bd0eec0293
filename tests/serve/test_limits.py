"""What is too much, too slow or malformed is refused with a sentence, and nobody else notices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from served import ROW, Served, StubModel, length_of, stub_source

from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime import prediction
from t2t_torch.runtime.prediction import Prediction
from t2t_torch.serve.limits import HTTPError, ServerLimits
from t2t_torch.serve.middleware import GONE
from t2t_torch.serve.model import TooManyElements, extent_of
from t2t_torch.serve.protocol import parse_json, to_json
from t2t_torch.serve.repository import ModelSource
from t2t_torch.serve.tensors import extents_of

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def stub(serve: Callable[..., Served]) -> Served:
    return serve(stub_source(length_of), max_body_bytes=400, max_inputs=3, max_characters=20)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is no JSON, at line 1, column 1"),
        (b'{"inputs": ["a"', 400, "no JSON, at line 1, column 16"),
        (b'{"inputs": ["\xff"]}', 400, "no UTF-8, at byte 14"),
        (b"[" * 390, 400, "no JSON"),
        (b'{"inputs": [NaN]}', 400, "no JSON that can be read"),
        (b'{"inputs": ["\\ud83d"]}', 400, "half a character"),
        (b"[]", 400, "should be a JSON object"),
        (b"null", 400, "should be a JSON object"),
        (b"{}", 400, "inputs: Field required"),
        (b'{"inputs": "a"}', 400, "inputs: Input should be a valid list"),
        (b'{"inputs": ["a"], "bset": 3}', 400, "bset: Extra inputs are not permitted"),
        (b'{"inputs": ["a"], "best": 0}', 400, "best: Input should be greater"),
        (b'{"inputs": [{"text": "a"}]}', 400, "input 0 has no inputs"),
        (b'{"inputs": ["a", "b", "c", "d"]}', 413, "4 inputs, and 3 are taken"),
        (b'{"inputs": ["a", "123456789012345678901"]}', 413, "input 1 has 21 characters"),
        (b'{"inputs": ["' + b"a" * 400 + b'"]}', 413, "more than 400 bytes"),
    ],
)
def test_what_is_malformed_or_too_much_is_refused(
    stub: Served, body: bytes, status: int, message: str
) -> None:
    answer = stub.post("/predict", content=body, headers=JSON)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_lists_in_strings_are_limited_before_they_are_parsed(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = prediction.parts_of
    monkeypatch.setattr(prediction, "parts_of", lambda *of: parsed.append(of[0]) or parse(*of))

    def load(name: str, version: str, path: Path) -> StubModel:
        fields, targets = [InputSpec("words", "words")], [OutputSpec("label", "label")]
        answer = Prediction({"label": "x"}, {"label": 0.5})
        parts = (name, "1", "p", "m", "none", fields, targets)
        model = StubModel(*parts, lambda samples, stop: [answer] * len(samples))
        model.column_forms = {"words": {"column": ["tokens"], "split": prediction.WRITTEN_LIST}}
        return model

    server = serve(ModelSource("words", Path(), load, is_run=True))
    small = server.post("/predict", {"inputs": [{"tokens": "['a', 'b']"}]})
    assert small.status_code == 200 and parsed == ["['a', 'b']"]
    large = server.post("/predict", {"inputs": [{"tokens": "[" + "'a'," * 1000 + "]"}] * 26})
    assert large.status_code == 413 and len(parsed) == 1
    assert "strings have 104,052 characters, and 100,000 are taken" in large.json()["error"]


def test_files_in_base64_are_limited_by_the_body_alone() -> None:
    fields = [
        InputSpec("sound", "audio", size=16_000),
        InputSpec("photo", "image", shape=(2, 2, 3)),
    ]
    fields.append(InputSpec("caption", "text"))
    model = StubModel("s", "1", "p", "m", "none", fields, [], length_of)
    sample = {"sound": "A" * 320_000, "photo": "A" * 50_000, "caption": "a b"}
    limits = ServerLimits(max_characters=20)
    (extent,) = extents_of(model, [sample], limits)
    assert extent.tokens == 320_000 * 3 // 8 // 160  # frames of 10 ms
    for name, value in (("caption", "a" * 21), ("photo", [["a" * 21]]), ("other", "a" * 21)):
        with pytest.raises(HTTPError, match="characters"):
            extents_of(model, [{**sample, name: value}], limits)


@pytest.mark.parametrize(
    "nested", [[["a" * 11], "b" * 10], {"a" * 10: ["b" * 11]}, [{"k": ["a" * 20]}]]
)
def test_texts_deep_inside_an_input_count(stub: Served, nested: Any) -> None:
    answer = stub.post("/predict", {"inputs": [{"inputs": nested}]})
    assert (answer.status_code, "has 21 characters" in answer.text) == (413, True)


def test_the_length_of_an_input_is_that_of_all_that_is_in_it() -> None:
    given = ["go to oslo", "a" * 50, ["go", "to"], [["a" * 50], "b"], {"k": [1, 2]}, [], 5, None]
    assert [extent_of({"inputs": one}).tokens for one in given] == [3, 10, 2, 10, 3, 1, 1, 1]
    deep: Any = "word"
    for _ in range(100_000):
        deep = [deep]
    assert extent_of({"inputs": deep}).texts == ["word"]


@pytest.mark.parametrize("nested", [[1] * 61, [[]] * 61, [[1] * 30] * 2, [{"": 1}] * 21])
def test_an_input_has_no_more_elements_than_its_characters_allow(stub: Served, nested: Any) -> None:
    answer = stub.post("/predict", {"inputs": ["a", nested]})
    assert answer.status_code == 413
    expected = "input 1 has more than 60 elements in its lists and objects"
    assert expected in answer.json()["error"]
    assert stub.post("/predict", {"inputs": [nested[1:-1]]}).status_code == 200


def test_an_input_of_many_elements_is_walked_no_further() -> None:
    class Unseen(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError

    with pytest.raises(TooManyElements):
        extent_of({"inputs": Unseen([1] * 4)}, 3)
    with pytest.raises(TooManyElements):
        extent_of({"one": ["a", "b"], "two": [["c"], "d"]}, 4)
    assert extent_of({"one": ["a", "b"], "two": [["c"], "d"]}, 5) == (["a", "b", "c", "d"], 2)


def test_what_has_a_size_of_its_own_may_have_as_many_elements() -> None:
    fields = [
        InputSpec("picture", "image", shape=(28, 28, 3)),
        InputSpec("dense", "numbers", size=500),
        InputSpec("vectors", "word_numbers", size=300),
        InputSpec("inputs", "words"),
    ]
    sample = {
        "picture": [[[0] * 3] * 28] * 28,
        "dense": [0.5] * 500,
        "vectors": [[0.5] * 300] * 10,
        "inputs": ["a"] * 10,
    }
    model = StubModel("m", "1", "p", "m", "none", fields, [], lambda samples, stop: [])
    limits = ServerLimits(max_characters=10)
    (extent,) = extents_of(model, [sample], limits)
    assert extent.texts == ["a"] * 10
    with pytest.raises(HTTPError, match="input 1 has more than"):
        extents_of(model, [sample, {**sample, "dense": [0.5] * 10_000}], limits)


def test_an_error_quotes_no_more_than_the_beginning(serve: Callable[..., Served]) -> None:
    server = serve(stub_source(length_of))
    tensor = {"name": "x" * 500_000, "shape": [1], "datatype": "BYTES", "data": ["a"]}
    for answer in (
        server.post("/v2/models/stub/infer", {"inputs": [tensor]}),
        server.get("/v2/" + "x" * 50_000),
    ):
        assert answer.status_code in (400, 404)
        assert len(answer.json()["error"]) == 2004
        assert answer.json()["error"].endswith("xxx ...")


def test_a_list_that_is_no_list_of_words_is_told_by_its_first_parts(server: Served) -> None:
    answer = server.post("/predict", {"inputs": [{**ROW, "inputs": [1] * 25_000}]})
    assert answer.status_code == 422
    assert "1 among [1, 1, 1, 1, 1, 1, ...] is no word" in answer.json()["error"]


def test_no_more_bodies_are_read_at_once_than_twice_the_queue(serve: Callable[..., Served]) -> None:
    server = serve(stub_source(length_of), max_queue=1)

    async def run() -> tuple[Any, Any]:
        go_on = asyncio.Event()
        begun = 0

        async def slow() -> Any:
            nonlocal begun
            begun += 1
            yield b'{"inputs": '
            await go_on.wait()
            yield b'["a"]}'

        first = [
            asyncio.create_task(server.send("POST", "/predict", content=slow(), headers=JSON))
            for _ in range(2)
        ]
        while begun < 2:
            await asyncio.sleep(0)
        refused = await ask(server, "third")
        go_on.set()
        return refused, [await one for one in first]

    refused, first = asyncio.run(run())
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "2 bodies are read" in refused.json()["error"]
    assert {200, 503} >= {one.status_code for one in first}  # the queue has room for one
    assert server.post("/predict", {"inputs": ["a"]}).status_code == 200


def test_a_body_without_a_length_is_read_no_further_than_the_limit(stub: Served) -> None:
    read = []

    async def chunks():
        for number in range(1000):
            read.append(number)
            yield b" " * 100

    answer = stub.post("/predict", content=chunks(), headers=JSON)
    assert answer.status_code == 413
    assert len(read) < 10


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({**JSON, "Content-Encoding": "gzip"}, 415),
        ({**JSON, "Inference-Header-Content-Length": "12"}, 400),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_only_json_as_it_is_is_read(stub: Served, headers: dict[str, str], status: int) -> None:
    answer = stub.post("/predict", content=b'{"inputs": ["a"]}', headers=headers)
    assert answer.status_code == status


def test_inputs_that_cannot_be_encoded_are_told_by_number(server: Served) -> None:
    answer = server.post("/predict", {"inputs": [ROW, {**ROW, "dense": [1]}]})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("input 1 cannot be encoded: [1]: 1 numbers; 2 were")


def test_both_halves_of_a_character_are_one() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]') == ["\U0001f600"]


def test_numbers_that_json_has_not_are_null() -> None:
    assert (
        to_json({"a": [float("nan"), {"b": float("inf")}, 1.5]}) == b'{"a":[null,{"b":null},1.5]}'
    )


class Held:
    """A model that answers when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.begun = threading.Event()
        self.asked: list[str] = []

    def __call__(self, samples: Sequence[Any]) -> list[Any]:
        self.asked += [sample["inputs"] for sample in samples]
        self.begun.set()
        assert self.may.wait(10)
        return length_of(samples)


@pytest.fixture
def held() -> Iterator[Held]:
    model = Held()
    yield model
    model.may.set()


def ask(server: Served, text: str) -> Any:
    return server.send("POST", "/predict", json={"inputs": [text]})


def test_what_takes_too_long_is_told_to_come_again_and_leaves_the_queue(
    serve: Callable[..., Served], held: Held
) -> None:
    server = serve(stub_source(held), max_seconds=0.05)

    async def run() -> Any:
        first = asyncio.create_task(ask(server, "first"))
        await asyncio.to_thread(held.begun.wait, 10)
        late = await ask(server, "late")
        held.may.set()
        return late, await first

    late, first = asyncio.run(run())
    for answer in (late, first):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "not answered within 0.05 seconds" in answer.json()["error"]
    server.repository.close()
    assert held.asked == ["first"]


def test_a_full_queue_says_when_to_come_again(serve: Callable[..., Served], held: Held) -> None:
    server = serve(stub_source(held), max_queue=1)

    async def run() -> list[Any]:
        first = asyncio.create_task(ask(server, "first"))
        await asyncio.to_thread(held.begun.wait, 10)
        second = asyncio.create_task(ask(server, "second"))
        while not server.repository.queue_length("stub"):
            await asyncio.sleep(0)
        third = await ask(server, "third")
        held.may.set()
        return [third, await first, await second]

    third, first, second = asyncio.run(run())
    assert (third.status_code, third.headers["retry-after"]) == (503, "1")
    assert (first.status_code, second.status_code) == (200, 200)


def scope_of(**changes: Any) -> dict[str, Any]:
    """A request to predict, as ASGI has it."""
    return {
        "type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict",
        "query_string": b"", "headers": [], "client": ("1.2.3.4", 5), "scheme": "http",
        "http_version": "1.1", "root_path": "", "server": ("server", 80), **changes,
    }  # fmt: skip


def test_a_body_that_does_not_come_is_not_waited_for(serve: Callable[..., Served]) -> None:
    server = serve(stub_source(length_of), max_seconds=0.05)
    sent: list[Any] = []

    async def run() -> None:
        given = [{"type": "http.request", "body": b'{"inputs": ["a"', "more_body": True}]

        async def receive() -> Any:
            return given.pop() if given else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await server.app(scope_of(), receive, send)

    asyncio.run(run())
    assert sent[0]["status"] == 408
    assert b"not there after 0.05 seconds" in sent[1]["body"]


def test_who_hangs_up_is_not_answered(serve: Callable[..., Served], held: Held, lines) -> None:
    server = serve(stub_source(held))
    sent: list[Any] = []

    async def run() -> None:
        first = asyncio.create_task(ask(server, "first"))
        await asyncio.to_thread(held.begun.wait, 10)
        given = [{"type": "http.request", "body": b'{"inputs": ["gone"]}', "more_body": False}]

        async def receive() -> Any:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await server.app(scope_of(), receive, send)
        held.may.set()
        await first

    asyncio.run(run())
    server.repository.close()
    assert held.asked == ["first"]
    assert [line["status"] for line in lines() if line["event"] == "request"] == [GONE, 200]


def test_a_defect_of_the_model_is_one_request_s(serve: Callable[..., Served], lines) -> None:
    def ask(samples: Sequence[Any]) -> list[Any]:
        return [1 / 0]

    answer = serve(stub_source(ask)).post("/predict", {"inputs": ["secret"]})
    assert answer.status_code == 500
    (failed,) = [line for line in lines() if line["event"] == "failed"]
    assert failed["request_id"] in answer.json()["error"]
    assert "ZeroDivisionError" in failed["traceback"]
