"""The files of a data set and its splits, as corpora name them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from t2t_torch.declaration.files import detect_files, split_of

TABLE = "text\tlabel\n" + "".join(f"boat {n} left\t{'ab'[n % 2]}\n" for n in range(30))
TAGGED = "boat B-x\nleft O\n\n" * 9
LINES = "the boat left\n" * 9


def write(folder: Path, text: str, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder / names[0]


@pytest.mark.parametrize(
    ("text", "names", "files"),
    [
        (TAGGED, ("eng.train", "eng.testa", "eng.testb"), ("eng.testa", "eng.testb")),
        (TABLE, ("train.tsv", "dev_mismatched.tsv", "dev_matched.tsv"), ("dev_matched.tsv", None)),
        (TABLE, ("x_train.tsv", "x_val.tsv", "x_test.tsv"), ("x_val.tsv", "x_test.tsv")),
        (TABLE, ("train.tsv", "heldout.tsv", "trainer.tsv"), ("heldout.tsv", None)),
        (TABLE, ("x-Training.tsv", "x-Devel.tsv", "y-Devel.tsv"), ("x-Devel.tsv", None)),
        (TABLE, ("train/a.tsv", "dev/a.tsv", "README.md"), ("dev/a.tsv", None)),
    ],
)
def test_splits_are_found(text, names, files, tmp_path: Path) -> None:
    write(tmp_path, text, *names)
    found = detect_files(tmp_path)
    assert found.files["train"] == names[0]
    assert (found.files.get("eval"), found.files.get("test")) == files
    assert found.folder == tmp_path


def test_a_file_without_a_split_stands_alone(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE, "all.tsv", "other.tsv")
    assert detect_files(path).files == {"train": "all.tsv"}
    assert detect_files(tmp_path).files == {"train": "*.tsv"}


def test_parallel_files_are_of_the_languages_of_their_stem(tmp_path: Path) -> None:
    names = ("Books.nl-pt.nl", "Books.nl-pt.pt", "Books.nl-pt.ids", "Books.nl-pt.xx", "LICENSE")
    path = write(tmp_path, LINES, *names)
    expected = {"inputs": "Books.nl-pt.nl", "targets": "Books.nl-pt.pt"}
    assert detect_files(path).files["train"] == expected
    assert detect_files(tmp_path).files["train"] == expected


def test_of_files_that_no_name_orders_the_table_is_read(tmp_path: Path) -> None:
    write(tmp_path, TABLE, "a.tsv")
    write(tmp_path, LINES, "b.txt")
    found = detect_files(tmp_path)
    assert found.files == {"train": "a.tsv"}
    assert found.doubts[-1] == "not read: b.txt."


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("ptb.valid.txt", "eval"),
        ("latest.csv", None),
        ("t10k-images", "test"),
        ("trains.csv", None),
    ],
)
def test_split_of(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_the_first_of_several_shards_is_inspected(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for n in range(2):
        path = tmp_path / "data" / f"train-0000{n}-of-00002.parquet"
        parquet.write_table(pa.table({"text": ["a", "b"]}), path)
    found = detect_files(tmp_path)
    assert found.files == {"train": "train-*-of-*.parquet"}
    assert found.file("train") == tmp_path / "data" / "train-00000-of-00002.parquet"
