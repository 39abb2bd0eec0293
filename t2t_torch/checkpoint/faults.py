"""Crashes on request, for tests alone: what a kill in the middle of a save leaves behind.

`T2T_FAULT=save:7` ends the process, as `kill -9` would, just before the seventh system call that
saving makes in it.  Without the variable nothing happens.
"""

from __future__ import annotations

import itertools
import os

VARIABLE = "T2T_FAULT"
KILLED = 137
"""The exit code of a process that was killed, as a shell tells it: 128 + SIGKILL."""

_calls = itertools.count(1)


def before_system_call() -> None:
    """Is called before each system call of a save; ends the process if it is the one asked for."""
    kind, _, number = os.environ.get(VARIABLE, "").partition(":")
    if kind == "save" and next(_calls) >= int(number):
        os._exit(KILLED)
