"""Data sets of huggingface.co, and the library that reads them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.features.picture import encoded
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords


def test_a_picture_of_the_hub_is_not_decoded_by_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its decoders start Ghostscript for EPS."""
    datasets = pytest.importorskip("datasets")
    good = encoded(np.zeros((2, 3, 3), np.uint8))
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"
    features = datasets.Features({"image": datasets.Image(), "n": datasets.Value("int32")})
    column = [{"bytes": content, "path": None} for content in (good, program, good)]
    rows = datasets.Dataset.from_dict({"image": column, "n": [0, 1, 2]}, features)
    bad = BadRecords("skip")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    options = {"hub": "some/name", "split": "train"}
    records = list(open_records(Path(), format="huggingface", bad=bad, options=options))
    assert [(r.place.line, r.values["n"]) for r in records] == [(1, 0), (3, 2)]
    assert records[0].values["image"].shape == (2, 3, 3)
    assert "row 2: cannot be decoded: 47 bytes that are no picture" in bad.listed[0]


def test_a_data_set_of_the_hub_is_asked_for_by_name(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def load(name: str, config: str | None, *, split: str) -> Any:
        asked.append((name, config, split))
        if name == "absent":
            raise FileNotFoundError("there is none")
        return datasets.load_from_disk(str(saved / "one"))

    monkeypatch.setattr(datasets, "load_dataset", load)
    options = {"hub": "some/name", "config": "small", "split": "train"}
    records = list(open_records(Path(), format="huggingface", options=options))
    assert len(records) == 400
    assert str(records[0].place) == "some/name, row 1"
    assert asked == [("some/name", "small", "train")]
    with pytest.raises(DataError, match=r"Cannot load absent .*there is none"):
        open_records(Path(), format="huggingface", options={"hub": "absent", "split": "train"})
    with pytest.raises(UsageError, match="name one of its splits"):
        open_records(Path(), format="huggingface", options={"hub": "some/name"})


def test_a_configuration_is_of_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="option config is for the option hub"):
        open_records(tmp_path, format="huggingface", options={"config": "small"})


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install '\.\[hf\]'"):
        open_records(Path(), format="huggingface", options={"hub": "some/name", "split": "train"})
