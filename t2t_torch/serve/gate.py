"""What every request passes: its name, its key, the count and the log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from collections.abc import MutableMapping
from typing import Any

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t2t_torch.serve.body import to_json
from t2t_torch.serve.connection import check_headers
from t2t_torch.serve.drain import Drain
from t2t_torch.serve.key import Keys
from t2t_torch.serve.log import LOG, tell
from t2t_torch.serve.metrics import Metrics
from t2t_torch.serve.refusal import BAD_REQUEST, UNAUTHORIZED, UNAVAILABLE, Refusal, unavailable

GONE = 499
"""What stands for a request whose sender did not wait; nobody reads it but the log."""

_OPEN = ("/", "/v2/health/live", "/v2/health/ready")
_QUIET = (*_OPEN, "/metrics")
_REST = 1.0  # seconds that the rest of a body may take while the server ends
_ID = re.compile(r"[\w.:-]{1,128}")
_ABSOLUTE = re.compile(r"^https?://[^/?#]*", re.IGNORECASE)
_PROCESS = secrets.token_hex(5)  # a number each would be a call of the system for each request
_NUMBERS = itertools.count(1)


class Gate:
    """An ASGI application around another.

    Args:
      inner: answers what may pass.
      keys: any of which a request has to show, but for the page and the health of the server.
      metrics: count requests for answers.
      drain: is told of requests, and says when there may be no new ones.
    """

    def __init__(self, inner: ASGIApp, keys: Keys, metrics: Metrics, drain: Drain) -> None:
        self._inner = inner
        self._keys = keys
        self._metrics = metrics
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            return
        start = time.perf_counter()
        scope["path"] = _ABSOLUTE.sub("", scope["path"], count=1) or "/"  # httptools does it
        headers = Headers(scope=scope)
        told = begin(scope, headers.get("x-request-id", ""))
        status, is_begun = UNAVAILABLE, False

        async def send_on(message: Message) -> None:
            nonlocal status, is_begun
            if message["type"] == "http.response.start":
                status, is_begun = message["status"], True
                answered = MutableHeaders(scope=message)
                answered["X-Request-Id"] = told["request_id"]
                if self._drain.refuses:
                    answered["Connection"] = "close"
            await send(message)

        is_asked = scope["method"] == "POST"
        self._drain.in_flight += is_asked
        try:
            refused = self._refused(scope, headers)
            if refused is not None:
                if self._drain.refuses:  # the connection is closed: it must not be reset
                    await _read_to_end(receive)
                await _send(send_on, refused)
            else:
                await self._inner(scope, receive, send_on)
        except ClientDisconnect:
            status = GONE
        except asyncio.CancelledError:  # the server ends: by itself uvicorn would answer 500
            if not is_begun:
                await _send(send_on, unavailable("the server ends. Ask another one."))
        except Exception:  # a defect of ours: it was answered with 500
            tell("failed", logging.ERROR, error=True, **told)
        finally:
            self._drain.in_flight -= is_asked
            self._note(scope, told, status, time.perf_counter() - start)

    def _refused(self, scope: Scope, headers: Headers) -> Refusal | None:
        refused = check_headers(headers)
        if refused is not None:
            return refused
        path = scope["path"]
        if path not in _OPEN and not self._keys.admit(
            headers.get("authorization"), headers.get("x-api-key")
        ):
            return Refusal(
                UNAUTHORIZED,
                "expected an API key. Send the header  Authorization: Bearer KEY",
            )
        if self._drain.refuses and scope["method"] == "POST":
            return unavailable("the server ends. Ask another one.")
        return None

    def _note(
        self, scope: Scope, told: MutableMapping[str, Any], status: int, seconds: float
    ) -> None:
        path = scope["path"]
        if scope["method"] == "POST":
            model, version = told.get("model", ""), told.get("version", "")
            self._metrics.request(model, version, status)
            if status == 200 and model:
                self._metrics.answered(model, told["inputs"], told["tokens"], seconds)
        level = logging.DEBUG if path in _QUIET and status == 200 else logging.INFO
        if LOG.isEnabledFor(level):
            tell("request", level, **told, status=status, milliseconds=round(seconds * 1e3, 3))


def begin(scope: Scope, asked_id: str) -> MutableMapping[str, Any]:
    """Returns what is told of a request, for those who answer it to add to.

    Args:
      scope: of the request; keeps it as "told".
      asked_id: the name that the request gives itself; taken if it is letters and signs.
    """
    client = scope.get("client")
    told: MutableMapping[str, Any] = {
        "request_id": asked_id if _ID.fullmatch(asked_id) else f"{_PROCESS}-{next(_NUMBERS)}",
        "method": scope["method"],
        "path": scope["path"][:200],
        "client": client[0] if client else "",
    }
    scope["told"] = told
    return told


async def _read_to_end(receive: Receive) -> None:
    """Reads what is left of a request, for a moment."""
    with anyio.move_on_after(_REST):
        while (await receive()).get("more_body"):
            pass


async def _send(send: Send, refused: Refusal) -> None:
    body = to_json({"error": refused.message})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if refused.status == UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status == BAD_REQUEST:  # where its body ends is uncertain
        headers.append((b"connection", b"close"))
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
