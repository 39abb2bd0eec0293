from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records

IMAGES, LABELS = "t-images-idx3-ubyte", "t-labels-idx1-ubyte"


def _idx(array: np.ndarray[Any, Any]) -> bytes:
    head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def _write(folder: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Path:
    (folder / IMAGES).write_bytes(_idx(images))
    (folder / LABELS).write_bytes(_idx(labels))
    return folder / IMAGES


@settings(deadline=None)
@given(st.integers(0, 4), st.sampled_from([(2, 3), (1, 1), (2, 3, 3)]), st.integers(0, 2**32 - 1))
def test_pictures_are_read_back(
    folder: Path, count: int, shape: tuple[int, ...], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (count, *shape), dtype=np.uint8)
    labels = draw.integers(0, 256, count, dtype=np.uint8)
    records = list(open_records(_write(folder, images, labels)))
    assert [record.values["label"] for record in records] == [str(label) for label in labels]
    for record, image in zip(records, images, strict=True):
        assert record.values["image"].shape == (*shape[:2], 3 if len(shape) == 3 else 1)
        assert record.values["image"].tobytes() == image.tobytes()
        assert record.values["image"].dtype == np.uint8


def test_labels_are_found_packed_or_not_or_where_the_option_says(tmp_path: Path) -> None:
    path = _write(tmp_path, np.zeros((1, 2, 2)), np.array([7]))
    packed = tmp_path / f"{IMAGES}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert next(open_records(packed)).values["label"] == "7"
    (tmp_path / LABELS).rename(tmp_path / "other")
    with pytest.raises(DataError, match=f"no file of labels beside it.*{LABELS}"):
        open_records(packed)
    record = next(open_records(packed, options={"labels": "other"}))
    assert record.values["label"] == "7"
    assert str(record.place) == f"{packed}, picture 1"


@pytest.mark.parametrize("broken", [IMAGES, LABELS])
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path: Path, broken: str) -> None:
    path = _write(tmp_path, np.zeros((3, 2, 2)), np.zeros(3))
    good = (tmp_path / broken).read_bytes()
    for content, told in (
        (good[:-1], "is cut off"),
        (good + b"\0", "is longer than the 3 records"),
        (b"", "is cut off"),
        (good[:6], "is cut off"),
        (b"\0\0\x0d" + good[3:], "starts with the bytes 00000d0"),
        (gzip.compress(good)[:-9], "is damaged"),
        (good[:7] + b"\2" + good[8:], "both should have the same number"),
    ):
        (tmp_path / broken).write_bytes(content)
        with pytest.raises(DataError, match=told):
            list(open_records(path))
