from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records


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


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match=r"no folder that save_to_disk wrote.*option hub"):
        open_records(tmp_path, format="huggingface")
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(DataError, match=f"Cannot load {tmp_path}"):
        open_records(tmp_path, format="huggingface")


def test_a_saved_data_set_needs_no_library_but_arrow(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    rows = [record.values for record in open_records(saved / "one")]
    assert [row["label"] for row in rows] == ["pos", None] * 200
    split = open_records(saved / "several", options={"split": "test"})
    assert [row.values["label"] for row in split] == ["pos"]
