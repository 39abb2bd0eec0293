"""Hostile files: makers, readers by kind, and a process that reads them under watch.

A maker is a function of a path that writes one file there, registered with `hostile` (or `add`, for
makers of one form).  Files `hostile_*.py` of this folder register more.  As a program this file
reads the paths that come on stdin, each in a process of its own, and prints what came of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MOST_MEGABYTES, MOST_SECONDS = 300.0, 5.0  # that the reading of a file may take
MOST_ADDRESSES = 3 << 30  # bytes above those of the libraries: protects this machine
DEADLINE = 120.0  # seconds until a reader that hangs is killed
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")
CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo")


@dataclasses.dataclass(frozen=True)
class Maker:
    """Writes a hostile file.

    Attributes:
      kind: what reads it: a key of `READERS`.
      name: name of the file.
      write: function that writes the file, or makes a link or a pipe, at a path; or returns the
        content.
      is_read: True if the file may be read, too; else it must be refused with a T2TError.
      is_quick: True if `make test` has it.
    """

    kind: str
    name: str
    write: Callable[[Path], Any] | bytes
    is_read: bool = False
    is_quick: bool = False

    def make(self, folder: Path) -> Path:
        """Writes the file into a folder; returns its path."""
        path = folder / self.name
        content = self.write if isinstance(self.write, bytes) else self.write(path)
        if isinstance(content, bytes):
            path.write_bytes(content)
        assert os.path.lexists(path), f"{self.name} has not been written"
        return path


MAKERS: dict[str, Maker] = {}
"""Makers by kind and name of the file."""

READERS: dict[str, Callable[[Path], Any]] = {}
"""Functions that read a file as the library does, by kind."""


def add(kind: str, name: str, write: Callable[[Path], Any] | bytes, **options: bool) -> None:
    """Registers a maker; see `Maker`."""
    assert f"{kind}/{name}" not in MAKERS, f"{kind}/{name} twice"
    MAKERS[f"{kind}/{name}"] = Maker(kind, name, write, **options)


def hostile(kind: str, name: str, **options: bool) -> Callable[..., Callable[[], bytes]]:
    """Registers a function that returns the content of a file."""

    def register(content: Callable[[], bytes]) -> Callable[[], bytes]:
        add(kind, name, lambda path: content(), **options)
        return content

    return register


def reader(kind: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Registers the reader of a kind."""

    def register(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        READERS[kind] = read
        return read

    return register


def all_makers() -> dict[str, Maker]:
    """Returns all makers, those of the files `hostile_*.py` included."""
    for file in sorted(FOLDER.glob("hostile_*.py")):
        importlib.import_module(file.stem)
    return importlib.import_module("hostile").MAKERS


# Reading under watch.


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of reading a file.

    Attributes:
      ended: "read", "refused" (a T2TError), "failed" (another exception), or how the process
        ended.
      said: message of the error, or the traceback.
      seconds: of the processor; others use this machine, too.
      megabytes: by which the memory grew.
      events: programs that were started, and connections.
    """

    ended: str
    said: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0
    events: Sequence[str] = ()

    def faults(self, maker: Maker) -> list[str]:
        """Returns what is wrong with it."""
        found = [f"{event}" for event in self.events]
        if self.ended not in (("read", "refused") if maker.is_read else ("refused",)):
            found.append(f"it {self.ended}: {self.said}")
        if self.seconds > MOST_SECONDS:
            found.append(f"it took {self.seconds:.1f} s")
        if self.megabytes > MOST_MEGABYTES:
            found.append(f"it took {self.megabytes:.0f} MB")
        if len(self.said) > 1000 and self.ended == "refused":
            found.append(f"a message of {len(self.said):,} characters")
        return found


class Watch:
    """A process that reads files under watch, and has imported all readers already."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "hostile.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            cwd=FOLDER.parent.parent,
        )

    def read(self, maker: Maker, folder: Path) -> Outcome:
        """Writes a file into a folder, and returns what came of reading it."""
        path = maker.make(folder)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps([maker.kind, str(path)])}\n".encode())
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _main() -> None:
    all_makers()
    readers = importlib.import_module("hostile").READERS
    for kind, path in _warm_up():  # imports all that the readers import
        with contextlib.suppress(Exception):
            readers[kind](path)
    for line in sys.stdin:
        kind, path = json.loads(line)
        print(json.dumps(dataclasses.asdict(_watched(readers[kind], Path(path)))), flush=True)


def _warm_up() -> Iterator[tuple[str, Path]]:
    nothing = FOLDER / "hostile.py"
    yield from ((kind, nothing) for kind in importlib.import_module("hostile").READERS)


def _watched(read: Callable[[Path], Any], path: Path) -> Outcome:
    """Returns what comes of reading a file in a child process."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        outcome = _outcome(read, path)
        os.write(sink, json.dumps(dataclasses.asdict(outcome)).encode())
        os._exit(0)
    os.close(sink)
    said, end = b"", time.monotonic() + DEADLINE
    while select.select([source], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(source, 1 << 16)
        said += piece
        if not piece:
            break
    else:
        os.kill(child, signal.SIGKILL)
    os.close(source)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Outcome(**json.loads(said)) if said else Outcome(f"ended with {status}")


def _outcome(read: Callable[[Path], Any], path: Path) -> Outcome:
    from t2t_torch.errors import T2TError

    events: list[str] = []

    def audit(event: str, arguments: Any) -> None:
        if event in STARTS or event in CONNECTS:
            events.append(f"{event} {str(arguments)[:200]}")

    sys.addaudithook(audit)
    warnings.simplefilter("ignore")
    addresses, pages, *_ = map(int, Path("/proc/self/statm").read_text().split())
    most = addresses * resource.getpagesize() + MOST_ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before = pages * resource.getpagesize() / 2**20
    ended, said = "read", ""
    try:
        read(path)
    except T2TError as error:
        ended, said = "refused", str(error)
    except BaseException:
        ended, said = "failed", traceback.format_exc()[-3000:]
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime
    return Outcome(ended, said, seconds, used.ru_maxrss / 1024 - before, events)


if __name__ == "__main__":
    _main()
