"""Limits of the server: of requests, batches and HTTP headers; the errors that they cause."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class ServerLimits:
    """Limits of the server and of each model.

    Attributes:
      body_bytes: maximum size of a request body.
      inputs: maximum inputs per request.
      characters: maximum characters of all texts of an input, without files in base64.
      seconds: timeout from a request's first byte to its response.
      queue: maximum requests waiting for a model; further ones are rejected.
      batch_inputs: maximum inputs per batch.
      batch_tokens: approximate maximum tokens per batch; a larger request is a batch by itself.
        Padding does not count, because models group inputs of similar lengths themselves.
      batches: number of batches that a thread-safe model computes concurrently, each in its own
        thread; onnxruntime's other threads are shared by all.
      delay: seconds that a request waits for others if it arrived while the model was busy.
      header_seconds: timeout for the request line and headers.
    """

    body_bytes: int = 1 << 20
    inputs: int = 64
    characters: int = 10_000
    seconds: float = 30.0
    queue: int = 256
    batch_inputs: int = 64
    batch_tokens: int = 1024
    batches: int = 2
    delay: float = 0.002
    header_seconds: float = 10.0

    @property
    def pixels(self) -> int:
        """Maximum pixels of all picture files of a request."""
        return 32 * self.body_bytes

    @property
    def samples(self) -> int:
        """Maximum samples of all channels of all sound files of a request."""
        return 8 * self.body_bytes

    def sound_seconds(self, sample_rate: int) -> float:
        """Returns the maximum duration of a sound file: that of 16-bit samples in a body."""
        return max(MAX_SECONDS, self.body_bytes / 2 / sample_rate)


# HTTP errors.


BAD_REQUEST = 400
UNAUTHORIZED = 401
NOT_FOUND = 404
TIMED_OUT = 408
TOO_LARGE = 413
NOT_JSON = 415
NO_INPUT = 422
HEAD_TOO_LARGE = 431
UNAVAILABLE = 503


class HTTPError(Exception):
    """An HTTP error response.

    Attributes:
      status: HTTP status code.
      message: message with the problem and the expected value.
      retry_after: seconds after which the client may retry; None if a retry does not help.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class BadRequest(HTTPError):
    """A 400 error: the request is malformed or does not fit the model."""

    def __init__(self, message: str) -> None:
        super().__init__(BAD_REQUEST, message)


def unavailable(message: str, retry_after: int = 1) -> HTTPError:
    """Returns a 503 error after which the client may retry."""
    return HTTPError(UNAVAILABLE, message, retry_after)
