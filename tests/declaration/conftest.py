"""A folder of declarations and their data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.declaration.problem import problem_class
from t2t_torch.mode import Split

Declare = Callable[..., Any]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Writes a declaration, and files beside it; returns its problem.  Keys replace the usual."""

    def write(written: dict[str, str | bytes] | None = None, /, **keys: Any) -> Any:
        for name, text in (written or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        usual = {"problem": "mine", "kind": "text2class", "files": {"train": "train.csv"}}
        content = {**usual, **keys}
        if isinstance(content["files"], dict):
            content["files"] = {"eval": 0.5, **content["files"]}
        path = tmp_path / "mine.json"
        said = {key: value for key, value in content.items() if value is not None}
        path.write_text(json.dumps(said, indent=1), "utf-8")
        return problem_class(path)()

    return write


@pytest.fixture
def samples(tmp_path: Path) -> Callable[[Any], list[dict[str, Any]]]:
    """The samples of a problem's splits, in the order of their keys in "files"."""

    def read(problem: Any, *splits: Split) -> list[dict[str, Any]]:
        problem.prepare(tmp_path)
        chosen = splits or tuple(problem.shards)
        return [one for split in chosen for one in problem.generate_samples(tmp_path, split)]

    return read
