"""What came of the fault tests, as a part of a page of the documentation."""

from __future__ import annotations

import datetime
import os
import platform
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

BEGIN = "<!-- make fault: begin -->"
END = "<!-- make fault: end -->"
_STARTED = time.monotonic()  # of the session: conftest.py imports this file first


def write(page: Path, reporter: Any) -> None:
    """Puts the results of a session between the page's two marks.

    Args:
      page: with both marks.
      reporter: pytest's terminal reporter, at the end.
    """
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{page} lacks the mark {END}"
    block = "\n".join([BEGIN, *lines_of(reporter), END])
    page.write_text(f"{before}{block}{after}", encoding="utf-8")


def lines_of(reporter: Any) -> list[str]:
    """Returns the table, as Markdown."""
    kinds = ("passed", "failed", "error", "skipped")
    by_file = {kind: Counter(map(_file_of, reporter.stats.get(kind, ()))) for kind in kinds}
    files = sorted(set().union(*by_file.values()))
    seconds = time.monotonic() - _STARTED
    rows = [
        f"| `{file}` | " + " | ".join(str(by_file[kind][file]) for kind in kinds) + " |"
        for file in files
    ]
    totals = " | ".join(str(sum(by_file[kind].values())) for kind in kinds)
    return [
        f"{datetime.date.today():%Y-%m-%d}, {machine()}, torch {torch.__version__}: "
        f"{seconds:.0f} seconds.",
        "",
        f"| tests | {' | '.join(kinds)} |",
        "|---|" + "--:|" * len(kinds),
        *rows,
        f"| all | {totals} |",
    ]


def _file_of(report: Any) -> str:
    return Path(str(report.nodeid).split("::")[0]).name


def machine() -> str:
    """Returns the processor's name and how many of its cores this process may use."""
    name = platform.processor() or platform.machine()
    file = Path("/proc/cpuinfo")
    if file.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", file.read_text(), re.MULTILINE)
        name = found.group(1) if found else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"
