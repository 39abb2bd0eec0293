"""An S3 server in this process, a proxy that injects faults, and machines: cache folders."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[int]:
    """The port of an S3 server."""
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


class FaultProxy(http.server.ThreadingHTTPServer):
    """Forwards requests to a server; `fault` may answer in its place.

    Attributes:
      fault: called with (method, path) before a request is forwarded; returns "" to forward it,
        "503", "expired", "reset", or "half" for half of the answer's body.
      requests: (method, path) of each request.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to = port
        self.fault: Callable[[str, str], str] = lambda method, path: ""
        self.requests: list[tuple[str, str]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that close their connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def log_message(self, *_: object) -> None:
        """Prints nothing."""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path))
        fault = self.server.fault(self.command, self.path)
        if fault == "reset":
            self._reset()
            return
        if fault in ("503", "expired"):
            status, code = (503, "SlowDown") if fault == "503" else (403, "ExpiredToken")
            content = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.server.to)
        headers = {name: value for name, value in self.headers.items() if name != "Host"}
        connection.request(self.command, self.path, body, headers | {"Host": self.headers["Host"]})
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "half" else content)
        if fault == "half":
            self.wfile.flush()
            self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward


@pytest.fixture
def proxy(s3_server: int) -> Iterator[FaultProxy]:
    """A proxy before the S3 server."""
    made = FaultProxy(s3_server)
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def s3(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty bucket, behind the proxy; the settings are those of a user's shell."""
    import fsspec

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_address[1]}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / "a"))
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    bucket = f"bucket-{uuid.uuid4().hex}"
    store.mkdir(bucket)
    type(store).clear_instance_cache()
    yield f"s3://{bucket}"
    type(store).clear_instance_cache()


@pytest.fixture
def on_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Goes on as another machine: with the cache folder of this name."""
    from t2t_torch.remote import mirror

    def go(name: str) -> None:
        monkeypatch.setenv("T2T_CACHE_DIR", str(tmp_path / name))
        mirror._pulled.clear()

    return go
