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
from t2t_torch.features.picture import encoded
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

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


def test_hostile_pictures_are_bad_records(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{number}.png").write_bytes(encoded(np.zeros((4, 4, 3), np.uint8)))
    screen = b"GIF89a" + struct.pack("<HHBBB", 9000, 9000, 0x80, 0, 0) + bytes(6)
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 9000, 9000, 0) + b"\x02\x02\x4c\x01\x00\x3b"
    (tmp_path / "a" / "large.gif").write_bytes(screen + frame)
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"
    (tmp_path / "b" / "program.png").write_bytes(program)
    for options in ({}, {"encoded": True}):
        bad = BadRecords("skip")
        records = list(open_records(tmp_path, format="class_folders", bad=bad, options=options))
        assert len(records) == 6
        assert sorted("pixels; at most" in one for one in bad.listed) == [False, True]
        assert any(
            f"program.png, picture 1: cannot be read: {len(program)} bytes" in one
            for one in bad.listed
        )


@pytest.mark.parametrize("shape", [(1, 2**32 - 1, 2**32 - 1), (2**32 - 1, 0, 5)])
def test_a_shape_that_no_picture_has_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    head = struct.pack(">4B", 0, 0, 8, 3) + struct.pack(">3I", *shape)
    (tmp_path / IMAGES).write_bytes(head)
    (tmp_path / LABELS).write_bytes(_idx(np.zeros(1)))
    with pytest.raises(DataError, match=r"states items of [\d,]+ bytes; expected 1 to 67,108,864"):
        next(open_records(tmp_path / IMAGES))


def test_a_text_of_a_class_that_unpacks_to_much_is_a_bad_record(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.txt.gz").write_bytes(gzip.compress(b"a text"))
    (tmp_path / "a" / "2.txt.gz").write_bytes(gzip.compress(bytes(70_000_000), 1))
    bad = BadRecords("skip")
    records = list(open_records(tmp_path, format="class_folders", bad=bad))
    assert [record.values["text"] for record in records] == ["a text"] * 4
    assert "2.txt.gz, line 1: a text of more than 67,108,864 bytes" in bad.listed[0]
