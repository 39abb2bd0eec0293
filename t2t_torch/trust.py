"""Trust in a run: whether Python code that comes with it may be executed."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from pathlib import Path

from t2t_torch import registry
from t2t_torch.errors import UsageError

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
    if _trusted.get() or str(path.resolve()) in registry.usr_dirs():
        return
    comes = "a relative path" if not path.is_absolute() else ""
    if path.resolve().is_relative_to(run.resolve()):
        comes = "inside it"
    if comes:
        raise UsageError(
            f"'{run}' would execute the Python code in '{code}', {comes}. The author of this "
            "folder wrote that code: read it first. If you trust it, give --trust_code (in Python "
            f"t2t_torch.load(..., trust_code=True)){alternative}."
        )


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
