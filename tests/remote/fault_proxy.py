"""A proxy before a server that injects faults."""

from __future__ import annotations

import http.client
import http.server
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any


class FaultProxy(http.server.ThreadingHTTPServer):
    """Forwards requests to a server; `fault` may answer in its place.

    Attributes:
      fault: called with (method, path) before a request is forwarded; returns "" to forward it,
        "503", "expired", "reset", or "half" for half of the answer's body.
      latency: longest time before a request is forwarded, in seconds; each has a random one.
      requests: (method, path) of each request.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to = port
        self.fault: Callable[[str, str], str] = lambda method, path: ""
        self.latency = 0.0
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
        if self.server.latency:
            time.sleep(random.uniform(0, self.server.latency))
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
        connection.close()
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
