"""Trust in a run: whether Python code that comes with it may be executed."""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from t2t_torch import registry
from t2t_torch.errors import UsageError
from t2t_torch.files import passes_kernel

_trusted: contextvars.ContextVar[bool] = contextvars.ContextVar("trust_code", default=False)


@contextlib.contextmanager
def trusting(trust_code: bool) -> Iterator[None]:
    """Context manager that allows code that comes with a run, if `trust_code` is True."""
    token = _trusted.set(_trusted.get() or trust_code)
    try:
        yield
    finally:
        _trusted.reset(token)


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
    if _trusted.get() or str(real) in registry.usr_dirs():
        return
    comes = "" if path.is_absolute() else "a relative path"
    if passes_kernel(path):  # /proc/self/cwd is the current folder
        comes = "a path by way of /proc, which is relative in fact"
    elif any(is_inside(one, run) for one in (path, real)):  # a link inside may lead elsewhere
        comes = "inside it"
    if comes:
        raise UsageError(
            f"'{run}' would execute the Python code in '{code}', {comes}. The author of this "
            "folder wrote that code: read it first. If you trust it, give --trust_code (in Python "
            f"t2t_torch.load(..., trust_code=True)){alternative}."
        )


def is_inside(path: Path, run: Path) -> bool:
    """Returns True if a path, as it is written, is that of a run or below it."""
    written, place = (Path(os.path.normpath(one.absolute())) for one in (path, run))
    return any(written.is_relative_to(one) for one in (place, run.resolve()))


def check_module(run: Path, name: str) -> None:
    """Checks that a module named by a run may be imported: one that the user has installed.

    Raises:
      UsageError: it is in the current folder or in the run, or a part of Python, which may start
        other programs, and the run is not trusted.
    """
    top = name.partition(".")[0]
    spec = importlib.util.find_spec(top)
    places = [*(spec.submodule_search_locations or [spec.origin or ""])] if spec else []
    parents = [Path(place).resolve().parent for place in places] or [Path.cwd()]
    if top in sys.stdlib_module_names or any(
        parent == Path.cwd() or parent.is_relative_to(run.resolve()) for parent in parents
    ):
        check_code(run, top)


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
