"""The end of a server's process after SIGTERM: within the time that docs/how_to/serving.md says."""

from __future__ import annotations

import http.client
import json
import math
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import write_artifact
from test_connection import BODY, HOST, LENGTH
from test_server import ROOT, Process, until, waiting

from t2t_torch.serve import repository, server

PAGE = ROOT / "docs" / "how_to" / "serving.md"
_STATED = re.compile(r"ends at most `--drain_delay` \+ `--drain_seconds` \+ (\d+) seconds after")
_GRACE = re.compile(r"`--drain_delay` and `--drain_seconds` together and (\d+) seconds")


def stated() -> int:
    """The seconds of docs/how_to/serving.md, beside those of the flags."""
    page = PAGE.read_text("utf-8").replace("\n", " ")
    (told,), (grace,) = _STATED.findall(page), _GRACE.findall(page)
    assert told == grace
    return int(told)


def test_the_stated_time_is_that_of_connections_and_models_and_of_python_itself() -> None:
    assert stated() == math.ceil(server._CLOSING + repository.STOPPING) + 1


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts a server of three models."""
    made: list[Process] = []

    def begin(*flags: str) -> Process:
        artifacts = [write_artifact(tmp_path / name) for name in ("a", "b", "c")]
        given = [f"--artifact={artifact}" for artifact in artifacts]
        made.append(Process(*given, *flags))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.code()


def connected(server: Process, sent: bytes, received: int | None = None) -> socket.socket:
    """A connection over which something was sent; it can hold few received bytes, if so told."""
    one = socket.socket()
    if received is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    one.settimeout(60)
    one.connect(("127.0.0.1", server.port))
    one.sendall(sent)
    return one


def answer_of(one: socket.socket) -> tuple[int, Any]:
    """The status and the whole body of an answer."""
    with one:
        answer = http.client.HTTPResponse(one)
        answer.begin()
        return answer.status, answer.read()


def ended(server: Process, allowed: float) -> int:
    """Sends SIGTERM; returns the exit code of a process that ends within some seconds."""
    begun = time.monotonic()
    server.end(signal.SIGTERM)
    code = server.code()
    assert time.monotonic() - begun < allowed, server.lines
    return code


def until_blocked(server: Process) -> None:
    """Waits until the server answers other connections only."""
    same, before = 0, -1
    while same < 20:
        assert server.ask("GET", "/v2/health/live")[0] == 200
        same = same + 1 if len(server.lines) == before else 0
        before = len(server.lines)


PREDICT = HOST.replace(b"/predict", b"/models/a/predict")
HEAD_ONLY = PREDICT + b"Expect: 100-continue\r\n" + LENGTH


@pytest.mark.slow
def test_several_models_that_do_not_stop_delay_the_end_once(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    one = start("--drain_seconds=0.1")
    asked = [
        waiting(one, tmp_path / f"go-{name}", f"/models/{name}/predict") for name in ("a", "b", "c")
    ]
    assert ended(one, 0.1 + stated()) == 1
    for thread, answers in asked:
        thread.join(60)
        assert [status for status, _ in answers] == [503]


@pytest.mark.slow
def test_clients_that_do_nothing_delay_the_end_no_longer_than_stated(
    start: Callable[..., Process],
) -> None:
    one = start("--drain_seconds=0.1")
    # Answered until both sides' buffers are full.
    never_reads = connected(one, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 3000, 4096)
    idle = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    idle.request("GET", "/v2/health/live")
    assert idle.getresponse().read()
    unused = connected(one, b"")
    until_blocked(one)
    answered = connected(one, PREDICT + LENGTH + BODY)
    until(lambda: any(line.get("model") == "a" for line in one.log()[3:]))
    assert ended(one, 0.1 + stated()) == 0
    status, body = answer_of(answered)  # sent before the end, read after it
    assert (status, json.loads(body)["outputs"][0]["intent"]["value"]) == (200, "go")
    assert idle.sock.recv(100) == unused.recv(100) == b""
    for client in (never_reads, idle, unused):
        client.close()


@pytest.mark.slow
@pytest.mark.parametrize(("drain_seconds", "expected"), [(60, 200), (0.1, 503)])
def test_a_body_that_comes_slowly_is_answered_if_it_comes_in_time(
    start: Callable[..., Process], drain_seconds: float, expected: int
) -> None:
    one = start(f"--drain_seconds={drain_seconds}")
    slow = connected(one, HEAD_ONLY)
    assert slow.recv(100).startswith(b"HTTP/1.1 100 ")  # the request is begun
    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(ended, one, drain_seconds + stated())
        until(lambda: any(line["event"] == "draining" for line in one.log()))
        for place in range(len(BODY) if expected == 200 else 5):
            slow.sendall(BODY[place : place + 1])
        status, body = answer_of(slow)
        assert (status, b'"outputs"' in body) == (expected, expected == 200)
        assert code.result() == (0 if expected == 200 else 1)
