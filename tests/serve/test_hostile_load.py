"""Fuzzed bodies and raw requests while other clients ask: nobody gets a wrong answer or waits."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import ROW, write_artifact
from shapes import SHAPES
from test_fuzz import GOOD, PLACES, changed, places_in
from test_server import Process

LEAVES = (None, True, -1, 2**70, 1e308, "", "go to oslo", "\x00", "é😀", [], {}, [[]], "FP32", "Z")
HEALTH = """
import http.client, select, sys, time
slowest = 0.0
while not select.select([sys.stdin], [], [], 0.05)[0]:
    begin = time.monotonic()
    one = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    one.request("GET", "/v2/health/live")
    assert one.getresponse().status == 200
    one.close()
    slowest = max(slowest, time.monotonic() - begin)
print(slowest)
"""
JSON = {"Content-Type": "application/json"}


def fuzzed_body(draw: random.Random) -> bytes:
    """A good body with other parts, other bytes, or cut short."""
    body: Any = draw.choice(GOOD)
    for _ in range(draw.randrange(3)):
        if isinstance(body, dict | list):
            body = changed(body, draw.choice(places_in(body)), draw.choice(LEAVES))
    content = bytearray(json.dumps(body).encode())
    for _ in range(draw.choice((0, 0, 1, 5))):
        content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content[: draw.choice((None, None, draw.randrange(len(content) + 1)))])


def raw_request(draw: random.Random) -> bytes:
    """A request, or what resembles one: heads of any size, framing of any kind."""
    body = fuzzed_body(draw)
    line = draw.choice((b"POST", b"GET", b"PUT", b"CONNECT", b"x", b"\xff")) + b" "
    line += draw.choice((b"/predict", b"/v2/health/live", b"/" + b"a" * draw.randrange(90_000)))
    line += draw.choice((b" HTTP/1.1\r\n", b" HTTP/1.1\r\n", b" HTTP/9.9\r\n", b"\n", b""))
    count, size = draw.choice(((0, 0), (3, 20), (150, 9), (3, 20_000), (1, 90_000), (6, 16_000)))
    lines = [b"X-%d: %s\r\n" % (n, b"v" * draw.randrange(size + 1)) for n in range(count)]
    length = str(draw.choice((len(body), len(body), 0, -1, 10**20, "1e3"))).encode()
    lines += draw.choice(
        (
            [b"Content-Length: " + length + b"\r\n"],
            [b"Content-Length: 5\r\n", b"Content-Length: 6\r\n"],
            [b"Transfer-Encoding: chunked\r\n"],
            [b"Upgrade: websocket\r\nConnection: Upgrade\r\n"],
            [],
        )
    )
    lines.append(draw.choice((b"Host: x\r\n", b"Host x\r\n", b"\x00: \x01\r\n", b" folded\r\n")))
    draw.shuffle(lines)
    return line + b"".join(lines) + draw.choice((b"\r\n", b"\r\n", b"")) + body


def send_raw(port: int, seed: int) -> int:
    """Sends a raw request at some speed; returns the status, 0 if it was closed without one."""
    draw = random.Random(seed)
    content = draw.choice((raw_request(draw), draw.choice(list(SHAPES.values()))[0]))
    step = draw.choice((len(content), 40_000, 1000, 50))
    with (
        contextlib.suppress(OSError, IndexError, ValueError),
        socket.create_connection(("127.0.0.1", port), timeout=20) as one,
    ):
        with contextlib.suppress(ConnectionError):  # it may answer before it has read all
            for first in range(0, len(content), step)[:200]:
                one.sendall(content[first : first + step])
                time.sleep(draw.choice((0, 0, 0.001)))
        return int(one.recv(65536).split()[1])
    return 0


def hold(server: Process, clients: int, bodies: int, raws: int) -> tuple[Counter[int], float]:
    """Returns the statuses of hostile requests, and the longest time of a health check."""
    expected = server.ask("POST", "/predict", {"inputs": [ROW]})
    over, wrong = threading.Event(), []

    def ask() -> None:
        while not over.wait(0.2):
            answer = server.ask("POST", "/predict", {"inputs": [ROW]})
            if answer != expected and answer[0] != 503:
                wrong.append(answer)

    def post(seed: int) -> int:
        draw = random.Random(seed)
        one = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        with contextlib.closing(one):
            one.request("POST", draw.choice(PLACES), fuzzed_body(draw), JSON)
            return one.getresponse().status

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    # A process of its own: it does not wait for this one's threads.
    probe = subprocess.Popen(
        [sys.executable, "-c", HEALTH, str(server.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    for thread in threads:
        thread.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            some = pool.map(post, range(bodies))
            others = pool.map(lambda seed: send_raw(server.port, seed), range(raws))
            statuses = Counter([*some, *others])
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
        slowest = float(probe.communicate()[0])  # closing its input ends it
    assert not wrong
    assert server.ask("POST", "/predict", {"inputs": [ROW]}) == expected
    return statuses, slowest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "bodies", "raws"),
    [
        (4, 60, 20),
        pytest.param(8, 200, 60, marks=pytest.mark.slow),
        pytest.param(64, 10_000, 1000, marks=pytest.mark.slow),
    ],
)
def test_hostile_requests_disturb_nobody(
    tmp_path: Path, clients: int, bodies: int, raws: int
) -> None:
    artifact = write_artifact(tmp_path / "made")
    flags = (f"--artifact={artifact}", "--header_seconds=1", "--max_seconds=10")
    server = Process(*flags)
    try:
        statuses, slowest = hold(server, clients, bodies, raws)
        assert {200, 400, 431} <= set(statuses)
        assert not [line for line in server.log() if line["event"] == "failed"]
        assert all(status < 500 or status == 503 for status in statuses), statuses
        assert slowest < 0.5
    finally:
        server.process.kill()
        server.code()
