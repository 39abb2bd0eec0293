"""Time to the help text of each command: the whole process, without torch."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from report import print_header, print_table, spread

COMMANDS = ("datagen", "trainer", "decoder")


def _seconds(command: str, flag: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "t2t_torch.bin", command, flag],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print_header()
    rows = []
    for command in COMMANDS:
        for flag in ("--help", "--registry_help") if command == "trainer" else ("--help",):
            _seconds(command, flag)  # the first one compiles
            taken = [_seconds(command, flag) for _ in range(rounds)]
            rows.append([f"t2t-{command} {flag}", *spread(taken, 3)])
    print_table(["command", "seconds, median", "min", "max"], rows)


if __name__ == "__main__":
    main()
