"""HTTP connections with bounds: size, header count and time of what is not a body.

uvicorn bounds neither the size of a request's head nor the time that it takes, and httptools
copies a header again for each packet of it: one connection could stop the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

from starlette.datastructures import Headers
from uvicorn.protocols.http.flow_control import FlowControl

from t2t_torch.serve.body import to_json
from t2t_torch.serve.log import tell
from t2t_torch.serve.refusal import BAD_REQUEST, HEAD_TOO_LARGE, TIMED_OUT, Refusal

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


def check_headers(headers: Headers) -> Refusal | None:
    """Returns why a request's headers are refused; None if they are within the bounds."""
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers.raw}:
        return Refusal(
            BAD_REQUEST, "the request has both Content-Length and Transfer-Encoding: expected one."
        )
    if len(headers.raw) > LINES:
        return Refusal(HEAD_TOO_LARGE, f"the request has more than {LINES} headers.")
    total = 0
    for name, value in headers.raw:
        total += len(name) + len(value) + 4  # a colon, a space and the line's end
        if total > HEAD_BYTES:
            return Refusal(HEAD_TOO_LARGE, _TOO_LARGE)
        if len(name) + len(value) > LINE_BYTES:
            return Refusal(
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
