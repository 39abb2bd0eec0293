"""Middleware for all requests: API keys, request ids, Prometheus metrics, logging."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import logging
import os
import re
import secrets
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t2t_torch.errors import UsageError
from t2t_torch.files import read_text
from t2t_torch.serve.limits import BadRequest, HTTPError, Unauthorized, Unavailable
from t2t_torch.serve.protocol import json_response
from t2t_torch.serve.server import LOG, GracefulShutdown, check_headers, log_event

VARIABLE = "T2T_API_KEY"
"""Environment variable with an API key."""

_LEAST = 8  # characters of a key


class Keys:
    """Accepted API keys; without keys every request is accepted.

    Args:
      keys: accepted keys.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    @classmethod
    def read(cls, path: str | None) -> Keys:
        """Reads keys from a file, one per line, and from the environment variable `T2T_API_KEY`.

        Raises:
          UsageError: the file cannot be read or has no key, or a key is too short or not plain
            ASCII.
        """
        keys = [os.environ[VARIABLE].strip()] if os.environ.get(VARIABLE) else []
        if path is not None:
            try:
                lines = read_text(Path(path)).splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--api_key_file={path} cannot be read: {error}") from None
            from_file = [line.strip() for line in lines if line.strip()]
            if not from_file:
                raise UsageError(f"--api_key_file={path} has no key; expected one a line.")
            keys += from_file
        if any(len(key) < _LEAST for key in keys):
            raise UsageError(
                f"an API key has fewer than {_LEAST} characters. Make one:  openssl rand -hex 32"
            )
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise UsageError(
                "an API key has a character that is no plain ASCII; headers hold nothing else. "
                "Make one:  openssl rand -hex 32"
            )
        return cls(keys)

    def admit(self, authorization: str | None, api_key: str | None) -> bool:
        """Returns True if a request has an accepted key; compares in constant time.

        Args:
          authorization: value of the Authorization header, "Bearer KEY".
          api_key: value of the X-API-Key header.
        """
        if not self:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else api_key or ""
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, one) for one in self._digests]
        return any(matches)


def _digest(key: str) -> bytes:
    """Returns a fixed-length digest, so that comparisons do not reveal a key's length."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """Metrics of the server, for Prometheus."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the output
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, labelnames=["model"], registry=self._registry)
        self.requests = counter(
            "t2t_requests",
            "Requests for answers, by what they were answered with.",
            ["model", "version", "status"],
        )
        self.inputs = counter("t2t_inputs", "Inputs that were answered.", ["model"])
        self.tokens = counter(
            "t2t_tokens", "Words of these inputs, or a fifth of their letters if more.", ["model"]
        )
        self.seconds = histogram(
            "t2t_request_seconds",
            "From a request to its answer, of those that were answered.",
            buckets=_SECONDS,
        )
        self.batches = histogram(
            "t2t_batch_inputs", "Inputs that were answered together.", buckets=_SIZES
        )
        self.waits = histogram(
            "t2t_queue_seconds", "What the oldest request of a batch has waited.", buckets=_SECONDS
        )
        self.loads = counter(
            "t2t_loads",
            "Models that were loaded while the server ran, or could not be.",
            ["model", "result"],
        )
        self.loaded = gauge(
            "t2t_loaded_timestamp_seconds", "When a version was loaded.", ["model", "version"]
        )
        self.queue_length = gauge("t2t_queue_length", "Requests that wait.", ["model"])
        self.ready = gauge("t2t_ready", "Whether the server takes requests.")

    def text(self) -> bytes:
        """Returns all metrics in the Prometheus text format."""
        return generate_latest(self._registry)


GONE = 499
"""Status logged for a request whose client disconnected; never sent."""

_OPEN = ("/", "/v2/health/live", "/v2/health/ready")
_QUIET = (*_OPEN, "/metrics")
_REST = 1.0  # seconds for the rest of a body during shutdown
_ID = re.compile(r"[\w.:-]{1,128}")
_ABSOLUTE = re.compile(r"^https?://[^/?#]*", re.IGNORECASE)
_PROCESS = secrets.token_hex(5)  # a random number per request would cost a system call
_NUMBERS = itertools.count(1)


@dataclass
class RequestMiddleware:
    """ASGI middleware.

    Attributes:
      inner: wrapped application.
      keys: API keys, required except for the web page and the health routes.
      metrics: metrics of inference requests.
      shutdown: shutdown state; counts the requests in flight and rejects new ones at shutdown.
    """

    inner: ASGIApp
    keys: Keys
    metrics: ServerMetrics
    shutdown: GracefulShutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        if scope["type"] != "http":
            return
        start = time.perf_counter()
        scope["path"] = _ABSOLUTE.sub("", scope["path"], count=1) or "/"
        headers = Headers(scope=scope)
        log_fields = start_log_fields(scope, headers.get("x-request-id", ""))
        status, has_started = Unavailable.status, False

        async def send_on(message: Message) -> None:
            nonlocal status, has_started
            if message["type"] == "http.response.start":
                status, has_started = message["status"], True
                answered = MutableHeaders(scope=message)
                answered["X-Request-Id"] = log_fields["request_id"]
                if self.shutdown.refuses:
                    answered["Connection"] = "close"
            await send(message)

        is_inference = scope["method"] == "POST"
        self.shutdown.in_flight += is_inference
        try:
            rejected = self._rejection(scope, headers)
            if rejected is not None:
                if self.shutdown.refuses:  # closes the connection, which must not be reset
                    await _read_to_end(receive)
                await _response(rejected)(scope, receive, send_on)
            else:
                await self.inner(scope, receive, send_on)
        except ClientDisconnect:
            status = GONE
        except asyncio.CancelledError:  # at shutdown uvicorn itself would send 500
            if not has_started:
                stopped = _response(Unavailable("the server ends. Ask another one."))
                await stopped(scope, receive, send_on)
        except Exception:  # an internal error: status 500 was sent
            log_event("failed", logging.ERROR, error=True, **log_fields)
        finally:
            self.shutdown.in_flight -= is_inference
            self._record(scope, log_fields, status, time.perf_counter() - start)

    def _rejection(self, scope: Scope, headers: Headers) -> HTTPError | None:
        if (rejected := check_headers(headers)) is not None:
            return rejected
        path = scope["path"]
        if path not in _OPEN and not self.keys.admit(
            headers.get("authorization"), headers.get("x-api-key")
        ):
            return Unauthorized("expected an API key. Send the header  Authorization: Bearer KEY")
        if self.shutdown.refuses and scope["method"] == "POST":
            return Unavailable("the server ends. Ask another one.")
        return None

    def _record(
        self, scope: Scope, log_fields: MutableMapping[str, Any], status: int, seconds: float
    ) -> None:
        path = scope["path"]
        if scope["method"] == "POST":
            model, version = log_fields.get("model", ""), log_fields.get("version", "")
            self.metrics.requests.labels(model, version, str(status)).inc()
            if status == 200 and model:
                self.metrics.inputs.labels(model).inc(log_fields["inputs"])
                self.metrics.tokens.labels(model).inc(log_fields["tokens"])
                self.metrics.seconds.labels(model).observe(seconds)
        level = logging.DEBUG if path in _QUIET and status == 200 else logging.INFO
        if LOG.isEnabledFor(level):
            log_event(
                "request", level, **log_fields, status=status, milliseconds=round(seconds * 1e3, 3)
            )


def start_log_fields(scope: Scope, client_id: str) -> MutableMapping[str, Any]:
    """Returns the log fields of a request, a mapping that handlers extend.

    Args:
      scope: scope of the request; stores the mapping as "log_fields".
      client_id: request id sent by the client; used if it matches `_ID`.
    """
    client = scope.get("client")
    log_fields: MutableMapping[str, Any] = {
        "request_id": client_id if _ID.fullmatch(client_id) else f"{_PROCESS}-{next(_NUMBERS)}",
        "method": scope["method"],
        "path": scope["path"][:200],
        "client": client[0] if client else "",
    }
    scope["log_fields"] = log_fields
    return log_fields


async def _read_to_end(receive: Receive) -> None:
    """Reads the rest of a request, for at most `_REST` seconds."""
    with anyio.move_on_after(_REST):
        while (await receive()).get("more_body"):
            pass


def _response(rejected: HTTPError) -> Response:
    """Returns the response; the end of the body of a bad request is unknown."""
    closing = {"Connection": "close"} if isinstance(rejected, BadRequest) else {}
    return json_response({"error": str(rejected)}, rejected.status, {**rejected.headers, **closing})
