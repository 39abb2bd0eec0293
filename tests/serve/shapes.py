"""Requests of odd shapes, as a hostile client sends them, and how they may be answered."""

from __future__ import annotations

import json

from served import ROW

BODY = json.dumps({"inputs": [ROW]}).encode()
POST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
WHOLE = POST + LENGTH + b"\r\n" + BODY
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
_CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
_CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
_UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"

OK, REFUSED, CLOSED = {200}, {400, 404, 405, 408, 413, 431}, {0}
"""Statuses that are expected; 0 of a connection that is closed without one.  Parsers differ."""

WAITS: set[int] = set()
"""Of what is not complete: the server waits for the rest, for `--max_seconds`."""


def _chunk_size(size: bytes) -> bytes:
    return _CHUNKED + b"\r\n" + size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"


SHAPES: dict[str, tuple[bytes, set[int]]] = {
    "chunked": (_CHUNKED + b"\r\n" + _CHUNK + b"0\r\n\r\n", OK),
    "chunks of a byte": (
        _CHUNKED + b"\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n",
        OK,
    ),
    "many tiny chunks": (
        _CHUNKED + b"\r\n" + b"1\r\n \r\n" * 50_000 + _CHUNK + b"0\r\n\r\n",
        OK | REFUSED,
    ),
    **{
        f"chunk size {size.decode()[:20]}": (_chunk_size(size), REFUSED | CLOSED)
        for size in (b"zz", b"-5", b"0x5", b"+5", b"")
    },
    "huge chunk size": (_chunk_size(b"f" * 16), WAITS),
    "large chunk size": (_chunk_size(b"3b9aca00"), WAITS),
    "chunk without an end of line": (_CHUNKED + b"\r\n5\r\nhelloX\r\n0\r\n\r\n", REFUSED | CLOSED),
    "huge chunk extension": (_chunk_size(b"5;a=" + b"b" * 100_000), REFUSED | CLOSED),
    "trailers": (_CHUNKED + b"\r\n" + _CHUNK + b"0\r\nX-A: b\r\n\r\n", OK),
    "trailers without an end": (
        _CHUNKED + b"\r\n" + _CHUNK + b"0\r\n" + b"X-A: b\r\n" * 20_000,
        REFUSED | CLOSED,
    ),
    "two lengths": (POST + LENGTH + b"Content-Length: 5\r\n\r\n" + BODY, REFUSED),
    "length and chunks": (_CHUNKED + LENGTH + b"\r\n" + _CHUNK + b"0\r\n\r\n" + LIVE, REFUSED),
    **{
        f"length {length.decode()[:20]}": (
            POST + b"Content-Length: " + length + b"\r\n\r\n" + BODY,
            REFUSED,
        )
        for length in (b"-1", b"+5", b"0x10", b"", b"9" * 5000, b"%d" % (2**64 + len(BODY)))
    },
    "length with zeros": (
        POST + b"Content-Length: " + b"0" * 5000 + b"%d\r\n\r\n" % len(BODY) + BODY,
        OK | REFUSED,
    ),
    "another encoding": (POST + b"Transfer-Encoding: gzip\r\n\r\n" + BODY, REFUSED | CLOSED),
    "folded header": (POST + b"X-A: b\r\n c\r\n" + LENGTH + b"\r\n" + BODY, OK | REFUSED),
    "folded first header": (
        b"POST /predict HTTP/1.1\r\n X: y\r\n" + LENGTH + b"\r\n" + BODY,
        REFUSED,
    ),
    "NUL in a value": (POST + b"X-A: a\0b\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "NUL in a name": (POST + b"X\0A: b\r\n" + LENGTH + b"\r\n" + BODY, REFUSED),
    "NUL in the target": (LIVE.replace(b"live", b"li\0ve"), REFUSED),
    "HTTP/0.9": (b"GET /v2/health/live\r\n\r\n", OK | REFUSED),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", REFUSED),
    "upgrade": (LIVE[:-2] + _UPGRADE + b"\r\n", OK),
    "upgrade with a body": (POST + _UPGRADE + LENGTH + b"\r\n" + BODY, OK),
    "absolute address": (POST.replace(b"/p", b"http://x:80/p") + LENGTH + b"\r\n" + BODY, OK),
    "no path": (LIVE.replace(b"/v2/health/live", b"http://x"), OK | REFUSED),
    "any path": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", REFUSED),
    "proxy": (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", REFUSED),
    "bytes in the target": (LIVE.replace(b"live", b"\xff\xe9"), REFUSED),
    "escapes in the target": (LIVE.replace(b"live", b"%ff%00%0d%0a%zz%"), REFUSED),
    "long method": (b"A" * 70_000 + LIVE, REFUSED),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 300, REFUSED),
    "bytes": (bytes(range(256)) * 10, REFUSED),
    "expects to go on": (POST + b"Expect: 100-continue\r\n" + LENGTH + b"\r\n", {100}),
    "pipeline": (LIVE * 1000, OK),
}
