"""Code of users and of runs: where it is, and whether it may be executed."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib.util
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TypeVar

from t2t_torch import errors, files, registry
from t2t_torch.remote import opened
from t2t_torch.reporter import Reporter, current, reporting
from t2t_torch.settings import Settings, hp

_S = TypeVar("_S", bound=Settings)
_R = TypeVar("_R")

_PYTHON = os.path.realpath(sysconfig.get_path("stdlib"))
_trusted: contextvars.ContextVar[bool] = contextvars.ContextVar("trust_code", default=False)


@contextlib.contextmanager
def trusting(trust_code: bool) -> Iterator[None]:
    """Context manager that allows code that comes with a run, if `trust_code` is True."""
    token = _trusted.set(_trusted.get() or trust_code)
    try:
        yield
    finally:
        _trusted.reset(token)


class UsrDirSettings(Settings):
    """The folders of a user's code."""

    t2t_usr_dir: tuple[str, ...] = hp(
        (),
        "Directory of your own problems, models and sets; may be given repeatedly.",
        path=True,
        repeated=True,
    )


class CodeSettings(UsrDirSettings):
    """A user's code, and trust in that of a run."""

    trust_code: bool = hp(
        False, "Executes Python code that comes with the run; see docs/explanation/security.md."
    )


class CacheSettings(Settings):
    """The copies of data in object stores; see `remote`."""

    cache_gb: float = hp(
        0.0,
        "Gigabytes of shards of object stores that this machine keeps; 0: all that were read.",
        low=0.0,
    )


@contextlib.contextmanager
def running(settings: Settings, reporter: Reporter | None = None) -> Iterator[None]:
    """Context of a workflow: its reporter, the users' folders and declarations, trusted code.

    Args:
      settings: settings of the workflow.
      reporter: where it reports; None: to the current one.

    Raises:
      RegistryError: a folder does not exist, or a declaration has a name that is already taken.
    """
    paths = [getattr(settings, name) for name, one in settings.declared().items() if one.path]
    listed = [path.split(",") if isinstance(path, str) else path or () for path in paths]
    with (
        reporting(reporter or current()),
        trusting(getattr(settings, "trust_code", False)),
        opened(itertools.chain.from_iterable(listed), getattr(settings, "cache_gb", 0.0)),
    ):
        for directory in getattr(settings, "t2t_usr_dir", ()):
            registry.import_usr_dir(directory)
        registry.add_declarations(getattr(settings, "data_dir", None))
        yield


def workflow(function: Callable[[_S], _R]) -> Callable[..., _R]:
    """Makes a function of settings a workflow: with `reporter=`, in the context `running`."""

    @functools.wraps(function)
    def run(settings: _S, *, reporter: Reporter | None = None) -> _R:
        with running(settings, reporter):
            return function(settings)

    return run


def check_code(run: Path, code: str | Path, *, alternative: str = "") -> None:
    """Checks that code referenced by a run may be executed.

    Code elsewhere on this machine may be executed, since the user has put it there.  Code inside
    the run directory, or at a relative path, may be by the author of the run: it needs `trusting`.

    Args:
      run: run directory, or a folder that was exported from it.
      code: file or folder with Python code.
      alternative: another way to allow the code, for the end of the error message.

    Raises:
      UsageError: the code comes with the run, and the run is not trusted.
    """
    path = Path(code)
    real = Path(os.path.realpath(path))
    if str(real) in registry.usr_dirs():
        return
    comes = "" if path.is_absolute() else "a relative path"
    if real.is_relative_to(_PYTHON) and not {"site-packages", "dist-packages"} & {*real.parts}:
        comes = "a part of Python"  # may start other programs
    elif files.passes_kernel(path):  # /proc/self/cwd is the current folder
        comes = "a path by way of /proc, which is relative in fact"
    elif any(is_inside(one, run) for one in (path, real)):  # a link inside may lead elsewhere
        comes = "inside it"
    if comes:
        _refuse(run, code, comes, alternative)


def _refuse(run: Path, code: str | Path, comes: str, alternative: str = "") -> None:
    if not _trusted.get():
        raise errors.UsageError(
            f"'{run}' would execute the Python code in '{code}', {comes}. The author of this "
            "folder wrote that code: read it first. If you trust it, give --trust_code (in Python "
            f"t2t_torch.load(..., trust_code=True)){alternative}."
        )


def is_inside(path: Path, run: Path) -> bool:
    """Returns True if a path, as it is written, is that of a run or below it."""
    written, place = (Path(os.path.normpath(one.absolute())) for one in (path, run))
    return any(written.is_relative_to(one) for one in (place, run.resolve()))


def check_module(run: Path, name: str, known: str = "") -> None:
    """Checks that a module named by a run may be imported: one that the user has installed.

    Args:
      run: run directory.
      name: dotted name of the module.
      known: file that the module was when the run began; may be executed as `check_code` says.

    Raises:
      UsageError: it is in the current folder or in the run, in a package without `__init__.py`,
        or a part of Python, which may start other programs, and the run is not trusted.
    """
    top, *parts = name.split(".")
    file = Path(file_of(name))
    depth = len(parts) + (file.name == "__init__.py")
    roots = [one.resolve() for one in file.parents[depth : depth + 1]]  # in `sys.path`
    if top in sys.stdlib_module_names or top == "__main__":
        _refuse(run, name, "a part of Python")
    elif known and known == str(file):
        check_code(run, known)
    elif not roots or Path.cwd() in roots or is_inside(file, run) or is_inside(roots[0], run):
        _refuse(run, name, "a module that is not installed")


def file_of(name: str, *, beside: bool = True) -> str:
    """Returns the file of a module by its full dotted name; imports nothing.

    Args:
      name: dotted name.
      beside: also looks in the current folder, after `sys.path`.

    Returns:
      An absolute path.  Empty if there is no such module, or if a package of it has no
      `__init__.py`: any folder in `sys.path` adds modules to such a package.
    """
    top, *parts = name.split(".")
    spec = None
    with contextlib.suppress(ImportError, ValueError):  # "__main__" has no spec
        spec = importlib.util.find_spec(top)
    if spec is None and beside:
        spec = PathFinder.find_spec(top, [str(Path.cwd())])
    for part in parts:
        if spec is None or not spec.has_location or spec.submodule_search_locations is None:
            return ""
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    return str(spec.origin) if spec is not None and spec.has_location else ""


def import_usr_dirs(run: Path, folders: tuple[str, ...]) -> list[str]:
    """Imports the `--t2t_usr_dir` folders of a run; returns those that no longer exist.

    Raises:
      UsageError: a folder comes with the run, and the run is not trusted.
    """
    missing = []
    for folder in folders:
        if Path(folder).is_dir():
            given = (
                f", or name its folder yourself: --t2t_usr_dir={folder} (in Python "
                f"t2t_torch.registry.import_usr_dir({folder!r}))"
            )
            if Path(folder).name != registry.DECLARATIONS or registry.has_python(Path(folder)):
                check_code(run, folder, alternative=given)
            registry.import_usr_dir(folder)
        else:
            missing.append(folder)
    return missing
