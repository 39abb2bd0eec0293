"""How long a save that fails is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable

_CALM = (1.0, 5.0, 25.0)
"""Seconds between tries: what fills a disk for a moment, or mounts it anew, is over then."""
_HURRIED = (1.0, 3.0)
"""Less than 5 s in all: whoever sent a signal kills soon, Kubernetes after 30 s."""
_POLL_SECONDS = 0.1


class Patience:
    """The pauses between the tries of a save; other threads may cut them short at any moment.

    Args:
      is_hurried: whether a signal has come, say; asked again and again during a pause.

    Attributes:
      is_replaced: whether a later state waits to be saved in place of what is tried; a pause ends
        and no other try is made.
    """

    def __init__(self, is_hurried: Callable[[], bool]) -> None:
        self._is_hurried = is_hurried
        self._given_up = False
        self.is_replaced = False

    def give_up(self) -> None:
        """Ends a pause, after which there is one more try and no other, from now on."""
        self._given_up = True

    def after(self, tries: int) -> float | None:
        """Returns the seconds to wait after so many failed tries, 1 or more; None: no more."""
        pauses = _HURRIED if self._is_hurried() else _CALM
        over = self._given_up or self.is_replaced or tries > len(pauses)
        return None if over else pauses[tries - 1]

    def wait(self, seconds: float) -> None:
        """Waits so long, or until there is reason to wait no longer."""
        end, hurried = time.monotonic() + seconds, self._is_hurried()
        while not (self._given_up or self.is_replaced or self._is_hurried() != hurried):
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _POLL_SECONDS))
