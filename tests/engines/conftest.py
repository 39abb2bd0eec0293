"""Data and commands for the tests of schedulers; each runs the real one, or is skipped without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Ray of the test, not a cluster that the developer uses, also where Ray Train would look for one.
ENVIRONMENT = {**os.environ, "RAY_ADDRESS": "local"}
ENVIRONMENT |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}

Run = Callable[..., subprocess.CompletedProcess[str]]


def run(
    command: Sequence[str | Path],
    *,
    seconds: int = 900,  # a machine may be busy: Ray alone starts in 5 seconds or 200
    environment: Mapping[str, str] | None = None,
    fails: bool = False,
) -> str:
    """Runs a Python program, a file or `-m MODULE`, and its arguments; returns what it prints."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def t2t(command: str, *flags: str, **options: object) -> str:
    """Runs a command of this library, such as `datagen`."""
    return run(["-m", "t2t_torch.bin", command, *flags], **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def dates(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The data of `dates_to_iso`, of few rows."""

    def fill(folder: Path) -> None:
        flags = ["--problem=dates_to_iso", f"--data_dir={folder}", f"--tmp_dir={folder}"]
        t2t("datagen", *flags, "--max_cases=400")

    return made_once("dates_for_engines", fill)
