from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from t2t_torch.mode import Split


def write_raw_files(tmp_dir: Path) -> None:
    folder = tmp_dir / "mnist"
    folder.mkdir()
    for part, count in (("train", 24), ("t10k", 5)):
        digits = bytes(i % 10 for i in range(count))
        pixels = b"".join(bytes([10 * i]) * 28 * 28 for i in range(count))
        head = struct.pack(">4I", 0x803, count, 28, 28)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + pixels)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 0x801, count) + digits
        )


def test_a_digit_has_a_picture_and_a_name(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    digit = samples("image_mnist", tmp_path, Split.EVAL)[3]
    assert digit["targets"] == "3"
    np.testing.assert_array_equal(digit["inputs"], np.full((28, 28, 1), 30, np.uint8))
    assert rows("image_mnist", tmp_path) == {"train": 24, "dev": 5}


def test_the_last_training_digits_are_to_tune_on(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    held_out = samples("image_mnist_tune", tmp_path, Split.EVAL)
    assert [digit["inputs"].max() for digit in held_out] == [220, 230]
    assert rows("image_mnist_tune", tmp_path) == {"train": 22, "dev": 2}


@pytest.mark.slow
def test_the_real_digits_are_all_there(real, samples, rows):
    tmp_dir = real("mnist")
    train = samples("image_mnist", tmp_dir, Split.TRAIN)
    assert (len(train), [digit["targets"] for digit in train[:5]]) == (60_000, list("50419"))
    assert train[0]["inputs"].shape == (28, 28, 1)
    assert len(samples("image_mnist", tmp_dir, Split.EVAL)) == 10_000
    assert len(samples("image_mnist_tune", tmp_dir, Split.EVAL)) == 5_000
    assert rows("image_mnist_tune", tmp_dir, max_cases=50) == {"train": 50, "dev": 50}
