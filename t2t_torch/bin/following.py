"""What comes one after another, as a trainer or a decoder writes it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from t2t_torch.errors import CheckpointError

if TYPE_CHECKING:
    from t2t_torch.checkpoint.checkpoint import Checkpoint
    from t2t_torch.checkpoint.directory import CheckpointDirectory

POLL_SECONDS = 10.0


class OfAStep(Protocol):
    """What was made at a step of training."""

    @property
    def step(self) -> int:
        """Optimizer steps done."""


S = TypeVar("S", bound=OfAStep)


def follow(
    list_now: Callable[[], Iterable[S]],
    wait_minutes: float,
    *,
    clock: Callable[[], float] | None = None,
    pause: Callable[[float], None] | None = None,
) -> Iterator[S]:
    """Yields what there is, the fewest steps first, and what comes, until nothing comes any more.

    Args:
      list_now: returns what there is; of each step one is taken.
      wait_minutes: how long to wait for another one; 0: do not.
      clock: returns seconds.
      pause: waits for seconds.
    """
    clock, pause = clock or time.monotonic, pause or time.sleep
    seen: set[int] = set()
    came_at = clock()
    while True:
        for one in sorted(list_now(), key=lambda one: one.step):
            if one.step in seen:
                continue
            seen.add(one.step)
            yield one
            came_at = clock()  # what was done with it takes its time, too
        left = wait_minutes * 60 - (clock() - came_at)
        if left <= 0:
            return
        pause(min(POLL_SECONDS, left))


def follow_checkpoints(
    directory: CheckpointDirectory, min_steps: int, wait_minutes: float
) -> Iterator[Checkpoint]:
    """Yields the whole checkpoints as they come, until none came for some minutes.

    A broken one is told of and left out; one that a trainer deletes meanwhile is let go.

    Args:
      directory: of a run; a trainer may be at work in it.
      min_steps: those of fewer are left out.
      wait_minutes: how long to wait for another one; 0: do not.
    """

    def list_now() -> list[Checkpoint]:
        return [one for one in directory.list() if one.step >= min_steps]

    for checkpoint in follow(list_now, wait_minutes):
        try:
            checkpoint.verify()
        except CheckpointError as fault:
            if checkpoint.path.is_dir():
                print(f"warning: broken checkpoint left out: {fault}", file=sys.stderr)
            continue
        yield checkpoint


def keep_time(checkpoint: Checkpoint, made: Path) -> None:
    """Gives a file that was made of a checkpoint its time, so that curves over time are right."""
    give_time(made, time_of(checkpoint))


def time_of(checkpoint: Checkpoint) -> int:
    """Returns when a checkpoint was written, in nanoseconds."""
    from t2t_torch.checkpoint.checkpoint import MANIFEST

    return (checkpoint.path / MANIFEST).stat().st_mtime_ns


def give_time(made: Path, written: int) -> None:
    """Gives a file the time, in nanoseconds, at which what it is made of was written."""
    os.utime(made, ns=(written, written))
