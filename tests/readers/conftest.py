"""What tests of several formats need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords, Record

Read = Callable[..., tuple[list[Record], BadRecords]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For files that are written again and again, as property tests do."""
    return tmp_path_factory.mktemp("readers")


@pytest.fixture(scope="session")
def read(folder: Path) -> Read:
    """Writes a file and reads it, leaving bad records out."""

    def written(content: bytes | str, format: str, **options: Any) -> tuple[list[Record], Any]:
        path = folder / f"file.{format}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        bad = BadRecords("skip")
        return list(open_records(path, format=format, bad=bad, options=options)), bad

    return written
