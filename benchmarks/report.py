"""What every benchmark prints: where and with what it ran, and a table."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

_PACKAGES = ("torch", "transformers", "ctranslate2", "numpy", "pyarrow", "sentencepiece")


def print_header(seed: int | None = None) -> None:
    """Prints the machine, the date, the command, the versions and the seed."""
    script, *arguments = sys.argv
    command = shlex.join(["python", f"benchmarks/{Path(script).name}", *arguments])
    lines = {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "command": command,
        "versions": f"Python {platform.python_version()}, {_versions()}",
        "seed": "none" if seed is None else str(seed),
    }
    for name, text in lines.items():
        print(f"{name:<9} {text}")
    print(flush=True)


def machine() -> str:
    """Returns the cores that this process may use, their name, and the memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name, extra = platform.processor() or platform.machine(), ""
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        facts = dict(
            [part.strip() for part in line.split(":", 1)]
            for line in cpus.read_text().splitlines()
            if ":" in line
        )
        name = facts.get("model name", name)
        flags = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in facts.get("flags", "")]
        extra = f" with {', '.join(flags)}" if flags else ""
    memory = ""
    if hasattr(os, "sysconf"):
        gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        memory = f", {gigabytes:.0f} GiB"
    return f"{cores} cores of {name}{extra}{memory}"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a Markdown table; the first column is words, the others figures."""
    table = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for index, line in enumerate(table):
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")
        if index == 0:
            rules = ["-" * width + (":" if column else "-") for column, width in enumerate(widths)]
            print("|-" + "|-".join(rules) + "|")
    print(flush=True)


def spread(values: Sequence[float], digits: int = 2) -> tuple[str, str, str]:
    """Returns median, smallest and largest as text."""
    three = (statistics.median(values), min(values), max(values))
    first, second, third = (f"{value:,.{digits}f}" for value in three)
    return first, second, third


def _versions() -> str:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
