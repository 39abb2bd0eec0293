"""Lines of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t2t_torch.errors import DataError


def holds_json(path: Path) -> bool:
    """Whether a file's name says that each line is JSON: .jsonl, also packed, .jsonl.gz."""
    return ".jsonl" in path.suffixes[-2:]


def read_json(line: str, place: str) -> Any:
    """Returns what a line of such a file is in JSON; of an empty line an empty text.

    Args:
      line: without its end.
      place: of the line, for errors.

    Raises:
      DataError: it is no JSON, or has half a character in it.
    """
    if not line.strip():
        return ""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is no JSON, at character {error.colno}: {line[:80]}") from None
    except (ValueError, RecursionError):  # a number of too many digits, too many brackets
        raise DataError(f"{place} is no JSON that can be read: {line[:80]}") from None
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{place} has half a character, an escape from \\ud800 to \\udfff without its other "
            f"half: {line[:80]}"
        ) from None
    return value
