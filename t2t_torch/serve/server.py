"""The HTTP server: bounded connections, graceful shutdown, log."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any, Literal, TextIO, TypeAlias

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from t2t_torch.errors import UsageError
from t2t_torch.serve import limits
from t2t_torch.serve.protocol import to_json

LOG = logging.getLogger("t2t_torch.serve")
_ELSEWHERE = ("uvicorn", "uvicorn.error", "asyncio")


class JsonLines(logging.Formatter):
    """Log formatter for JSON lines: `time`, `level`, `event`, and further fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the JSON line of a record."""
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def start_log(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Sends the server's log to a stream only, stderr by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOG.name, *_ELSEWHERE):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level if name == LOG.name else logging.WARNING)


def log_event(event: str, level: int = logging.INFO, *, error: bool = False, **fields: Any) -> None:
    """Logs an event.

    Args:
      event: constant name of the event.
      level: log level.
      error: if True, includes the traceback of the current exception.
      fields: further fields.
    """
    LOG.log(level, event, extra={"fields": fields}, exc_info=error)


@contextlib.contextmanager
def json_log() -> Iterator[None]:
    """Sends the server's log to stderr, and makes lines that libraries write there its events."""
    stderr, (source, sink) = os.fdopen(os.dup(2), "w", buffering=1), os.pipe()
    # A thread that holds the interpreter lock must not wait here for the one that reads.
    os.set_blocking(sink, False)
    os.dup2(sink, 2)
    os.close(sink)
    reader = threading.Thread(target=_log_lines, args=(source,), name="stderr", daemon=True)
    reader.start()
    start_log(stderr)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr.fileno(), 2)
        reader.join(_LINGER)  # another process may hold the pipe
        stderr.close()


def _log_lines(source: int) -> None:
    with os.fdopen(source, errors="replace") as lines:
        for line in lines:
            log_event("stderr", logging.WARNING, text=line.rstrip()[:_LONGEST_LINE])


_LONGEST_LINE = 1000


_TOO_LARGE = f"the request's line and headers have more than {limits.MAX_HEAD_BYTES:,} bytes."
_LINGER = 2.0  # seconds for a client to read an error and to stop sending
_PIECE = 1 << 12  # bytes parsed at once

_Stage: TypeAlias = Literal["idle", "head", "body"]
_Base: Any = HttpToolsProtocol  # whose attributes are typed too narrowly for a subclass


def check_headers(headers: Headers) -> limits.HTTPError | None:
    """Returns the error for headers over the limits; None if they are within."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers.raw}:
        return limits.BadRequest(
            "the request has both Content-Length and Transfer-Encoding: expected one."
        )
    if len(headers.raw) > limits.MAX_HEADERS:
        return limits.HeadTooLarge(f"the request has more than {limits.MAX_HEADERS} headers.")
    total = 0
    for name, value in headers.raw:
        total += len(name) + len(value) + 4  # a colon, a space and CRLF
        if total > limits.MAX_HEAD_BYTES:
            return limits.HeadTooLarge(_TOO_LARGE)
        if len(name) + len(value) > limits.MAX_HEADER_BYTES:
            return limits.HeadTooLarge(
                f"the header {name[:40].decode('latin-1')!r} has more than "
                f"{limits.MAX_HEADER_BYTES:,} bytes."
            )
    return None


class _Connection(_Base):  # type: ignore[misc]
    """uvicorn's connection with limits of the size, number and time of headers.

    uvicorn limits neither the size nor the time of a request's head, and httptools copies a header
    again for each of its packets: one connection could block the server.

    Args:
      head_seconds: timeout for a request's line and headers; also for the rest of a body whose
        response was sent before the body was complete.
      named: arguments of uvicorn.

    Attributes:
      stage: the expected data: a request, the rest of its head, or the rest of its body.
      active_at: time of the last receive or send by the loop's clock.
    """

    def __init__(self, *, head_seconds: float, **named: Any) -> None:
        super().__init__(**named)
        self.head_seconds = head_seconds
        self.stage: _Stage = "idle"
        self.active_at = self.loop.time()
        self._rest = bytearray()  # received, not parsed yet
        self._turn: asyncio.Handle | None = None  # scheduled parsing of the next piece
        self._piece = b""  # being parsed
        self._head = b""  # head of an upgrade request, to be parsed again
        self._began_in_body = False
        self._unparsed = 0  # bytes since the last complete head or piece of a body
        self._is_refused = False
        self._timer: asyncio.TimerHandle | None = None
        self._timed: Any = None  # stage of the timer

    @property
    def is_pending(self) -> bool:
        """True while a request has no complete response."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def has_rest(self) -> bool:
        """True if received data is not parsed yet."""
        return bool(self._rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection opens."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is closed."""
        super().connection_lost(exc)
        self._is_refused = True
        self._rest.clear()
        self._clear_timer()
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Buffers data and parses the first piece immediately; see `_parse`."""
        self.active_at = self.loop.time()
        self._rest += data
        if self._turn is None:
            self._parse()
        else:
            self.transport.pause_reading()

    def schedule_parsing(self) -> None:
        """Schedules the next piece for the next loop iteration, after other connections."""
        if self._rest and self._turn is None:
            self._turn = self.loop.call_soon(self._parse)

    def _parse(self) -> None:
        """Parses a piece, unless a response is pending or too much of a body is buffered.

        Reading pauses until all pieces are parsed.  A head or a chunk over the limits is rejected.
        """
        self._turn = None
        if self._is_refused:
            self._rest.clear()
        elif not self.flow.read_paused and not (self.is_pending and self.stage == "idle"):
            self._piece = bytes(self._rest[:_PIECE])
            del self._rest[:_PIECE]
            self._unparsed += len(self._piece)
            self._began_in_body = self.stage == "body"
            super().data_received(self._piece)
            if self._unparsed > limits.MAX_HEAD_BYTES and not self._is_refused:
                self._refuse(limits.HeadTooLarge(_TOO_LARGE))
            if not self._is_refused:
                self._set_timer()
            self.schedule_parsing()
        if self.transport.is_closing():
            self._rest.clear()
        elif self._rest:
            self.transport.pause_reading()
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def on_response_complete(self) -> None:
        """Waits for the next request."""
        super().on_response_complete()
        self.active_at = self.loop.time()
        if not self.transport.is_closing():
            self._set_timer()
            self.schedule_parsing()
        elif self._timer is None:  # unread data is dropped in the end
            self._timer = self.loop.call_later(limits.KEEP_ALIVE_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Sends status 400 for data that is not HTTP."""
        if self._unparsed > limits.MAX_HEAD_BYTES:
            self._refuse(limits.HeadTooLarge(_TOO_LARGE))
        else:
            self._refuse(limits.BadRequest("this is not HTTP/1.1."))

    def _set_timer(self) -> None:
        """Starts the timer of a new stage."""
        stage = self.stage
        timed = (stage, self.cycle, self.is_pending)
        if timed == self._timed and stage != "idle":
            return
        self._clear_timer()
        self._timed = timed
        if stage == "head" or not self.is_pending:
            seconds = limits.KEEP_ALIVE_SECONDS if stage == "idle" else self.head_seconds
            self._timer = self.loop.call_later(seconds, self._end_late, stage)

    def _clear_timer(self) -> None:
        self._timed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_late(self, stage: _Stage) -> None:
        if self.is_pending:  # the client sent more before the response
            self._timer = self.loop.call_later(self.head_seconds, self._end_late, stage)
        elif stage == "head":
            why = f"the headers were not complete after {self.head_seconds:g} seconds."
            self._refuse(limits.TimedOut(why))
        else:
            self._close(b"")

    def _refuse(self, error: limits.HTTPError) -> None:
        status, why = error.status, str(error)
        body = to_json({"error": why})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        log_event(
            "connection refused", 30, status=status, why=why, client=(self.client or ("",))[0]
        )
        # A request with a response before the end of its body gets no second response.
        self._close(b"" if self._began_in_body else head.encode("ascii") + body)

    def _close(self, last: bytes) -> None:
        """Sends the last bytes, then ignores input: an immediate close could discard them."""
        self._is_refused = True
        self._clear_timer()
        self._unset_keepalive_if_required()
        if self.is_pending:  # further bytes would be read as part of the pending response
            self.transport.close()
            return
        with contextlib.suppress(OSError, RuntimeError):  # the peer has disconnected
            self.transport.write(last)
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(_LINGER, self.transport.abort)

    def on_message_begin(self) -> None:
        """Called at the first byte of a request."""
        super().on_message_begin()
        self.stage = "head"

    def on_headers_complete(self) -> None:
        """Called at the end of a head."""
        self.stage, self._unparsed = "body", 0
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._head = self._without_upgrade()
            return
        super().on_headers_complete()
        self.headers: list[tuple[bytes, bytes]] = []  # separate from trailers

    def _without_upgrade(self) -> bytes:
        """Returns the head of a request without its Upgrade header.

        httptools would treat the body of such a request as data of the other protocol.
        """
        version = self.parser.get_http_version().encode("ascii")
        lines = [b" ".join((self.parser.get_method(), self.url, b"HTTP/" + version))]
        lines += [b": ".join(header) for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def _unsupported_upgrade_warning(self) -> None:
        """Called when httptools stops at data of another protocol."""
        upgrade = sys.exc_info()[1]
        assert upgrade is not None
        self._rest[:0] = self._head + self._piece[upgrade.args[0] :]

    def on_body(self, body: bytes) -> None:
        """Called with a piece of a body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called at the end of a request."""
        self.stage, self._unparsed = "idle", 0
        if not self.parser.should_upgrade():
            super().on_message_complete()


class _Flow(FlowControl):
    """uvicorn's flow control that resumes reading only after all pieces are parsed."""

    def __init__(self, transport: Any, connection: _Connection) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Called when a response is complete, or the application reads the body."""
        if self._connection.has_rest:
            self.read_paused = False
            self._connection.schedule_parsing()
        else:
            super().resume_reading()


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DRAIN_TICK = 0.02  # seconds


class GracefulShutdown:
    """State of a graceful shutdown: started requests are completed, new ones are rejected.

    Args:
      delay: seconds after the first signal during which requests are still accepted while the
        server reports that it is not ready, so that load balancers can switch.
      seconds: seconds after that for started requests.

    Attributes:
      in_flight: number of requests without a complete response.
      is_ready: True while the server reports readiness.
      refuses: True once new requests are rejected.
      was_cut: True if some requests were not completed in time.
    """

    def __init__(self, delay: float = 0.0, seconds: float = 30.0) -> None:
        self.delay = delay
        self.seconds = seconds
        self.in_flight = 0
        self.is_ready = True
        self.refuses = False
        self.was_cut = False
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def on_signals(self, end: Callable[[], None]) -> Iterator[None]:
        """Starts the shutdown at the first SIGTERM or Ctrl-C; a second one ends the process.

        Args:
          end: called in the running loop when all requests are completed.
        """
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            if not self.is_ready:
                os._exit(128 + number)
            self.is_ready = False
            loop.call_soon_threadsafe(begin, number)

        def begin(number: int) -> None:
            log_event("draining", signal=signal.Signals(number).name, in_flight=self.in_flight)
            self._task = loop.create_task(self._wait(end))

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _wait(self, end: Callable[[], None]) -> None:
        await asyncio.sleep(self.delay)
        self.refuses = True
        loop = asyncio.get_running_loop()
        last = loop.time() + self.seconds
        while self.in_flight and loop.time() < last:
            await asyncio.sleep(_DRAIN_TICK)
        if self.in_flight:
            self.was_cut = True
            log_event("cut off", 30, in_flight=self.in_flight, seconds=self.seconds)
        end()


_BACKLOG = 1024
_CLOSING = 5  # seconds for connections to close
_QUIET = 0.5  # seconds without a request after which a connection is idle
_TICK = 0.02  # seconds
_SWITCH = 0.0005
"""Python's thread switch interval in seconds.  A model's thread needs the interpreter lock for
microseconds between two computations; with the default it may wait 5 ms for it."""


class _Listener(uvicorn.Server):
    """uvicorn server with `GracefulShutdown`."""

    def __init__(self, config: uvicorn.Config, shutdown: GracefulShutdown, url: str) -> None:
        super().__init__(config)
        self._shutdown = shutdown
        self._url = url

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Passes signals to `GracefulShutdown`, and logs the address."""
        with self._shutdown.on_signals(self._end):
            log_event("listening", url=self._url)  # after the signal handlers are set
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes connections once they are idle: a request that arrives meanwhile gets a 503.

        If a connection is closed while a request arrives, it is reset, and the client cannot know
        whether the request was handled.
        """
        for listener in sockets or ():
            await self._close(listener)
        for server in self.servers:
            server.close()
        end = time.monotonic() + _CLOSING
        while self._is_active() and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(_TICK)
        # One deadline for both waits, or a client that never reads its response would get 10 s.
        left = max(end - time.monotonic(), 2 * _TICK)
        self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]
        await super().shutdown(sockets)

    async def _close(self, listener: socket.socket) -> None:
        """Accepts the pending connections and stops listening."""
        waiting = []
        listener.setblocking(False)
        with contextlib.suppress(OSError):  # none is pending, or the peer has disconnected
            while True:
                waiting.append(listener.accept()[0])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            make: Any = self.config.http_protocol_class
            state = self.lifespan.state
            protocol: asyncio.Protocol = make(
                config=self.config, server_state=self.server_state, app_state=state, _loop=loop
            )
            return protocol

        for one in waiting:
            one.setblocking(False)
            await loop.connect_accepted_socket(connection, one)

    def _is_active(self) -> bool:
        """Returns True if a connection is active, or was within `_QUIET` seconds."""
        since = asyncio.get_running_loop().time() - _QUIET
        connections: set[Any] = self.server_state.connections  # instances of `_Connection`
        return any(
            one.is_pending or one.stage != "idle" or one.active_at > since for one in connections
        )

    def _end(self) -> None:
        self.should_exit = True
        self.force_exit = self._shutdown.was_cut


def listen_at(host: str, port: int) -> socket.socket:
    """Opens a listening socket.

    Args:
      host: host name or address.
      port: port; 0 for any free one.

    Raises:
      UsageError: the port is in use, or the host is not an address of this machine.
    """
    try:
        about = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(about[4][:2], family=about[0], backlog=_BACKLOG)
    except OSError as error:
        why = f"{error.strerror or error}"
        hint = " Give another --port." if error.errno == errno.EADDRINUSE else ""
        raise UsageError(
            f"--host={host} --port={port} cannot be listened at: {why}.{hint}"
        ) from None


def serve(
    app: ASGIApp,
    listener: socket.socket,
    shutdown: GracefulShutdown,
    *,
    header_seconds: float = 10.0,
) -> int:
    """Serves requests until SIGTERM or Ctrl-C; returns 0, or 1 if requests were cut off.

    Args:
      app: ASGI application.
      listener: listening socket.
      shutdown: shutdown state.
      header_seconds: timeout for a request's line and headers.
    """
    make: Any = partial(_Connection, head_seconds=header_seconds)
    config = uvicorn.Config(
        app,
        http=make,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_CLOSING,
    )
    sys.setswitchinterval(_SWITCH)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    _Listener(config, shutdown, f"http://{address}:{port}/").run(sockets=[listener])
    log_event("ended", was_cut=shutdown.was_cut)
    return 1 if shutdown.was_cut else 0
