"""A server as it runs: a process with a socket, which is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from served import ROW, write_artifact

from t2t_torch.errors import UsageError
from t2t_torch.serve import server as server_module
from t2t_torch.serve.server import GracefulShutdown, listen_at

ROOT = Path(__file__).parent.parent.parent
_UNUSED = ("torch", "torchmetrics", "pyarrow", "sentencepiece", "tensorboard", "sacrebleu")
# A model that answers when a file is there, so that nothing depends on how fast this machine is.
_SCRIPT = f"""
import sys, time, pathlib
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {_UNUSED}:
            raise ImportError(name + " is not installed")
sys.meta_path.insert(0, Blocker())
from t2t_torch.runtime.session import Artifact
from t2t_torch.bin.commands import server
predict, first = Artifact.predict, []
def held(self, inputs, **given):
    if inputs and str(inputs[0].get("note")).startswith("wait for "):
        path = pathlib.Path(inputs[0]["note"][9:])
        path.with_suffix(".begun").touch()
        while not path.exists():
            time.sleep(0.005)
    return predict(self, inputs, **given)
Artifact.predict = held
code = server.main(sys.argv[1:])
assert not set({_UNUSED}) & set(sys.modules)
sys.exit(code)
"""


class Process:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", _SCRIPT, "--port=0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.lines: list[str] = []
        listening = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(listening,), daemon=True)
        self._reader.start()
        assert listening.wait(60), self.lines
        (told,) = [line for line in self.log() if line["event"] == "listening"]
        self.port = int(told["url"].rstrip("/").rpartition(":")[2])

    def _read(self, listening: threading.Event) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if '"listening"' in line:
                listening.set()
        listening.set()

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = None if body is None else json.dumps(body)
        with contextlib.closing(connection):
            connection.request(method, path, given, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def code(self) -> int:
        code = self.process.wait(60)
        self._reader.join(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def begin(*arguments: str) -> Process:
        artifact = write_artifact(tmp_path / "made")
        made.append(Process(f"--artifact={artifact}", *arguments))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.code()


def waiting(
    server: Process, path: Path, address: str = "/predict"
) -> tuple[threading.Thread, list[Any]]:
    """Asks what is answered when a file is there."""
    answers: list[Any] = []
    body = {"inputs": [{**ROW, "note": f"wait for {path}"}]}

    def ask() -> None:
        with contextlib.suppress(OSError):  # the server may end before it answers
            answers.append(server.ask("POST", address, body))

    thread = threading.Thread(target=ask)
    thread.start()
    begun = threading.Event()
    while not path.with_suffix(".begun").exists():
        begun.wait(0.005)
    return thread, answers


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.005)


def test_an_artifact_is_served_without_torch_and_the_server_ends_when_it_is_told(
    start: Callable[..., Process],
) -> None:
    server = start("--reload_seconds=0.05")
    status, told = server.ask("POST", "/predict", {"inputs": [ROW]})
    assert (status, told["outputs"][0]["intent"]["value"]) == (200, "go")
    server.end()
    assert server.code() == 0, server.lines
    assert [line["event"] for line in server.log()][-2:] == ["draining", "ended"]


def test_begun_requests_are_answered_after_sigterm_and_no_new_ones(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    server = start()
    thread, answers = waiting(server, tmp_path / "go")
    server.end()
    until(lambda: server.ask("GET", "/v2/health/ready")[0] == 503)
    until(lambda: server.ask("POST", "/predict", {"inputs": []})[0] == 503)
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert not answers
    (tmp_path / "go").touch()
    thread.join(60)
    assert answers[0][0] == 200
    assert answers[0][1]["outputs"][0]["intent"]["value"] == "go"
    assert server.code() == 0, server.lines
    with pytest.raises(ConnectionError):
        server.ask("GET", "/v2/health/live")


@pytest.mark.slow
def test_no_request_of_a_connection_that_is_kept_open_is_lost_at_the_end(
    start: Callable[..., Process],
) -> None:
    server, lost, told = start(), [], []
    body, kind = json.dumps({"inputs": [ROW]}), {"Content-Type": "application/json"}
    asked = threading.Semaphore(0)

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        while True:
            try:
                connection.connect()
            except OSError:  # it listens no more: nothing was sent
                return
            try:
                while connection.sock is not None:
                    connection.request("POST", "/predict", body, kind)
                    answer = connection.getresponse()
                    answer.read()
                    told.append(answer.status)
                    asked.release()
            except OSError as error:
                lost.append(error)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        assert asked.acquire(timeout=60)
    server.end()
    assert server.code() == 0, server.lines
    for thread in threads:
        thread.join(60)
    assert not lost
    assert set(told) == {200, 503}


def test_connections_have_one_deadline_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for an idle connection and for its close took twice the documented time."""
    left: list[float] = []

    async def close(self: uvicorn.Server, sockets: object = None) -> None:
        left.append(self.config.timeout_graceful_shutdown or 0.0)

    monkeypatch.setattr(uvicorn.Server, "shutdown", close)
    monkeypatch.setattr(server_module, "_CLOSING", 0.1)
    monkeypatch.setattr(server_module._Listener, "_is_active", lambda self: True)
    config = uvicorn.Config(lambda: None, timeout_graceful_shutdown=5, log_config=None)
    listener = server_module._Listener(config, GracefulShutdown(), "http://x/")
    listener.servers = []
    asyncio.run(listener.shutdown())
    assert left == [pytest.approx(0.04, abs=0.02)]


def test_requests_are_still_taken_during_the_delay(start: Callable[..., Process]) -> None:
    server = start("--drain_delay=600")
    server.end(signal.SIGINT)
    until(lambda: server.ask("GET", "/v2/health/ready")[0] == 503)
    assert server.ask("POST", "/predict", {"inputs": [ROW]})[0] == 200


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(start: Callable[..., Process], tmp_path: Path) -> None:
    server = start()
    thread, answers = waiting(server, tmp_path / "never")
    server.end()
    until(lambda: any(line["event"] == "draining" for line in server.log()))
    server.end()
    assert server.code() == 128 + signal.SIGTERM
    thread.join(60)
    assert not answers


def test_what_takes_longer_than_it_may_is_cut_off(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    server = start("--drain_seconds=0.05", "--max_seconds=20")
    thread, _ = waiting(server, tmp_path / "go")
    server.end()
    until(lambda: any(line["event"] == "cut off" for line in server.log()))
    (tmp_path / "go").touch()
    assert server.code() == 1
    thread.join(60)


@pytest.mark.slow
def test_clients_that_misbehave_do_not_disturb_others(start: Callable[..., Process]) -> None:
    server = start("--max_body_bytes=5000")
    expected = server.ask("POST", "/predict", {"inputs": [ROW]})
    body = json.dumps({"inputs": [ROW]}).encode()
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

    def raw(sent: bytes) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        one.sendall(sent)
        return one

    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for sent in (whole, whole[:-5], b"GET", b"\x16\x03\x01 nonsense\r\n\r\n"):
        raw(sent).close()
    slow = raw(head + b"Content-Length: 900\r\n\r\n{")
    large = raw(head + b"Content-Length: 99999999\r\n\r\n" + b" " * 4000)
    assert b" 413 " in large.recv(1000)
    answers: list[Any] = []

    def ask() -> None:
        for _ in range(5):
            answers.append(server.ask("POST", "/predict", {"inputs": [ROW]}))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [expected] * 40
    slow.close()
    large.close()


def test_a_port_that_is_taken_is_told() -> None:
    with listen_at("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--port={port} cannot be .* Give another --port"):
            listen_at("127.0.0.1", port)
    with pytest.raises(UsageError, match=r"--host=no\.such\.host\.invalid"):
        listen_at("no.such.host.invalid", 0)
    if Path("/proc/net/if_inet6").exists():
        listen_at("::1", 0).close()
