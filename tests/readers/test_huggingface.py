from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.features.picture import encoded
from t2t_torch.readers import tables
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

ROWS = [
    {"text": "a\u2028b", "label": 1, "words": ["x", "y"], "inner": {"n": 3}},
    {"text": "", "label": -1, "words": [], "inner": {"n": None}},
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "words": datasets.Sequence(datasets.Value("string")),
            "inner": {"n": datasets.Value("int64")},
        }
    )
    folder = tmp_path_factory.mktemp("hf")
    rows = datasets.Dataset.from_list(ROWS * 200, features=features)
    rows.save_to_disk(str(folder / "one"))
    datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(
        str(folder / "several")
    )
    return folder


def test_a_saved_data_set_is_read_back(saved: Path) -> None:
    records = list(open_records(saved / "one"))
    assert [record.place.line for record in records] == list(range(1, 401))
    assert [record.values for record in records] == [
        {"text": "a\u2028b", "label": "pos", "words": ["x", "y"], "inner": {"n": 3}, "inner.n": 3},
        {"text": "", "label": None, "words": [], "inner": {"n": None}, "inner.n": None},
    ] * 200
    assert str(records[1].place) == f"{saved / 'one'}, row 2"


def test_classes_have_names_wherever_they_stand_and_pictures_are_arrays(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pictures = pytest.importorskip("PIL.Image")
    tag = datasets.ClassLabel(names=["O", "B-x"])
    features = datasets.Features(
        {
            "tags": datasets.Sequence(tag),
            "inner": {"tag": tag},
            "spans": datasets.Sequence({"tag": tag, "n": datasets.Value("int64")}),
            "list": [{"tag": tag}],
            "picture": datasets.Image(),
        }
    )
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    row = {
        "tags": [1, 0],
        "inner": {"tag": 1},
        "spans": {"tag": [0], "n": [5]},
        "list": [{"tag": 1}],
        "picture": pictures.fromarray(pixels),
    }
    datasets.Dataset.from_list([row, {**row, "picture": None}], features=features).save_to_disk(
        str(tmp_path / "saved")
    )
    first, second = (record.values for record in open_records(tmp_path / "saved"))
    assert first["tags"] == ["B-x", "O"]
    assert first["inner.tag"] == "B-x"
    assert first["spans.tag"] == ["O"]
    assert first["list"] == [{"tag": "B-x"}]
    assert np.array_equal(first["picture"], pixels[:, :, None])
    assert first["picture"].dtype == np.uint8
    assert second["picture"] is None


def test_a_split_of_several_is_read(saved: Path) -> None:
    assert len(list(open_records(saved / "several", options={"split": "train"}))) == 400
    assert len(list(open_records(saved / "several", options={"split": "test"}))) == 1
    with pytest.raises(DataError, match=r"holds train, test, and the option split says 'dev'"):
        open_records(saved / "several", options={"split": "dev"})


def test_a_picture_of_the_hub_is_not_decoded_by_the_library(tmp_path: Path) -> None:
    """Its decoders start Ghostscript for EPS."""
    datasets = pytest.importorskip("datasets")
    good = encoded(np.zeros((2, 3, 3), np.uint8))
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"
    features = datasets.Features({"image": datasets.Image(), "n": datasets.Value("int32")})
    column = [{"bytes": content, "path": None} for content in (good, program, good)]
    rows = datasets.Dataset.from_dict({"image": column, "n": [0, 1, 2]}, features)
    bad = BadRecords("skip")
    records = list(tables._huggingface_rows(tmp_path, rows, bad))
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


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match=r"no folder that save_to_disk wrote.*option hub"):
        open_records(tmp_path, format="huggingface")
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(DataError, match=f"Cannot load {tmp_path}"):
        open_records(tmp_path, format="huggingface")


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install '\.\[hf\]'"):
        open_records(Path(), format="huggingface", options={"hub": "some/name", "split": "train"})


def test_a_saved_data_set_needs_no_library_but_arrow(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    rows = [record.values for record in open_records(saved / "one")]
    assert [row["label"] for row in rows] == ["pos", None] * 200
    split = open_records(saved / "several", options={"split": "test"})
    assert [row.values["label"] for row in split] == ["pos"]
