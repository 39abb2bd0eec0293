"""Training speed where another program holds one of the cores, which it starts itself.

Each setting is two sides of a process each, alone and beside a program that computes without a
pause; all take turns.  OpenMP's threads wait for each other at the end of each operation: by
default actively, so that a thread without a core makes the others burn theirs.  `passive` is what
`t2t-trainer` sets (`OMP_WAIT_POLICY`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from multi30k import argument_parser, hparams, make_data, task
from our_training import OurTraining
from pairing import Side, Stopwatch, Turn, Work, alternate
from report import print_header, print_table

_SETTINGS = {
    "active": {"OMP_WAIT_POLICY": "active"},
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
_WARM_UP = 2  # steps


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a side is told: see the flags.

    Attributes:
      is_beside: whether another program computes during a turn.
    """

    data_dir: Path
    batch_size: int
    steps: int
    seed: int
    is_beside: bool


@contextlib.contextmanager
def another_program() -> Iterator[None]:
    """Holds one core while the `with` block runs."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def train(settings: Settings) -> Turn:
    """Prepares a side."""
    from t2t_torch.distributed.process_group import ONE_PROCESS

    chosen = hparams(batch_size=settings.batch_size, activation_dtype="float32")
    made = task(settings.data_dir, chosen)
    training = OurTraining(made, settings.steps, settings.seed, ONE_PROCESS.device)

    def turn(number: int) -> Work:
        del number
        other = another_program() if settings.is_beside else contextlib.nullcontext()
        with other:
            for batch in training.batches[:_WARM_UP]:
                training.step(batch)
            watch = Stopwatch()
            for batch in training.batches:
                training.step(batch)
            taken = watch.read()
        tokens = sum(int((batch["targets"] != 0).sum()) for _, batch in training.batches)
        return Work(tokens, *taken)

    return turn


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--batch_size", type=int, default=1024, help="tokens")
    parser.add_argument("--steps", type=int, default=10, help="in a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--settings", nargs="+", default=list(_SETTINGS), choices=_SETTINGS)
    arguments = parser.parse_args()
    make_data(arguments.data_dir, arguments.tmp_dir)
    print_header(arguments.seed)
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("left out: there is one core here; another program cannot hold a part")
    numbers = {
        name: getattr(arguments, name) for name in ("data_dir", "batch_size", "steps", "seed")
    }
    sides = [
        Side(
            f"{name}, {'beside' if is_beside else 'alone'}",
            train,
            Settings(is_beside=is_beside, **numbers),
            environment=_SETTINGS[name],
        )
        for name in arguments.settings
        for is_beside in (False, True)
    ]
    work = alternate(sides, arguments.rounds)
    undisturbed = statistics.median(
        done.speed for name, all_done in work.items() if "alone" in name for done in all_done
    )
    rows = [
        [
            name,
            f"{statistics.median(done.speed for done in all_done):,.0f}",
            f"{min(done.speed for done in all_done):,.0f}",
            f"{statistics.median(done.speed for done in all_done) / undisturbed:.2f}",
        ]
        for name, all_done in work.items()
    ]
    print_table(["side", "target tokens/s, median", "min", "share of alone"], rows)


if __name__ == "__main__":
    main()
