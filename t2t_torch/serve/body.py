"""Parsing of size-limited JSON request bodies, and JSON serialization of responses."""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import anyio
from starlette.requests import Request

from t2t_torch.serve.limits import (
    NOT_JSON,
    TIMED_OUT,
    TOO_LARGE,
    BadRequest,
    HTTPError,
    ServerLimits,
    unavailable,
)
from t2t_torch.serve.protocol import InferenceRequest
from t2t_torch.serve.tensors import HEADER, divided, filled, raw

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # an escaped surrogate, possibly of a valid pair


class Bodies:
    """Reader of request bodies, at most twice `ServerLimits.max_queue` at once.

    Args:
      limits: limits of bodies.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._most = 2 * limits.max_queue
        self._active = 0

    async def read(self, request: Request) -> Any:
        """Returns the parsed JSON of a body.

        Raises:
          ClientDisconnect: the client has disconnected.
          HTTPError: the body is too long, takes too long or is not JSON, or too many bodies are
            being read.
        """
        if HEADER in request.headers:
            raise BadRequest(f"expected JSON alone here, without {HEADER}.")
        return parse_json(await self._whole(request, ("application/json",)))

    async def read_tensors(self, request: Request, alone: str) -> InferenceRequest:
        """Returns the inference request of a body, with the data of all tensors, also binary ones.

        Args:
          request: request with the body.
          alone: name of the only tensor that a body without JSON can hold; see `tensors.raw`.

        Raises:
          ClientDisconnect: the client has disconnected.
          HTTPError: see `read`, `tensors.filled` and `tensors.raw`.
        """
        length = request.headers.get(HEADER)
        if length is None:
            text, binary = await self._whole(request, ("application/json",)), b""
        else:
            body = await self._whole(request, ("application/json", "application/octet-stream"))
            if length == "0":
                return filled(raw(alone, body), b"", self._limits)
            text, binary = divided(body, length)
        return filled(parse_json(text), binary, self._limits)

    async def _whole(self, request: Request, kinds: Sequence[str]) -> bytes:
        _check_headers(request, self._limits, kinds)
        if self._active >= self._most:
            raise unavailable(f"{self._active} bodies are read, as many as may. Try again later.")
        self._active += 1
        try:
            return await _read(request, self._limits)
        finally:
            self._active -= 1


async def _read(request: Request, limits: ServerLimits) -> bytes:
    chunks, size = [], 0
    try:
        with anyio.fail_after(limits.max_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.max_body_bytes:
                    raise _too_long(limits)
                chunks.append(chunk)
    except TimeoutError:
        raise HTTPError(
            TIMED_OUT, f"the body was not there after {limits.max_seconds:g} seconds."
        ) from None
    return b"".join(chunks)


def _check_headers(request: Request, limits: ServerLimits, kinds: Sequence[str]) -> None:
    kind = request.headers.get("content-type", kinds[0]).partition(";")[0].strip()
    if kind.lower() not in kinds:
        raise HTTPError(
            NOT_JSON,
            "expected JSON. Send the header  Content-Type: application/json",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPError(NOT_JSON, "expected a body as it is, without Content-Encoding.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length.lstrip("0")[:20] or "0") > limits.max_body_bytes:
        raise _too_long(limits)


def _too_long(limits: ServerLimits) -> HTTPError:
    return HTTPError(
        TOO_LARGE,
        f"the body has more than {limits.max_body_bytes:,} bytes, which is all that is read. Put "
        "its inputs into several requests, or start the server with a larger --max_body_bytes.",
    )


def parse_json(body: bytes) -> Any:
    """Returns the parsed JSON of a body.

    Raises:
      HTTPError: the body is not JSON in UTF-8, or has an unpaired surrogate, NaN or infinity.
    """
    try:
        value = _loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is no UTF-8, at byte {error.start + 1:,}.") from None
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"the body is no JSON, at line {error.lineno}, column {error.colno}: {error.msg}.",
        ) from None
    except (ValueError, RecursionError):  # a number with too many digits, or too deep nesting
        raise BadRequest("the body is no JSON that can be read.") from None
    if _HALF.search(body):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadRequest(
                "the body has half a character: an escape from \\ud800 to \\udfff without its "
                "other half.",
            ) from None
    return value


def _loads(text: str) -> Any:
    """Returns the parsed JSON, with garbage collection disabled meanwhile.

    Each collection scans all lists created so far, none of which is garbage: for a megabyte of `[]`
    that was 90 % of the time, during which no other request is handled.  A thread would not help,
    because parsing holds the interpreter lock.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text, parse_constant=_no_constant)
    finally:
        if collects:
            gc.enable()


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def to_json(value: Any) -> bytes:
    """Returns a value as JSON bytes; NaN and infinities become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
