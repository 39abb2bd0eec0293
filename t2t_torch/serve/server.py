"""A server that listens, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from t2t_torch.errors import UsageError
from t2t_torch.serve.connection import HEAD_BYTES, KEEP_ALIVE, connection_class
from t2t_torch.serve.drain import Drain
from t2t_torch.serve.log import tell

_BACKLOG = 1024
_CLOSING = 5  # seconds that connections have to close
_QUIET = 0.5  # seconds without a request after which a connection is idle
_TICK = 0.02  # seconds
_SWITCH = 0.0005
"""Seconds after which a thread that computes in Python lets others do so.  A model's thread needs
Python for microseconds between two computations; by default it may wait 5 ms for it."""


class _Listener(uvicorn.Server):
    """uvicorn's server, with the house's way to end."""

    def __init__(self, config: uvicorn.Config, drain: Drain, url: str) -> None:
        super().__init__(config)
        self._drain = drain
        self._url = url

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Lets `Drain` have the signals, and says where it listens."""
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
    drain: Drain,
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
