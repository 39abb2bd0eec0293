"""Sides of a comparison, each in its own process, that take turns: A B A B ...

A machine that slows down for a while slows all sides down, so the ratio of two neighbouring turns
says more than two averages.  A process of its own gives each side the allocator settings, threads
and caches that its users have.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from report import print_table, spread


@dataclass(frozen=True)
class Work:
    """What a side did in a turn.

    Attributes:
      units: tokens, sentences: what the speed is counted in.
      seconds: of wall time.
      cpu_seconds: of this process, all threads: it tells the same where other work disturbs.
      notes: other figures.
    """

    units: float
    seconds: float
    cpu_seconds: float
    notes: Mapping[str, float] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        """Units in a second."""
        return self.units / self.seconds


class Stopwatch:
    """Wall time and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Returns seconds, and processor seconds."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


Turn = Callable[[int], Work]
"""Does the work of round number k, counted from 0."""


@dataclass(frozen=True)
class Side:
    """One side.

    Attributes:
      name: in the table.
      prepare: a function of a module: settings -> turn; called in the side's process.
      settings: what it is called with.
      needs: the library of it that may be missing.
      dtype: of its activations.
      environment: variables of its process; `OMP_*` of this one are not passed on to it.
    """

    name: str
    prepare: Callable[[Any], Turn]
    settings: Any
    needs: str = ""
    dtype: str = "float32"
    environment: Mapping[str, str] | None = None


def runnable(sides: Sequence[Side], device: str = "cpu") -> list[Side]:
    """Returns the sides that this machine can compare; prints those that are left out, and why.

    Left out are sides whose library is not installed, and types that the processor emulates: they
    take hours, and say nothing about a library.
    """
    import torch
    from multi30k import hparams

    from t2t_torch.distributed.precision import Probe

    types = {side.dtype for side in sides} & {"bfloat16", "float16"}
    slow = {name: Probe.of(hparams(), torch.device(device), name).warning for name in types}
    left = []
    for side in sides:
        reason = slow.get(side.dtype, "").removeprefix("warning: ")
        if side.needs and importlib.util.find_spec(side.needs) is None:
            reason = f"{side.needs} is not installed: pip install 't2t_torch[bench]'"
        if reason:
            print(f"left out: {side.name}: {reason}", flush=True)
        else:
            left.append(side)
    return left


def alternate(sides: Sequence[Side], rounds: int) -> dict[str, list[Work]]:
    """Lets the sides take turns.

    Args:
      sides: in the order of their turns.
      rounds: turns of each that count; one before them does not.

    Returns:
      for each side's name the work of each round.
    """
    context = multiprocessing.get_context("spawn")
    connections: dict[str, Connection] = {}
    try:
        for side in sides:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(side, theirs), daemon=True)
            with _environment_of(side):
                process.start()
            connections[side.name] = ours
            _receive(ours)  # one at a time prepares, too
        work: dict[str, list[Work]] = {side.name: [] for side in sides}
        for number in range(-1, rounds):
            for name, connection in connections.items():
                connection.send(max(number, 0))
                done = _receive(connection)
                if number >= 0:
                    work[name].append(done)
                print(f"round {number + 1}/{rounds}  {name:<28} {done.speed:>10,.1f}", flush=True)
        return work
    finally:
        for connection in connections.values():
            connection.close()


@contextlib.contextmanager
def _environment_of(side: Side) -> Iterator[None]:
    before = dict(os.environ)
    if side.environment is not None:
        for name in [name for name in before if name.startswith("OMP_")]:
            del os.environ[name]
        os.environ.update(side.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def print_comparison(work: Mapping[str, Sequence[Work]], ours: str, unit: str) -> None:
    """Prints the speed of each side and, for each other one, the ratio of `ours` to it by rounds.

    Args:
      work: from `alternate`.
      ours: the side that is compared with the others.
      unit: what is counted.
    """
    notes = list(dict.fromkeys(key for done in work.values() for key in done[0].notes))
    rows = []
    for name, done in work.items():
        ratios = [a.speed / b.speed for a, b in zip(work[ours], done, strict=True)]
        rows.append(
            [
                name,
                *spread([each.speed for each in done], 1 if done[0].speed < 1000 else 0),
                "" if name == ours else " / ".join(f"{value}" for value in spread(ratios)),
                f"{statistics.median(each.units / each.cpu_seconds for each in done):,.1f}",
                *(f"{done[-1].notes[key]:,.6g}" if key in done[-1].notes else "" for key in notes),
            ]
        )
    ratio = f"{ours} : it, median / min / max"
    print()
    print_table(["side", f"{unit}/s, median", "min", "max", ratio, f"{unit}/CPU s", *notes], rows)


def _serve(side: Side, connection: Connection) -> None:
    """Prepares, then works a turn for each number received, until the other end closes."""
    try:
        turn = side.prepare(side.settings)
        connection.send(None)
        while True:
            try:
                number = connection.recv()
            except EOFError:
                return
            connection.send(turn(number))
    except Exception:  # the traceback is the other end's to show
        connection.send(traceback.format_exc())


def _receive(connection: Connection) -> Any:
    received = connection.recv()
    if isinstance(received, str):
        raise SystemExit(received)
    return received
