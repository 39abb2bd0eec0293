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


def test_variants_hold_out_or_scale_training_images(raw: Path) -> None:
    whole = list(registry.problem("image_cifar10").generate_samples(raw, Split.TRAIN))
    tune = registry.problem("image_cifar10_tune")
    tune.held_out = 20_000  # of 50,000: two of five
    parts = [list(tune.generate_samples(raw, split)) for split in (Split.TRAIN, Split.EVAL)]
    assert [one["targets"] for part in parts for one in part] == [one["targets"] for one in whole]
    assert list(map(len, parts)) == [3, 2]
    small = next(iter(registry.problem("image_cifar10_plain8").generate_samples(raw, Split.TRAIN)))
    assert small["inputs"].shape == (8, 8, 3)
    assert small["inputs"][0, 0].tolist() == [(77 + 15 * 10) // 16, 1, 2]


@pytest.mark.parametrize(
    ("name", "changes"),
    [("image_cifar10", 2), ("image_cifar10_plain", 0), ("image_cifar10_plain_random_shift", 1)],
)
def test_only_plain_variants_have_no_random_changes(name: str, changes: int) -> None:
    made = registry.problem(name).preprocessing(registry.hparams("resnet_cifar_15"))
    assert len(made.changes if made else ()) == changes


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
