"""What tests of several formats need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head, Match
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


@pytest.fixture(scope="session")
def match() -> Callable[[str, Path], Match | None]:
    """Returns the judgement of a reader on a file or folder."""

    def matched(format: str, path: Path) -> Match | None:
        matches = FORMATS[format].matches
        assert matches is not None
        return matches(Head(path))

    return matched


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a data set of 400 rows, and with several splits, saved to disk."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "words": datasets.Sequence(datasets.Value("string")),
            "inner": {"n": datasets.Value("int64")},
        }
    )
    rows = [
        {"text": "a\u2028b", "label": 1, "words": ["x", "y"], "inner": {"n": 3}},
        {"text": "", "label": -1, "words": [], "inner": {"n": None}},
    ]
    folder = tmp_path_factory.mktemp("hf")
    saved = datasets.Dataset.from_list(rows * 200, features=features)
    saved.save_to_disk(str(folder / "one"))
    datasets.DatasetDict({"train": saved, "test": saved.select([0])}).save_to_disk(
        str(folder / "several")
    )
    return folder
