from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    tiny_raw_files.write_cifar(tmp_path)
    return tmp_path


def test_planes_of_colour_become_pixels(raw: Path) -> None:
    sample = next(iter(registry.problem("image_cifar10").generate_samples(raw, Split.TRAIN)))
    picture = sample["inputs"]
    assert (picture.shape, picture.dtype) == ((32, 32, 3), np.uint8)
    assert picture[0, 0].tolist() == [77, 1, 2]
    assert picture[0, 1].tolist() == picture[31, 31].tolist() == [10, 1, 2]
    assert sample["targets"] == "automobile"


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("image_cifar10", ["automobile", "bird", "cat", "deer", "dog"]),
        ("image_cifar100", ["worm", "beaver"]),
        ("image_cifar20", ["vehicles_2", "aquatic_mammals"]),
    ],
)
def test_labels_are_those_of_the_data_set(name: str, labels: list[str], raw: Path) -> None:
    samples = registry.problem(name).generate_samples(raw, Split.TRAIN)
    assert [sample["targets"] for sample in samples] == labels


def unpacked(folder: Path, content: bytes) -> Path:
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    (place / "test_batch.bin").write_bytes(content)
    return folder


def test_a_file_that_ends_within_a_picture_is_refused(tmp_path: Path) -> None:
    whole = tiny_raw_files.cifar_picture([1], 1)
    samples = registry.problem("image_cifar10").generate_samples(
        unpacked(tmp_path, whole + whole[:-1]), Split.EVAL
    )
    assert next(iter(samples))["targets"] == "automobile"
    with pytest.raises(DataError, match=r"ends within picture 2, after 3,072 of its 3,073 bytes"):
        list(samples)


def test_a_label_that_there_is_not_is_a_bad_record(tmp_path: Path) -> None:
    pictures = tiny_raw_files.cifar_picture([10], 1) + tiny_raw_files.cifar_picture([2], 1)
    problem = registry.problem("image_cifar10")
    unpacked(tmp_path, pictures)
    with pytest.raises(DataError, match=r"test_batch\.bin, picture 1: the label 10, of 0 to 9"):
        list(problem.generate_samples(tmp_path, Split.EVAL))
    problem.bad_records = BadRecords("skip")
    assert [s["targets"] for s in problem.generate_samples(tmp_path, Split.EVAL)] == ["bird"]
