"""Files as values of features: their paths in lists, and their content in base64."""

from __future__ import annotations

import base64
import re
import reprlib
from pathlib import Path

from t2t_torch.errors import DataError


def path_of_line(text: str, folder: Path, kind: str) -> Path:
    """Returns the path that a line of a list names, absolute or relative to the list's folder.

    Args:
      text: the line; "~" is the home directory.
      folder: folder of the list.
      kind: what the file is, for errors: "picture" or "sound".

    Raises:
      DataError: the line is empty, or there is no such file.
    """
    if not text.strip():
        raise DataError(f"an empty line; the path of a {kind} file was expected.")
    try:
        path = folder / Path(text).expanduser()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # raised by pathlib for invalid names
        raise DataError(f"{reprlib.repr(text)} is no path: {error}.") from None
    if not is_file:
        raise DataError(f"{path} is not there, or is no file.")
    return path


def file_content(value: str | bytes | Path, kind: str) -> bytes:
    """Returns the content of a file.

    Args:
      value: its path, its content, or its content in base64: with line breaks or without, in the
        alphabet for URLs or not, also after `data:...;base64,`.
      kind: see `path_of_line`.

    Raises:
      DataError: the file cannot be read, or the text is no base64.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, Path):
        try:
            return value.read_bytes()
        except OSError as error:
            raise DataError(f"'{value}' cannot be read: {error.strerror}.") from None
    text = re.sub(r"[\r\n]", "", value.rpartition(",")[2]).rstrip("=")
    text = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise DataError(
            f"{reprlib.repr(value)} is no {kind}: expected the content of a {kind} file in base64. "
            "In Python a file is given as pathlib.Path(...)."
        ) from None
