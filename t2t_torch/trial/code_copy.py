"""A copy of a trial's code in its run directory (`code/`), so that the run stands alone."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from t2t_torch.data.staging import STAGED_SUFFIX
from t2t_torch.trial.source import imported_files

if TYPE_CHECKING:
    from t2t_torch.train.run_directory import RunDirectory
    from t2t_torch.trial.definition import Definition

FOLDER = "code"
IGNORED = ".pedlignore"
"""The file in a trial's directory that says, as `.gitignore` does, what is no part of it."""

LARGEST = 1_000_000  # bytes of a file: more is data, not code
MOST = 20_000_000  # bytes of all of them

_OF_A_RUN = ("task.json", "search.journal")  # in whose folder nothing is code
_NO_CODE = ("__pycache__", "node_modules", "site-packages")


def keep_code(definition: Definition, directory: RunDirectory) -> None:
    """Copies a trial's code into a run that begins; one that goes on keeps the copy that it has.

    A directory is copied with all that is below it, but for hidden files, what `.pedlignore` names,
    other runs and files of more than `LARGEST` bytes; a file with what it has imported from beside
    it.  A trial that is named as a module of a package is installed, and is not copied.

    Args:
      definition: the trial, loaded.
      directory: where the folder is put; locked.

    Raises:
      OSError: it cannot be written.
    """
    run_dir = directory.path
    if not is_path(definition.spec) or (directory.exists and (run_dir / FOLDER).exists()):
        return
    source = definition.path.resolve()
    root = source if source.is_dir() else source.parent
    files = list(_code_in(root, run_dir.resolve())) if source.is_dir() else _imported(source)
    # What does not fit is rather a table than a module.
    files.sort(key=lambda file: (file.suffix != ".py", file.stat().st_size))
    target = run_dir / f".{FOLDER}{STAGED_SUFFIX}"
    shutil.rmtree(target, ignore_errors=True)
    place, size = target / root.name if source.is_dir() else target, 0
    place.mkdir(parents=True)
    for number, file in enumerate(files):
        size += file.stat().st_size
        if size > MOST:
            logging.warning(
                "The run keeps no copy of %d of the %d files of %s: more than %d bytes in all. "
                "Name what is no code in %s.",
                len(files) - number,
                len(files),
                root,
                MOST,
                root / IGNORED,
            )
            break
        copy = place / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    shutil.rmtree(run_dir / FOLDER, ignore_errors=True)  # of a start that came to nothing
    target.rename(run_dir / FOLDER)


def is_path(spec: str) -> bool:
    """Whether a spec names a directory or a file, and not a module."""
    return _split(spec)[0].exists()


def copy_of(spec: str, run_dir: Path) -> str | None:
    """Returns the spec of a run's own copy of a trial; None if it has none.

    Args:
      spec: by which the trial was named when the run began.
      run_dir: of the run.
    """
    place, class_name = _split(spec)
    there = run_dir.resolve() / FOLDER / place.name
    if not place.name or not there.exists():
        return None
    return f"{there}:{class_name}" if class_name else str(there)


def changed_files(spec: str, run_dir: Path) -> list[str]:
    """Returns which files of a trial are others now than those that its run has copied."""
    copy = copy_of(spec, run_dir)
    if copy is None or not is_path(spec):
        return []
    kept, now = _split(copy)[0], _split(spec)[0]
    if kept.is_file():
        kept, now = kept.parent, now.parent
    files = (file for file in sorted(kept.rglob("*")) if file.is_file())
    names = (file.relative_to(kept) for file in files if file.parent.name not in _NO_CODE)
    return [str(name) for name in names if not _same(kept / name, now / name)]


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _split(spec: str) -> tuple[Path, str]:
    head, _, name = spec.rpartition(":")
    if not head or Path(spec).exists() or not re.fullmatch(r"[^\W\d]\w*", name):
        return Path(spec), ""
    return Path(head), name


def _imported(source: Path) -> list[Path]:
    """Returns a file, and those below its folder that were imported for it."""
    files = {source, *imported_files()}
    return sorted(file for file in files if file.is_file() and file.stat().st_size <= LARGEST)


def _code_in(root: Path, run_dir: Path) -> Iterator[Path]:
    """Yields the files of a directory that are copied."""
    rules = _rules(root)
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        inside = [one for one in folders if not _is_left_out(here / one, root, rules)]
        folders[:] = [one for one in inside if not _is_run(here / one, run_dir)]
        for name in names:
            file = here / name
            if _is_left_out(file, root, rules) or not file.is_file():
                continue
            if file.stat().st_size <= LARGEST:
                yield file


def _is_run(folder: Path, run_dir: Path) -> bool:
    return folder == run_dir or any((folder / name).exists() for name in _OF_A_RUN)


def _is_left_out(path: Path, root: Path, rules: list[tuple[str, bool, bool]]) -> bool:
    if path.name.startswith(".") or path.name in _NO_CODE:
        return True
    name, left_out = path.relative_to(root).as_posix(), False
    for pattern, of_folders, takes_back in rules:
        if (path.is_dir() or not of_folders) and re.fullmatch(pattern, name):
            left_out = not takes_back
    return left_out


def _rules(root: Path) -> list[tuple[str, bool, bool]]:
    """Returns of each line a pattern, whether it is of folders alone, and whether it takes back."""
    file = root / IGNORED
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        takes_back, rule = rule.startswith("!"), rule.removeprefix("!")
        of_folders, rule = rule.endswith("/"), rule.rstrip("/")
        pattern = ("" if "/" in rule else "(.*/)?") + _pattern(rule.removeprefix("/"))
        try:
            re.compile(pattern)
        except re.error as error:
            logging.warning("%s: %r is no pattern: %s.", file, line.strip(), error)
            continue
        found.append((pattern, of_folders, takes_back))
    return found


def _pattern(rule: str) -> str:
    """Returns a regular expression of a name with stars; two stars are any number of folders."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]+\])", rule)
    meanings = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        meanings.get(part)
        or (part.replace("[!", "[^", 1) if part.startswith("[") else re.escape(part))
        for part in parts
    )
