"""Whether Python code that comes with a run may be executed."""

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
    """Allows code that comes with a run inside the block, if `trust_code` is true."""
    token = _trusted.set(_trusted.get() or trust_code)
    try:
        yield
    finally:
        _trusted.reset(token)


def check_code(run: Path, code: str | Path, *, alternative: str = "") -> None:
    """Checks that code which a run names may be executed.

    Code elsewhere on this machine, where its user put it, may be executed.  Code inside the run
    directory, or at a relative path, may be by the author of the run: it needs `trusting`.

    Args:
      run: the run directory, or a folder that was exported from it.
      code: a file or folder with Python code.
      alternative: another way to allow the code, the end of the error message.

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
    """Imports the `--t2t_usr_dir` folders of a run; returns those that do not exist any more.

    Raises:
      UsageError: one comes with the run, and the run is not trusted.
    """
    gone = []
    for folder in folders:
        if Path(folder).is_dir():
            given = (
                f", or name its folder yourself: --t2t_usr_dir={folder} (in Python "
                f"t2t_torch.registry.import_usr_dir({folder!r}))"
            )
            check_code(run, folder, alternative=given)
            registry.import_usr_dir(folder)
        else:
            gone.append(folder)
    return gone
