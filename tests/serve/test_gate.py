"""Keys, names of requests, the log, the count."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import Served, length_of, stub_source

from t2t_torch.errors import UsageError
from t2t_torch.serve.middleware import VARIABLE, Keys

KEYS = ("a-key-of-one", "a-key-of-another")


@pytest.fixture
def stub(serve: Callable[..., Served]) -> Served:
    return serve(stub_source(length_of))


@pytest.mark.parametrize("path", ["/predict", "/v2/models/stub/infer"])
def test_without_a_key_nothing_is_answered(serve: Callable[..., Served], path: str) -> None:
    server = serve(stub_source(length_of), keys=KEYS)
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic a-key-of-one"},
        {"Authorization": "Bearer"},
        {"X-API-Key": "a-key-of-one "[:-2]},
        {"X-API-Key": b"\xff\xfe"},
    ):
        answer = server.post(path, {}, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "expected an API key" in answer.json()["error"]
    for headers in (
        {"Authorization": "Bearer a-key-of-one"},
        {"authorization": "bearer  a-key-of-another"},
        {"X-API-Key": "a-key-of-one"},
    ):
        assert server.post(path, {}, headers=headers).status_code == 400


def test_health_and_the_page_need_no_key(serve: Callable[..., Served]) -> None:
    server = serve(stub_source(length_of), keys=KEYS)
    for path, status in {
        "/": 200,
        "/v2/health/live": 200,
        "/v2/health/ready": 200,
        "/models": 401,
        "/metrics": 401,
        "/v2": 401,
        "/nowhere": 401,
    }.items():
        assert server.get(path).status_code == status, path


@pytest.mark.parametrize(
    "shown", ["", "a", KEYS[0], KEYS[0] + "x", "é😀" * 20, "\udcff", "x" * 100_000]
)
def test_keys_are_compared_in_constant_time_and_all_of_them(
    shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, compared = hmac.compare_digest, []

    def noting(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr("t2t_torch.serve.middleware.hmac.compare_digest", noting)
    assert Keys(KEYS).admit(None, shown) == (shown in KEYS)
    assert compared == [(32, 32)] * len(KEYS)  # whatever the lengths of keys, and after a match


def test_keys_are_read_from_a_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text("a-key-of-one\n\n  a-key-of-another \n", "utf-8")
    keys = Keys.read(str(file))
    assert all(keys.admit(None, key) for key in KEYS)
    monkeypatch.setenv(VARIABLE, "of-the-environment")
    assert Keys.read(None).admit("Bearer of-the-environment", None)
    assert not Keys.read(None).admit(None, KEYS[0])
    monkeypatch.setenv(VARIABLE, " of-the-environment\n")  # as a file's content has it
    assert Keys.read(None).admit("Bearer of-the-environment", None)
    for key, message in {"schlüssel-lang": "plain ASCII", " \n": "fewer than 8"}.items():
        monkeypatch.setenv(VARIABLE, key)
        with pytest.raises(UsageError, match=message):
            Keys.read(None)
    monkeypatch.delenv(VARIABLE)
    for content, message in {
        "": "has no key",
        "short\n": "fewer than 8",
        "schlüssel-lang\n": "plain ASCII",
        "with-\x07-a-bell\n": "plain ASCII",
    }.items():
        file.write_text(content, "utf-8")
        with pytest.raises(UsageError, match=message):
            Keys.read(str(file))
    with pytest.raises(UsageError, match="cannot be read"):
        Keys.read(str(tmp_path / "none"))


def test_a_request_has_a_name_its_own_if_it_is_a_plain_one(stub: Served, lines) -> None:
    given = stub.post("/predict", {"inputs": ["a"]}, headers={"X-Request-Id": "a:b-1.2"})
    assert given.headers["x-request-id"] == "a:b-1.2"
    names = {
        stub.post("/predict", {"inputs": ["a"]}, headers=headers).headers["x-request-id"]
        for headers in ({}, {"X-Request-Id": "a b"}, {"X-Request-Id": "x" * 129})
    }
    assert len(names) == 3 and not names & {"a b", "x" * 129}
    assert {line["request_id"] for line in lines()} >= names


def test_the_log_tells_requests_but_not_their_texts(stub: Served, lines) -> None:
    stub.post("/predict", {"inputs": ["my secret", "b"]})
    stub.post("/predict", {"inputs": ["my secret"], "x": 1})
    stub.get("/v2/health/ready")
    asked, refused = (line for line in lines() if line["event"] == "request")
    told = ("method", "path", "status", "model", "version", "inputs", "tokens")
    assert [asked[name] for name in told] == ["POST", "/predict", 200, "stub", "1", 2, 3]
    assert asked["milliseconds"] > 0
    assert refused["status"] == 400
    assert "secret" not in str(lines())


def test_the_log_tells_texts_if_it_is_asked_to(serve: Callable[..., Served], lines) -> None:
    serve(stub_source(length_of), log_texts=True).post("/predict", {"inputs": ["a\n{}", "b"]})
    assert [line["texts"] for line in lines() if line["event"] == "request"] == [[["a\n{}"], ["b"]]]


def counted(server: Served) -> dict[str, float]:
    """What /metrics says, by name and labels."""
    text = server.get("/metrics").text
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_requests_inputs_batches_and_latencies_are_counted(stub: Served) -> None:
    for body in ({"inputs": ["a b c", "d"]}, {"inputs": ["a"]}, {"inputs": 5}):
        stub.post("/predict", body)
    stub.post("/models/none/predict", {"inputs": ["a"]})
    found = counted(stub)
    expected: dict[str, Any] = {
        't2t_requests_total{model="stub",status="200",version="1"}': 2,
        't2t_requests_total{model="stub",status="400",version="1"}': 1,
        't2t_requests_total{model="",status="404",version=""}': 1,
        't2t_inputs_total{model="stub"}': 3,
        't2t_tokens_total{model="stub"}': 5,
        't2t_request_seconds_count{model="stub"}': 2,
        't2t_batch_inputs_bucket{le="1.0",model="stub"}': 1,
        't2t_batch_inputs_sum{model="stub"}': 3,
        't2t_queue_seconds_count{model="stub"}': 2,
        't2t_queue_length{model="stub"}': 0,
        "t2t_ready": 1,
    }
    assert {name: found[name] for name in expected} == expected


def test_a_server_that_ends_is_not_ready_and_refuses(stub: Served) -> None:
    stub.shutdown.is_ready = False
    answer = stub.get("/v2/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False})
    assert stub.get("/v2/models/stub/ready").status_code == 503
    assert stub.post("/predict", {"inputs": ["a"]}).status_code == 200
    stub.shutdown.refuses = True
    refused = stub.post("/predict", {"inputs": ["a"]})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.headers["connection"] == "close"
    assert stub.get("/v2/health/live").status_code == 200
