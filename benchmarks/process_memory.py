"""The greatest memory that a command and each of its processes took, as Linux counts it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS_BETWEEN = 0.1


def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, list[int]]:
    """Runs a command; returns its seconds, and the peak of each process, the command's own first.

    A peak is VmHWM, in bytes: the most memory that a process had at once, files that it maps
    included.  It is looked at ten times a second, so the peak of the last moments may be missed.

    Raises:
      subprocess.CalledProcessError: the command failed.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit("The memory of processes is read from /proc, which only Linux has.")
    peaks: dict[int, int] = {}
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(environment)) as process:
        while process.poll() is None:
            for pid in _tree(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), _peak(pid))
            time.sleep(_SECONDS_BETWEEN)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    first = peaks.pop(process.pid)
    return seconds, [first, *sorted(peaks.values(), reverse=True)]


def _tree(pid: int) -> list[int]:
    """A process and its descendants, as far as they are still there."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            found += _tree(int(child))
    return found


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
