"""The real data sets are read whole; the counts are those of the README beside them."""

from __future__ import annotations

import csv
import gzip
import zipfile
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords, Record
from t2t_torch.text.tree import Tree, parse_tree


def _records(path: Path, format: str | None = None, **options: Any) -> list[Record]:
    return list(open_records(path, format=format, bad=BadRecords("fail"), options=options))


def _counts(records: list[Record], words: str) -> tuple[int, int]:
    return len(records), sum(len(record.values[words]) for record in records)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("part", "columns", "count"),
    [
        ("eval", ["text", "words", "tree"], 4_462),
        ("train_supported", ["words", "tree"], 28_414),
        ("test", ["text", "words", "tree"], 9_042),
    ],
)
def test_top_has_trees_over_its_words(
    shared_data: Path, part: str, columns: list[str], count: int
) -> None:
    records = _records(shared_data / f"top/{part}.tsv.gz", columns=columns)
    assert len(records) == count
    for record in records:
        tree = parse_tree(record.values["tree"])
        assert tree.words == record.values["words"].split(" ")
        assert str(tree) == record.values["tree"]
        assert Tree.from_transitions(tree.transitions(), tree.words) == tree


@pytest.mark.slow
def test_the_treebank_has_its_trees_and_words(shared_data: Path, tmp_path: Path) -> None:
    counts = [0, 0, 0]
    with zipfile.ZipFile(shared_data / "treebank/treebank.zip") as archive:
        for name in archive.namelist():
            if not name.startswith("treebank/combined/") or not name.endswith(".mrg"):
                continue
            path = tmp_path / "one.mrg"
            path.write_bytes(archive.read(name))
            for record in _records(path):
                tree = parse_tree(record.values["tree"])
                assert tree.words == record.values["words"]
                assert parse_tree(str(tree)) == tree
                counts[0] += 1
                counts[1] += len(tree.words)
                counts[2] += len(tree.without_traces().words)
    assert counts == [3_914, 100_676, 94_084]


@pytest.mark.slow
def test_conll2000_has_its_sentences_and_words(shared_data: Path) -> None:
    for part, counts in (("train", (8_936, 211_727)), ("test", (2_012, 47_377))):
        path = shared_data / f"conll2000/{part}.txt.gz"
        records = _records(path, "conll", columns=["word", "pos", "chunk"])
        assert _counts(records, "word") == counts


@pytest.mark.slow
def test_english_ewt_has_its_sentences_and_words(shared_data: Path) -> None:
    parts = {"train": (12_544, 204_577), "dev": (2_001, 25_147), "test": (2_077, 25_094)}
    for part, counts in parts.items():
        path = shared_data / f"ud_english_ewt/en_ewt-ud-{part}.conllu.gz"
        assert _counts(_records(path), "form") == counts


def test_atis_has_its_utterances_and_words(shared_data: Path) -> None:
    for part, counts in {
        "train": (4_478, 50_497),
        "valid": (500, 5_703),
        "test": (893, 9_164),
    }.items():
        assert _counts(_records(shared_data / "atis" / part), "words") == counts


def test_xquad_has_its_questions(shared_data: Path) -> None:
    records = _records(shared_data / "xquad/xquad.en.json.gz")
    assert len(records) == 1_190
    for record in records:
        (answer,) = record.values["answers"]
        assert record.values["context"][answer["start"] :].startswith(answer["text"])


def test_sick_has_no_carriage_returns(shared_data: Path) -> None:
    for part, count in (("train", 4_500), ("trial", 500), ("test_annotated", 4_927)):
        records = _records(shared_data / f"sick/SICK_{part}.txt.gz", "tsv")
        assert len(records) == count
        labels = {record.values["entailment_judgment"] for record in records}
        assert labels == {"NEUTRAL", "ENTAILMENT", "CONTRADICTION"}
        assert all(1 <= float(record.values["relatedness_score"]) <= 5 for record in records)


@pytest.mark.parametrize(
    ("name", "delimiter", "count"),
    [
        ("ag_news_train.txt.gz", "\t", 12_000),
        ("ag_news_test.txt.gz", "\t", 7_600),
        ("test.csv.gz", ",", 7_600),
    ],
)
def test_ag_news_is_read_as_pythons_csv_reads_it(
    shared_data: Path, name: str, delimiter: str, count: int
) -> None:
    path = shared_data / "ag_news" / name
    options = {"quoting": True, "header": False, "delimiter": delimiter}
    rows = [list(record.values.values()) for record in _records(path, "tsv", **options)]
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        assert rows == list(csv.reader(file, delimiter=delimiter))
    assert len(rows) == count


def test_multi30k_has_its_pairs(shared_data: Path) -> None:
    files = {"inputs": "train.en.gz", "targets": "train.de.gz"}
    records = _records(shared_data / "multi30k/raw", "parallel", files=files)
    assert len(records) == 29_000
    assert sum(record.values["targets"].count("\xa0") for record in records) == 47


def test_mnist_has_its_pictures(shared_data: Path) -> None:
    records = _records(shared_data / "mnist/t10k-images-idx3-ubyte.gz")
    assert len(records) == 10_000
    assert {record.values["label"] for record in records} == set("0123456789")
    assert {record.values["image"].shape for record in records} == {(28, 28, 1)}
    assert records[0].values["label"] == "7"
