"""What a server takes, and how it puts requests together."""

from __future__ import annotations

from dataclasses import dataclass

MOST_WEIGHTS = 100_000
"""Pairs of a word that is read and one that is written, of which a request is told the attention:
as JSON a megabyte."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a server, and of each of its models.

    Attributes:
      body_bytes: of a request's body.
      inputs: of a request.
      characters: of all texts of an input.
      seconds: from a request's first byte to its answer.
      queue: requests that wait for a model; further ones are refused.
      batch_inputs: that a model is asked at once.
      batch_tokens: of a batch, about; a request that has more is a batch by itself.  Models put
        inputs of like lengths together themselves, so padding does not count.
      batches: that a model computes at once, if several threads may ask it; each has a thread of
        its own, and onnxruntime's others are shared by all.
      delay: seconds that a request waits for others, if it has come while the model was busy.
      header_seconds: that a request's line and headers may take.
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


# What a request is refused with.


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
    """A request that is not answered.

    Attributes:
      status: of HTTP.
      message: says what is wrong and what was expected.
      retry_after: seconds after which the request may be put again; None if that does not help.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


def unavailable(message: str, retry_after: int = 1) -> HTTPError:
    """Returns a refusal of a request that may be put again."""
    return HTTPError(UNAVAILABLE, message, retry_after)
