"""What a request is refused with."""

from __future__ import annotations

BAD_REQUEST = 400
UNAUTHORIZED = 401
NOT_FOUND = 404
TIMED_OUT = 408
TOO_LARGE = 413
NOT_JSON = 415
NO_INPUT = 422
HEAD_TOO_LARGE = 431
UNAVAILABLE = 503


class Refusal(Exception):
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


def unavailable(message: str, retry_after: int = 1) -> Refusal:
    """Returns a refusal of a request that may be put again."""
    return Refusal(UNAVAILABLE, message, retry_after)
