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
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from http import HTTPStatus
from types import FrameType
from typing import Any, Literal, TextIO, TypeAlias

import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl

from t2t_torch.errors import UsageError
from t2t_torch.serve.body import to_json
from t2t_torch.serve.limits import BAD_REQUEST, HEAD_TOO_LARGE, TIMED_OUT, HTTPError

# A log of one JSON object a line.


LOG = logging.getLogger("t2t_torch.serve")
_ELSEWHERE = ("uvicorn", "uvicorn.error", "asyncio")


class JsonLines(logging.Formatter):
    """Writes what is logged as JSON: `time`, `level`, `event`, and what else is known of it."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        when = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def start_log(stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Sends what the server says to a stream, stderr by default, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in (LOG.name, *_ELSEWHERE):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level if name == LOG.name else logging.WARNING)


def tell(event: str, level: int = logging.INFO, *, error: bool = False, **told: Any) -> None:
    """Logs an event.

    Args:
      event: a few words that are always the same.
      level: how grave it is.
      error: whether the traceback of the exception that is handled is told, too.
      told: what is known of it.
    """
    LOG.log(level, event, extra={"told": told}, exc_info=error)


# HTTP connections with bounds: size, header count and time of what is not a body.
#
# uvicorn bounds neither the size of a request's head nor the time that it takes, and httptools
# copies a header again for each packet of it: one connection could stop the server.


HEAD_BYTES = 1 << 16
"""Bytes of a request's line and headers; also of a chunk's extensions and of trailers."""

LINE_BYTES = 1 << 14
"""Bytes of a header's name and value."""

LINES = 100
"""Headers of a request."""

_TOO_LARGE = f"the request's line and headers have more than {HEAD_BYTES:,} bytes."

KEEP_ALIVE = 65
"""Seconds between requests; longer than the minute of the usual balancers before a server."""

_LINGER = 2.0  # seconds that a client has to read an error and to stop sending
_PIECE = 1 << 12  # bytes that are parsed at once: of chunks of one byte h11 parses 4 KB in 5 ms

_Stage: TypeAlias = Literal["idle", "head", "body"]
_Base: Any = asyncio.Protocol  # mixed into uvicorn's protocols, which have no types of their own


def check_headers(headers: Headers) -> HTTPError | None:
    """Returns why a request's headers are refused; None if they are within the bounds."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers.raw}:
        return HTTPError(
            BAD_REQUEST, "the request has both Content-Length and Transfer-Encoding: expected one."
        )
    if len(headers.raw) > LINES:
        return HTTPError(HEAD_TOO_LARGE, f"the request has more than {LINES} headers.")
    total = 0
    for name, value in headers.raw:
        total += len(name) + len(value) + 4  # a colon, a space and the line's end
        if total > HEAD_BYTES:
            return HTTPError(HEAD_TOO_LARGE, _TOO_LARGE)
        if len(name) + len(value) > LINE_BYTES:
            return HTTPError(
                HEAD_TOO_LARGE,
                f"the header {name[:40].decode('latin-1')!r} has more than {LINE_BYTES:,} bytes.",
            )
    return None


class _Bounded(_Base):  # type: ignore[misc]
    """Mixin that bounds uvicorn's protocol of a connection.

    Attributes:
      head_seconds: that a request's line and headers may take; also the rest of a body whose
        request was answered before it was there.
      active_at: when something was received or sent last, by the loop's clock.
    """

    head_seconds = 10.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.active_at = self.loop.time()
        self._rest = bytearray()  # received and not parsed yet
        self._turn: asyncio.Handle | None = None  # when the next piece of it is parsed
        self._piece = b""  # that is parsed
        self._began_in_body = False
        self._unparsed = 0  # bytes since a head or a piece of a body was complete
        self._is_refused = False
        self._timer: asyncio.TimerHandle | None = None
        self._timed: Any = None  # what the timer is for

    def stage(self) -> _Stage:
        """What is received next: a request, the rest of its head, or the rest of its body."""
        raise NotImplementedError

    @property
    def is_pending(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def has_rest(self) -> bool:
        """Whether something was received and not parsed."""
        return bool(self._rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        super().connection_lost(exc)
        self._is_refused = True
        self._rest.clear()
        self._clear_timer()
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Parses a piece at once; see `_parse`."""
        self.active_at = self.loop.time()
        self._rest += data
        if self._turn is None:
            self._parse()
        else:
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Parses the next piece in the next round of the loop: other connections come between."""
        if self._rest and self._turn is None:
            self._turn = self.loop.call_soon(self._parse)

    def _parse(self) -> None:
        """Parses a piece, unless a request waits for its answer or too much of a body waits.

        Reading stops until all pieces are parsed.  A head or a chunk without an end is refused.
        """
        self._turn = None
        if self._is_refused:
            self._rest.clear()
        elif not self.flow.read_paused and not (self.is_pending and self.stage() == "idle"):
            self._piece = bytes(self._rest[:_PIECE])
            del self._rest[:_PIECE]
            self._unparsed += len(self._piece)
            self._began_in_body = self.stage() == "body"
            super().data_received(self._piece)
            if self._unparsed > HEAD_BYTES and not self._is_refused:
                self._refuse(HEAD_TOO_LARGE, _TOO_LARGE)
            if not self._is_refused:
                self._set_timer()
            self.go_on()
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
            self.go_on()
        elif self._timer is None:  # what the client does not read is dropped in the end
            self._timer = self.loop.call_later(KEEP_ALIVE, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        if self._unparsed > HEAD_BYTES:
            self._refuse(HEAD_TOO_LARGE, _TOO_LARGE)
        else:
            self._refuse(BAD_REQUEST, "this is not HTTP/1.1.")

    def _set_timer(self) -> None:
        """Starts the time of a stage when it begins."""
        stage = self.stage()
        timed = (stage, self.cycle, self.is_pending)
        if timed == self._timed and stage != "idle":
            return
        self._clear_timer()
        self._timed = timed
        if stage == "head" or not self.is_pending:
            seconds = KEEP_ALIVE if stage == "idle" else self.head_seconds
            self._timer = self.loop.call_later(seconds, self._end_late, stage)

    def _clear_timer(self) -> None:
        self._timed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_late(self, stage: _Stage) -> None:
        if self.is_pending:  # it asked for more before it was answered
            self._timer = self.loop.call_later(self.head_seconds, self._end_late, stage)
        elif stage == "head":
            why = f"the headers were not complete after {self.head_seconds:g} seconds."
            self._refuse(TIMED_OUT, why)
        else:
            self._close(b"")

    def _refuse(self, status: int, why: str) -> None:
        body = to_json({"error": why})
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        tell("connection refused", 30, status=status, why=why, client=(self.client or ("",))[0])
        # A request that was answered before its body was there has no second answer.
        self._close(b"" if self._began_in_body else head.encode("ascii") + body)

    def _close(self, last: bytes) -> None:
        """Sends the last bytes, then ignores what comes: closing at once could discard them."""
        self._is_refused = True
        self._clear_timer()
        self._unset_keepalive_if_required()
        if self.is_pending:  # bytes of another answer would be taken for a part of this one
            self.transport.close()
            return
        with contextlib.suppress(OSError, RuntimeError):  # the other side is gone
            self.transport.write(last)
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(_LINGER, self.transport.abort)


class _Flow(FlowControl):
    """uvicorn's control of what is read, which reads no more before all pieces are parsed."""

    def __init__(self, transport: Any, connection: _Bounded) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """Called when a request is answered, or its body is wanted."""
        if self._connection.has_rest:
            self.read_paused = False
            self._connection.go_on()
        else:
            super().resume_reading()


class _WithHttptools(_Bounded):
    """`_Bounded` for uvicorn's protocol that parses with httptools."""

    _stage: _Stage = "idle"
    _head = b""  # of a request that wants another protocol, to be parsed again

    def stage(self) -> _Stage:
        """See `_Bounded.stage`."""
        return self._stage

    def on_message_begin(self) -> None:
        """Called at the first byte of a request."""
        super().on_message_begin()
        self._stage = "head"

    def on_headers_complete(self) -> None:
        """Called at the end of a head."""
        self._stage, self._unparsed = "body", 0
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._head = self._without_upgrade()
            return
        super().on_headers_complete()
        self.headers: list[tuple[bytes, bytes]] = []  # trailers are no headers

    def _without_upgrade(self) -> bytes:
        """Returns the head of a request without the wish for another protocol.

        httptools would take the body of such a request for the other protocol's data.
        """
        version = self.parser.get_http_version().encode("ascii")
        lines = [b" ".join((self.parser.get_method(), self.url, b"HTTP/" + version))]
        lines += [b": ".join(header) for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))

    def _unsupported_upgrade_warning(self) -> None:
        """Called where httptools stops before another protocol's data."""
        upgrade = sys.exc_info()[1]
        assert upgrade is not None
        self._rest[:0] = self._head + self._piece[upgrade.args[0] :]

    def on_body(self, body: bytes) -> None:
        """Called with a piece of a body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called at the end of a request."""
        self._stage, self._unparsed = "idle", 0
        if not self.parser.should_upgrade():
            super().on_message_complete()


class _WithH11(_Bounded):
    """`_Bounded` for uvicorn's protocol that parses with h11, which bounds itself."""

    def stage(self) -> _Stage:
        """See `_Bounded.stage`."""
        import h11

        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        is_head = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        return "head" if is_head else "idle"

    def _unsupported_upgrade_warning(self) -> None:
        """Called when a request wants another protocol; h11 reads on."""

    def handle_events(self) -> None:
        """Parses what was received."""
        import h11

        before = len(self.conn.trailing_data[0])
        super().handle_events()
        is_paused = self.conn.their_state is h11.DONE  # what comes next is not parsed yet
        if is_paused or len(self.conn.trailing_data[0]) < before:
            self._unparsed = 0


def connection_class(head_seconds: float, parser: str = "auto") -> type[asyncio.Protocol]:
    """Returns uvicorn's protocol of a connection with bounds.

    Args:
      head_seconds: see `_Bounded`.
      parser: "httptools", "h11", or "auto", httptools where it is installed.
    """
    base: Any
    mixin: type[_Bounded]
    if parser == "auto":
        try:
            import httptools
        except ImportError:
            parser = "h11"
        else:
            del httptools
            parser = "httptools"
    if parser == "httptools":
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as base

        mixin = _WithHttptools
    else:
        from uvicorn.protocols.http.h11_impl import H11Protocol as base

        mixin = _WithH11
    return type("Connection", (mixin, base), {"head_seconds": head_seconds})


# The end of a server: what was begun is answered, and nothing new is taken.


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DRAIN_TICK = 0.02  # seconds


class GracefulShutdown:
    """How far the end is.

    Args:
      delay: seconds that requests are still taken after the first signal, while the server says
        that it is not ready; so what sends them can look elsewhere.
      seconds: that requests which were begun have, after that.

    Attributes:
      in_flight: requests that were begun and are not answered.
      is_ready: whether the server says that it takes requests.
      refuses: whether it refuses them.
      was_cut: whether some were not answered in time.
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
        """Lets the first SIGTERM or Ctrl-C begin the end, and a second one end the process.

        Args:
          end: called in the running loop when all is answered.
        """
        loop = asyncio.get_running_loop()

        def handle(number: int, frame: FrameType | None) -> None:
            if not self.is_ready:
                os._exit(128 + number)
            self.is_ready = False
            loop.call_soon_threadsafe(begin, number)

        def begin(number: int) -> None:
            tell("draining", signal=signal.Signals(number).name, in_flight=self.in_flight)
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
            tell("cut off", 30, in_flight=self.in_flight, seconds=self.seconds)
        end()


_BACKLOG = 1024
_CLOSING = 5  # seconds that connections have to close
_QUIET = 0.5  # seconds without a request after which a connection is idle
_TICK = 0.02  # seconds
_SWITCH = 0.0005
"""Seconds after which a thread that computes in Python lets others do so.  A model's thread needs
Python for microseconds between two computations; by default it may wait 5 ms for it."""


class _Listener(uvicorn.Server):
    """uvicorn's server, with the house's way to end."""

    def __init__(self, config: uvicorn.Config, drain: GracefulShutdown, url: str) -> None:
        super().__init__(config)
        self._drain = drain
        self._url = url

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Lets `GracefulShutdown` have the signals, and says where it listens."""
        with self._drain.on_signals(self._end):
            tell("listening", url=self._url)  # not sooner: a signal would find nobody
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes connections when they are idle: a request under way is answered with 503.

        A connection that is closed while a request arrives is reset, and its client cannot know
        whether it was answered.
        """
        for listener in sockets or ():
            await self._close(listener)
        for server in self.servers:
            server.close()
        end = time.monotonic() + _CLOSING
        while self._is_asked() and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(_TICK)
        # One deadline for both waits: a client that never reads its response had 10 s.
        left = max(end - time.monotonic(), 2 * _TICK)
        self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]
        await super().shutdown(sockets)

    async def _close(self, listener: socket.socket) -> None:
        """Takes the connections that wait, and stops listening before others come."""
        waiting = []
        listener.setblocking(False)
        with contextlib.suppress(OSError):  # no others wait, or the other side is gone
            while True:
                waiting.append(listener.accept()[0])
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            make: Any = self.config.http_protocol_class
            state = self.lifespan.state
            made: asyncio.Protocol = make(
                config=self.config, server_state=self.server_state, app_state=state, _loop=loop
            )
            return made

        for one in waiting:
            one.setblocking(False)
            await loop.connect_accepted_socket(connection, one)

    def _is_asked(self) -> bool:
        """Whether a connection is in use, or was a moment ago."""
        since = asyncio.get_running_loop().time() - _QUIET
        connections: set[Any] = self.server_state.connections  # of `connection_class`
        return any(
            one.is_pending or one.stage() != "idle" or one.active_at > since for one in connections
        )

    def _end(self) -> None:
        self.should_exit = True
        self.force_exit = self._drain.was_cut


def listen_at(host: str, port: int) -> socket.socket:
    """Opens what is listened at.

    Args:
      host: a name or an address.
      port: 0 is any that is free.

    Raises:
      UsageError: it is taken, or there is no such host here.
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
    drain: GracefulShutdown,
    *,
    header_seconds: float = 10.0,
    parser: str = "auto",
) -> int:
    """Answers requests until SIGTERM or Ctrl-C; returns 0, or 1 if some were cut off.

    Args:
      app: answers them.
      listener: where they come in.
      drain: how it ends.
      header_seconds: that a request's line and headers may take.
      parser: see `connection_class`.
    """
    config = uvicorn.Config(
        app,
        http=connection_class(header_seconds, parser),
        h11_max_incomplete_event_size=HEAD_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=_CLOSING,
    )
    sys.setswitchinterval(_SWITCH)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _Listener(config, drain, f"http://{shown}:{port}/").run(sockets=[listener])
    tell("ended", was_cut=drain.was_cut)
    return 1 if drain.was_cut else 0
