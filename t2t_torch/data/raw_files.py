"""The raw files of a data set: which they were, and whether they still are the same."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_torch.data.manifest import RawFileEntry, fault_of, sha256_of

if TYPE_CHECKING:
    from t2t_torch.problem import Problem


def entries(problem: Problem, tmp_dir: Path) -> Mapping[str, RawFileEntry]:
    """The raw files that a problem names and that are there, by their path below `tmp_dir`."""
    there = _there(problem, tmp_dir)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(there, pool.map(entry, there.values()), strict=True))


def changes(problem: Problem, tmp_dir: Path, recorded: Mapping[str, RawFileEntry]) -> list[str]:
    """Says of each raw file that is there how it differs from what was recorded.

    A file that is gone is no change: data outlives its raw files.  A file under another name is the
    same if its content is.

    Args:
      problem: whose files.
      tmp_dir: where they are.
      recorded: what `entries` was when the data was made; if empty, nothing is known to differ.
    """
    if not recorded:
        return []
    there = _there(problem, tmp_dir)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        told = pool.map(lambda name: _change(name, there[name], recorded), there)
        return [change for change in told if change]


def _there(problem: Problem, tmp_dir: Path) -> dict[str, Path]:
    found = sorted(path for path in problem.raw_files(tmp_dir) if path.is_file())
    # Files elsewhere, as beside a declaration: train/label and test/label are told apart.
    above = [path.parent for path in found if not path.is_relative_to(tmp_dir)]
    root = Path(os.path.commonpath(above)) if above else tmp_dir
    return {
        path.relative_to(tmp_dir if path.is_relative_to(tmp_dir) else root).as_posix(): path
        for path in found
    }


def entry(path: Path) -> RawFileEntry:
    """The size and the checksum of a file."""
    return RawFileEntry(bytes=path.stat().st_size, sha256=sha256_of(path))


def _change(name: str, path: Path, recorded: Mapping[str, RawFileEntry]) -> str | None:
    if name in recorded:
        return fault_of(path, recorded[name])
    if entry(path).sha256 in {entry.sha256 for entry in recorded.values()}:
        return None
    return f"{path}: not among the files it was made from ({', '.join(recorded)})"
