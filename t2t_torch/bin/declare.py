"""`t2t-datagen --declare`: prints or writes the declaration of a problem."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from t2t_torch.errors import UsageError


def declare(path: Path, target: Path | None) -> int:
    """Prints or writes a declaration; prints samples and doubts on stderr.

    Raises:
      UsageError: `target` exists or cannot be written.
    """
    from t2t_torch.declaration.draft import draft

    if target is not None:
        _check_absent(target)
    found = draft(path)
    if target is not None:
        _write_new(target, found.text)
    name, folder = found.content["problem"], found.path.parent
    told = ["The first rows, as samples:"]
    told += [f"  {field}: {_shown(value)}" for row in found.samples for field, value in row.items()]
    told += ["Not sure:", *(f"  - {doubt}" for doubt in found.doubts)] if found.doubts else []
    usr_dir = folder if target is None else target.parent
    command = ["t2t-datagen", f"--t2t_usr_dir={usr_dir}", f"--problem={name}", "--data_dir=data"]
    if usr_dir.resolve() != folder.resolve():
        command.append(f"--tmp_dir={folder}")
    if found.has_bad_rows:
        command.append("--on_bad_record=skip")
    if target is None:
        again = ["t2t-datagen", f"--declare={path}", f"--declare_to={found.path}"]
        told += ["", f"Save it:  {shlex.join(again)}"]
        told += ["Look it over, and run:", f"  {shlex.join(command)}"]
        told += [f"(Saved in another folder, it needs --tmp_dir={folder} too.)", ""]
    else:
        told += ["", f"Wrote {target}. Look it over, and run:", f"  {shlex.join(command)}", ""]
    print("\n".join(told), file=sys.stderr)
    if target is None:
        print(found.text)
    return 0


def _check_absent(target: Path) -> None:
    if target.suffix != ".json":
        raise UsageError(
            f"--declare_to={target}: expected a new file whose name ends with .json, such as "
            f"{target / 'mine.json' if target.is_dir() else target.with_suffix('.json')}."
        )
    if os.path.lexists(target):
        raise UsageError(
            f"--declare_to={target} exists, and is not overwritten. Give another name, or move it."
        )


def _write_new(target: Path, text: str) -> None:
    """Writes a file that must not exist; makes the folders above it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            try:
                file.write(f"{text}\n")
                file.flush()
            except OSError:
                target.unlink()
                raise
    except FileExistsError:
        _check_absent(target)
        raise UsageError(f"--declare_to={target}: {target.parent} is not a folder.") from None
    except OSError as error:
        raise UsageError(f"--declare_to={target} cannot be written: {error.strerror}.") from None


def _shown(value: object) -> str:
    """A value on one line, not too long."""
    text = f"a picture of {value.shape}" if hasattr(value, "shape") else repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
