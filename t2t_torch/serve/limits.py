"""Limits of the server, of requests and batches; the HTTP errors that they cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from t2t_torch.settings import Settings, hp

MAX_HEAD_BYTES = 1 << 16
"""Maximum bytes of a request's line and headers; also of a chunk's extensions and of trailers."""

MAX_HEADER_BYTES = 1 << 14
"""Maximum bytes of a header's name and value."""

MAX_HEADERS = 100
"""Maximum number of headers of a request."""

KEEP_ALIVE_SECONDS = 65
"""Keep-alive timeout; longer than the 60 s of common load balancers."""

MAX_AXES = 8
"""Maximum number of axes of a tensor; those of models have at most four."""

MAX_TENSORS = 1000
"""Maximum number of tensors of a request: each invalid one creates an error, only the first of
which is reported."""

MAX_ATTENTION_WEIGHTS = 100_000
"""Maximum number of attention weights (pairs of input and output words) of a response: about a
megabyte of JSON."""


MAX_SECONDS = 60
"""Maximum duration of a sound that is a list of samples; also of a file, unless bodies are larger
than its samples."""

MAX_FILE_BYTES = 512 << 20
"""Maximum bytes of the decoded files of all requests that wait for answers; a single request may
have more."""

MAX_FRAMES = 16_000_000
"""Maximum samples of a channel of a sound file."""

MAX_PIXELS = 25_000_000
"""Maximum pixels of a picture file, half of it for WebP: files of cameras of 24 and 12 megapixels
have slightly more than their names say."""


class ServerLimits(Settings):
    """Limits of the server and of each model.

    Characters are those of all texts of an input, without files in base64.  Seconds count from a
    request's first byte to its response.  A request of more than `max_batch_tokens` is a batch by
    itself; padding does not count, because models group inputs of similar lengths themselves.  Each
    of `max_batches` is computed in its own thread; onnxruntime's other threads are shared by all.
    """

    max_body_bytes: int = hp(1048576, "Maximum size of a request body in bytes.", low=1)
    max_inputs: int = hp(64, "Maximum number of inputs per request.", low=1)
    max_characters: int = hp(10000, "Maximum length of an input in characters.", low=1)
    max_queue: int = hp(
        256, "Requests that wait for a model; further ones are answered with 503.", low=1
    )
    max_batch_inputs: int = hp(64, "Maximum number of inputs per batch.", low=1)
    max_batch_tokens: int = hp(1024, "Approximate maximum number of words per batch.", low=1)
    max_batches: int = hp(
        2,
        "Batches that an artifact computes at once; of --threads they share all but one each.",
        low=1,
    )
    max_seconds: float = hp(
        30.0, "Seconds for a request; after these it is answered with 503.", low=0.001
    )
    header_seconds: float = hp(
        10.0, "Seconds for a request's headers; then the connection is closed.", low=0.001
    )
    batch_delay_ms: float = hp(
        2.0, "Milliseconds that requests wait for others while there are many.", low=0.0
    )

    @property
    def pixels(self) -> int:
        """Maximum pixels of all picture files of a request."""
        return 32 * self.max_body_bytes

    @property
    def samples(self) -> int:
        """Maximum samples of all channels of all sound files of a request."""
        return 8 * self.max_body_bytes

    def sound_seconds(self, sample_rate: int) -> float:
        """Returns the maximum duration of a sound file: that of 16-bit samples in a body."""
        return max(MAX_SECONDS, self.max_body_bytes / 2 / sample_rate)


class HTTPError(Exception):
    """An HTTP error response; its message has the problem and the expected value.

    Attributes:
      status: HTTP status code.
      headers: further headers of the response.
    """

    status: ClassVar[int]
    headers: ClassVar[Mapping[str, str]] = {}


class BadRequest(HTTPError):
    """The request is malformed or does not fit the model."""

    status = 400


class Unauthorized(HTTPError):
    """The request has no accepted API key."""

    status = 401
    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": "Bearer"}


class NotFound(HTTPError):
    """There is no such model or version."""

    status = 404


class TimedOut(HTTPError):
    """The request was not complete in time."""

    status = 408


class TooLarge(HTTPError):
    """The body, or an input, is over the limits."""

    status = 413


class NotJson(HTTPError):
    """The body is of another type."""

    status = 415


class NoInput(HTTPError):
    """An input cannot be encoded or answered."""

    status = 422


class HeadTooLarge(HTTPError):
    """The request's line and headers are over the limits."""

    status = 431


class Unavailable(HTTPError):
    """The server cannot answer now; the client may retry."""

    status = 503
    headers: ClassVar[Mapping[str, str]] = {"Retry-After": "1"}
