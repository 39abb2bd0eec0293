"""Copies of a run's code and declarations, which make a run independent of all other folders.

A run directory holds `code/<folder>/`, a copy of each `--t2t_usr_dir` or of the trial, and
`declarations/<problem>.json`.  The paths in its records are hints: code that is still where it was
is used from there, otherwise the copy is, which needs trust (`trust.py`).  A declaration is no
code, so the run's own is always used, unless the user names a folder that declares the problem.
"""

from __future__ import annotations

import contextvars
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, RegistryError, listed
from t2t_torch.files import read_bytes, read_text
from t2t_torch.run.checksums import CODE, check_files, checksums_of, read_checked
from t2t_torch.trust import check_code, import_usr_dirs

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from t2t_torch.problem import Problem
    from t2t_torch.run.directory import RunDirectory, TaskRecord

IGNORED = ".pedlignore"
"""File in a folder of code with `.gitignore` patterns of files that are not copied."""

LARGEST = 1_000_000  # maximum size in bytes of a code file
MOST = 20_000_000  # maximum total size in bytes of a folder
MOST_FILES = 2_000  # maximum number of files of a folder

# Files that mark a folder as a run, a search, an artifact or a virtual environment.
_NO_CODE_WITH = ("task.json", "search.journal", "signature.json", "pyvenv.cfg")
_NO_CODE = ("__pycache__", "node_modules", "site-packages")
CHANGED = "{} of {} changed since the run began; {} has them as they were."
"""Message about changed files of a folder of code, of which there is a copy."""


def keep_code(
    directory: RunDirectory, task: TaskRecord, trial: Mapping[str, bytes] | None = None
) -> list[str]:
    """Lets `RunDirectory.commit` copy the code and the declarations of a task into its run.

    Args:
      directory: run directory, locked.
      task: the task.
      trial: copies of a trial's files by their path below `code/`.

    Returns:
      "code/my/model.py: changed" for each copied file that differs from the run's present copy.
    """
    files = {f"{CODE}/{name}": content for name, content in (trial or {}).items()}
    for folder in map(Path, task.usr_dirs):
        places = (folder, directory.path / CODE / folder.name)  # or the run's present copy
        root = next((place.resolve() for place in places if place.is_dir()), None)
        if root is not None and registry.has_python(root):
            copies = contents_of(root, [*code_in(root, directory.path), *_imported_beside(root)])
            files |= {f"{CODE}/{name}": content for name, content in copies.items()}
    for name, content in _declarations_of(task).items():
        files[f"{registry.DECLARATIONS}/{name}.json"] = content
    return directory.keep(files)


def contents_of(root: Path, files: Iterable[Path]) -> dict[str, bytes]:
    """Returns the contents of a folder's files by their path below the folder that `root` is in.

    Python files come first, then the smaller ones: `MOST` bytes or `MOST_FILES` are taken, the rest
    is reported.
    """
    ordered = sorted(files, key=lambda file: (file.suffix != ".py", file.stat().st_size, file))
    contents: dict[str, bytes] = {}
    size = 0
    for number, file in enumerate(ordered):
        size += file.stat().st_size
        if size > MOST or number == MOST_FILES:
            logging.warning(
                f"The run keeps no copy of {len(ordered) - number} of the {len(ordered)} files of "
                f"{root}: a copy has {MOST} bytes and {MOST_FILES} files at most. Name what is no "
                f"code in {root / IGNORED}."
            )
            break
        contents[file.relative_to(root.parent).as_posix()] = read_bytes(file)
    return contents


def code_in(root: Path, run: Path) -> list[Path]:
    """Returns the files of a folder of code to copy; reports files that are too large.

    Hidden files, those matched by `.pedlignore`, runs, artifacts and virtual environments are left
    out.
    """
    taken: list[Path] = []
    large: list[Path] = []
    for file in _files_in(root, run.resolve(), _rules(root)):
        (taken if file.stat().st_size <= LARGEST else large).append(file)
    if large:
        names = listed(file.relative_to(root) for file in large)
        level = logging.WARNING if any(file.suffix == ".py" for file in large) else logging.INFO
        logging.log(level, "The run keeps no copy of files over %d bytes: %s.", LARGEST, names)
    return taken


def _files_in(root: Path, run: Path, rules: GitIgnoreSpec) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = [
            one
            for one in folders
            if not _is_left_out(here / one, root, rules)
            and here / one != run
            and not any((here / one / name).exists() for name in _NO_CODE_WITH)
        ]
        for name in names:
            if not _is_left_out(here / name, root, rules) and (here / name).is_file():
                yield here / name


def _is_left_out(path: Path, root: Path, rules: GitIgnoreSpec) -> bool:
    if path.name.startswith(".") or path.name in _NO_CODE:
        return True
    return rules.match_file(f"{path.relative_to(root).as_posix()}{'/' * path.is_dir()}")


def _rules(root: Path) -> GitIgnoreSpec:
    """Reads the ignore file; warns about invalid patterns."""
    from pathspec import GitIgnoreSpec  # keeps --help fast

    file = root / IGNORED
    text = read_text(file, errors="replace") if file.is_file() else ""
    patterns: list[Any] = []
    for line in text.splitlines():
        try:
            patterns += GitIgnoreSpec.from_lines([line]).patterns
        except (ValueError, re.error) as error:
            logging.warning("%s: %r is no pattern: %s.", file, line.strip(), error)
    return GitIgnoreSpec(patterns)


def _imported_beside(root: Path) -> list[Path]:
    """Returns the imported modules that lie beside a user's folder, which its files import."""
    beside = []
    for name, module in list(sys.modules.items()):
        file = Path(vars(module).get("__file__") or "") if module is not None else Path()
        if file.suffix != ".py" or not file.is_relative_to(root.parent):
            continue
        parts = file.relative_to(root.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        is_ours = file.is_relative_to(root) or file.is_relative_to(registry.PACKAGE)
        if not is_ours and name.split(".") == list(parts) and file.stat().st_size <= LARGEST:
            beside.append(file)
    return beside


def _declarations_of(task: TaskRecord) -> dict[str, bytes]:
    """Returns the declarations that a problem is made of, by name, as JSON."""
    from t2t_torch.declaration.problem import located

    if not task.problem:
        return {}
    try:
        problems = list(_with_parts(registry.problem(task.problem)))
    except RegistryError:  # a problem made in Python, registered nowhere
        return {}
    texts = {}
    for problem in problems:
        if said := getattr(problem, "said", None):
            content, path = json.loads(said), Path(getattr(problem, "declared_in", ""))
            if "files" in content:
                content["files"] = located(content["files"], path.parent)
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            texts[problem.name] = text.encode()
    return texts


def _with_parts(problem: Problem) -> Iterator[Problem]:
    """Yields a problem, the problems that it consists of, and that of its vocabulary."""
    yield problem
    names = [*getattr(problem, "problem_names", ())]
    names += filter(None, [getattr(problem, "use_vocab_from_other_problem", None)])
    for name in names:
        if name != problem.name:
            yield from _with_parts(registry.problem(name))


def check_links(run: Path) -> None:
    """Checks that the copies of a run are files: a link would lead to what the run does not hold.

    Raises:
      CheckpointError: one is a symbolic link.
    """
    folders = [run / CODE, run / registry.DECLARATIONS]
    for path in [*folders, *(path for folder in folders for path in folder.rglob("*"))]:
        if path.is_symlink():
            raise CheckpointError(
                f"{path} is a link, and a run has copies of files. Copy the run where it was "
                "trained with what its links lead to:  cp -rL RUN COPY"
            )


def copies_in(run: Path) -> dict[str, bytes]:
    """Returns the copies of code and declarations in a run, by their path below it.

    Raises:
      CheckpointError: a copy was changed, or is a link.
    """
    check_links(run)
    paths = [path for name in (CODE, registry.DECLARATIONS) for path in (run / name).rglob("*")]
    files = [path for path in sorted(paths) if path.is_file() and path.parent.name not in _NO_CODE]
    names, known = [file.relative_to(run).as_posix() for file in files], checksums_of(run)
    return {name: read_checked(run, name, known) for name in names}


def copy_code(run: Path, target: Path) -> None:
    """Copies the code and the declarations of a run into another folder that is loaded as a run."""
    for name, content in copies_in(run).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


def open_code(run: Path, task: TaskRecord) -> None:
    """Makes the code and the declarations of a run known to the registry.

    Folders of the user that are still where they were are imported.  The run's copies of the others
    are imported when a name is looked up that no other folder declares.

    Raises:
      CheckpointError: a copied declaration was changed, or a copy is a link.
      UsageError: a folder comes with the run, and the run is not trusted.
    """
    check_links(run)
    registry.add_declaration(task.declaration)  # of imported runs of earlier versions
    declared = read_declarations(run)
    for content in declared.values():
        registry.add_declaration(content)
    hints = [Path(folder) for folder in task.usr_dirs]
    if declared:  # a folder of declarations alone is not needed
        hints = [one for one in hints if not one.is_dir() or registry.has_python(one)]
    import_usr_dirs(run, tuple(str(one) for one in hints if not is_copy(one, run)))
    trust = contextvars.copy_context()  # in this run, not in one that is opened later
    for folder in hints:
        copy = run.resolve() / CODE / folder.name
        if changed := changed_files(copy, folder):
            logging.warning(CHANGED.format(listed(changed), folder, copy))
        if copy.is_dir() and str(folder.resolve()) not in registry.usr_dirs():
            registry.carry(copy, lambda one: trust.run(_check_copy, run, one))
    for name, content in declared.items():
        if (other := registry.declared_in(name)) and _differs(content, other):
            logging.warning(
                "the declaration of %s in %s differs from that of the run, %s, and is used.",
                name,
                other,
                run / registry.DECLARATIONS / f"{name}.json",
            )


def is_copy(folder: Path, run: Path) -> bool:
    """Returns True if a folder is a copy in a run directory."""
    return folder.resolve().is_relative_to(run.resolve() / CODE)


def _check_copy(run: Path, copy: Path) -> None:
    check_code(run, copy, alternative=f", or name the folder yourself: --t2t_usr_dir={copy}")
    check_files(run, [f"{CODE}/"])


def read_declarations(run: Path) -> dict[str, dict[str, Any]]:
    """Returns the run's own declarations by name.

    Raises:
      CheckpointError: a file was changed.
    """
    files = sorted((run / registry.DECLARATIONS).glob("*.json"))
    check_files(run, [f"{registry.DECLARATIONS}/"] if files else [])
    read = (registry.json_declaration(file) for file in files)
    return {str(content["problem"]): content for content in read if content}


def _differs(content: Mapping[str, Any], path: Path) -> bool:
    """Returns True if a declaration differs in more than the location of its files."""
    other = registry.json_declaration(path) if path.suffix == ".json" else None
    if other is None:
        return True
    return {**content, "files": None} != {**other, "files": None}


def recorded_usr_dirs(run: Path, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the users' folders of a run: those of this process, and copies that they lack.

    Args:
      run: the run directory.
      known: the folders in the record of a run that resumes.
    """
    folders = [folder for folder in registry.usr_dirs() if not is_copy(Path(folder), run)]
    for folder in known:
        copy = run / CODE / Path(folder).name
        is_in_use = str(copy.resolve()) in registry.usr_dirs()
        if folder in folders or not copy.is_dir():
            continue
        if is_in_use or not registry.declares_all(copy):
            folders.append(folder)
    return tuple(folders)


def changed_files(copy: Path, now: Path) -> list[str]:
    """Returns the files of a folder that differ from their copies."""
    if not (copy.is_dir() and now.is_dir()) or copy.resolve() == now.resolve():
        return []
    files = (file for file in sorted(copy.rglob("*")) if file.is_file())
    names = (file.relative_to(copy) for file in files if file.parent.name not in _NO_CODE)
    return [
        str(name)
        for name in names
        if not (now / name).is_file() or read_bytes(copy / name) != read_bytes(now / name)
    ]
