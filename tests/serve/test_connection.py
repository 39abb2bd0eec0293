"""One connection cannot stop the server: heads are bounded in bytes, lines and time."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ROW, write_artifact
from shapes import LIVE, SHAPES, WAITS
from test_server import Process

HOST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"inputs": [ROW]}).encode()
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)
HEADER_SECONDS = 0.4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    artifact = write_artifact(tmp_path_factory.mktemp("made"))
    flags = (f"--artifact={artifact}", f"--header_seconds={HEADER_SECONDS}")
    one = Process(*flags)
    yield one
    one.process.kill()
    one.code()


def connected(server: Process) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def answers(server: Process, *pieces: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    with connected(server) as one:
        with contextlib.suppress(OSError):  # it may close before it has read all
            for piece in pieces:
                one.sendall(piece)
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := one.recv(65536):
                received += piece
        return received


def status(received: bytes) -> int:
    return int(received.split()[1]) if received else 0


def padded(size: int, name: bytes = b"X-Long") -> bytes:
    return name + b": " + b"a" * (size - len(name) - 4) + b"\r\n"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 100_000,
        HOST + b"X-Long: " + b"a" * 100_000,
        HOST + b"a" * 100_000,
        HOST + b"".join(b"X-%d: a\r\n" % number for number in range(10_000)),
        b"\r\n" * 40_000,
        HOST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 100_000,
        HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: " + b"a" * 100_000,
    ],
    ids=["target", "value", "name", "lines", "blank lines", "chunk extension", "trailer"],
)
def test_a_head_without_an_end_is_refused_after_64_kilobytes(server: Process, head: bytes) -> None:
    received = answers(server, *(head[at : at + 1000] for at in range(0, len(head), 1000)))
    # b"": it was closed while it read a body
    assert status(received) in (431, 0)
    assert server.ask("POST", "/predict", {"inputs": [ROW]})[0] == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (padded(16_000), 200),
        (padded(17_000), 431),
        (b"".join(b"X-%d: a\r\n" % number for number in range(90)), 200),
        (b"".join(b"X-%d: a\r\n" % number for number in range(101)), 431),
        (padded(16_000) * 3, 200),
        (padded(16_000) * 5, 431),
    ],
    ids=["line", "long line", "lines", "many lines", "total", "large total"],
)
def test_headers_have_a_size_and_a_count(server: Process, headers: bytes, expected: int) -> None:
    received = answers(server, HOST + b"Connection: close\r\n" + headers + LENGTH + BODY)
    assert status(received) == expected
    if expected == 431:
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"application/json" in head and json.loads(body)["error"]


@pytest.mark.sample(30)
@pytest.mark.parametrize("name", SHAPES)
def test_a_request_of_an_odd_shape_is_answered_or_its_connection_closed(
    server: Process, name: str
) -> None:
    content, expected = SHAPES[name]
    with connected(server) as one, contextlib.suppress(ConnectionError):
        with contextlib.suppress(ConnectionError):  # it may close before it has read all
            one.sendall(content)
        if expected is not WAITS:
            received = one.recv(65536)
            assert status(received) in expected, received
    assert server.ask("POST", "/predict", {"inputs": [ROW]})[0] == 200
    assert not [line for line in server.log() if line["level"] == "error"]


def test_where_a_body_ends_is_never_uncertain(server: Process) -> None:
    """What a proxy takes for the rest of a body is no request here."""
    for name in ("two lengths", "length and chunks"):
        received = answers(server, SHAPES[name][0])
        assert received.count(b"HTTP/1.1 ") == 1, received


@pytest.mark.parametrize("size", [10**9, 1, 200])
def test_the_body_of_a_request_that_wants_another_protocol_is_its_own(
    server: Process, size: int
) -> None:
    """Httptools leaves it to the other protocol: it was taken for the next request."""
    content = SHAPES["upgrade with a body"][0]
    with connected(server) as one:
        for first in range(0, len(content), size):
            one.sendall(content[first : first + size])
        one.sendall(SHAPES["upgrade"][0])
        received = b""
        while b'"live"' not in received:
            received += (piece := one.recv(65536))
            assert piece, received
        assert received.count(b"HTTP/1.1 200") == 2, received


def test_trailers_are_no_headers(server: Process) -> None:
    content = SHAPES["trailers"][0].replace(b"X-A: b", b"X-Request-Id: from-a-trailer")
    with connected(server) as one:
        one.sendall(content)
        received = one.recv(65536)
        assert (status(received), b"from-a-trailer" in received) == (200, False)


def test_a_request_that_was_answered_early_has_no_second_answer(server: Process) -> None:
    """Its rest was refused with a status, which a client takes for that of its next request."""
    with connected(server) as one:
        one.sendall(HOST + b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n")
        first = b""
        while not first.endswith(b"}"):
            first += (piece := one.recv(65536))
            assert piece, first
        one.sendall(b"no size\r\n")
        assert (status(first), first.count(b"HTTP/1.1 ")) == (415, 1)
        with contextlib.suppress(ConnectionError):
            assert one.recv(65536) == b""


@pytest.mark.slow
@pytest.mark.sample(1)
def test_requests_that_come_at_once_do_not_fill_the_memory(server: Process) -> None:
    """Answering one let the server read 256 KB of others, each of which needs 3 KB."""

    def memory() -> int:
        told = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(told.partition("VmRSS:")[2].split()[0])

    before = memory()
    with connected(server) as one:
        one.settimeout(0.2)
        for _ in range(40):
            with contextlib.suppress(TimeoutError):
                one.sendall(LIVE * 5000)
            with contextlib.suppress(TimeoutError):
                one.recv(1 << 20)
        assert memory() - before < 30_000


def test_a_head_has_to_be_complete_in_time_however_it_trickles(server: Process) -> None:
    """The time is not renewed by what comes, and counts from the first byte."""
    with connected(server) as slow, connected(server) as later:
        later.sendall(HOST + LENGTH + BODY)
        assert status(later.recv(65536)) == 200
        later.sendall(b"GET / HTTP/1.1\r\n")  # the head of its second request
        begin = time.monotonic()
        slow.settimeout(0.1)
        received = b""
        with contextlib.suppress(OSError):
            slow.sendall(b"GET / HTTP/1.1\r\n")
            while not received and time.monotonic() - begin < 15:
                slow.sendall(b"X-A: b\r\n")
                with contextlib.suppress(TimeoutError):
                    received = slow.recv(65536)
        assert status(received) == 408
        assert HEADER_SECONDS * 0.9 < time.monotonic() - begin < 10
        assert status(later.recv(65536)) == 408
    assert server.ask("GET", "/v2/health/live")[0] == 200


@pytest.mark.sample(1)
def test_a_body_may_take_longer_than_a_head(server: Process) -> None:
    with connected(server) as one:
        one.sendall(HOST + LENGTH + BODY[:5])
        time.sleep(HEADER_SECONDS * 1.5)
        one.sendall(BODY[5:])
        assert status(one.recv(65536)) == 200


@pytest.mark.slow
@pytest.mark.sample(1)
def test_who_was_refused_early_does_not_send_for_ever(server: Process) -> None:
    with connected(server) as one:
        one.sendall(HOST + b"Content-Length: 99999999\r\n\r\n")
        assert status(one.recv(65536)) == 413
        begin = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - begin < 15:
                one.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - begin < 10


def test_requests_may_come_before_the_one_before_is_answered(server: Process) -> None:
    with connected(server) as one:
        one.sendall((HOST + LENGTH + BODY) * 20 + b"GET /v2/health/live HTT")
        received = b""
        while received.count(b'"outputs"') < 20:
            piece = one.recv(65536)
            assert piece, received
            received += piece
        assert received.count(b" 200 OK") == 20
        one.sendall(b"P/1.1\r\nHost: x\r\n\r\n")
        while b'"live"' not in received:
            piece = one.recv(65536)
            assert piece, received
            received += piece


def test_what_is_not_http_is_told(server: Process) -> None:
    received = answers(server, b"\x16\x03\x01 nonsense\r\n\r\n")
    assert status(received) == 400
    assert b"this is not HTTP" in received


@pytest.mark.slow
def test_a_huge_header_costs_other_clients_nothing(server: Process) -> None:
    with connected(server) as one, contextlib.suppress(OSError):
        one.sendall(HOST + b"X-Long: ")
        for _ in range(64):
            one.sendall(b"a" * (1 << 20))
    begin = time.monotonic()
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert time.monotonic() - begin < 0.5


def test_a_connection_that_stays_open_is_used_again(server: Process) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    with contextlib.closing(connection):
        for _ in range(3):
            connection.request("POST", "/predict", BODY, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            told: Any = json.loads(answer.read())
            assert (answer.status, told["outputs"][0]["intent"]["value"]) == (200, "go")
