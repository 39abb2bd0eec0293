from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords


def write_raw_files(tmp_dir: Path, neg: int = 11, pos: int = 10) -> None:
    """As in the original: test before train, neg before pos, and reviews that nobody rated."""
    (tmp_dir / "imdb").mkdir()
    with tarfile.open(tmp_dir / "imdb" / "aclImdb_v1.tar.gz", "w:gz") as archive:
        _add(archive, "README", b"not a review")
        for part in ("test", "train"):
            for label, count in (("neg", neg), ("pos", pos), ("unsup", 2)):
                for i in range(count):
                    text = f"{part} {label} {i}:<br />caf\u00e9".encode()
                    _add(archive, f"{part}/{label}/{i}_7.txt", text)
                _add(archive, f"{part}/urls_{label}.txt", b"http://localhost")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(f"aclImdb/{name}")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def test_rated_reviews_come_for_and_against_by_turns(tmp_path, samples, rows):
    write_raw_files(tmp_path, 3, 2)
    found = samples("sentiment_imdb", tmp_path, Split.TRAIN)
    assert [sample["targets"] for sample in found] == ["neg", "pos", "neg", "pos", "neg"]
    assert found[1]["inputs"] == "train pos 0:<br />caf\u00e9"
    assert {sample["inputs"][:4] for sample in samples("sentiment_imdb", tmp_path, Split.EVAL)} == {
        "test"
    }
    for name in ("sentiment_imdb", "sentiment_imdb_characters"):
        assert rows(name, tmp_path) == {"train": 5, "dev": 5}
    assert [path.name for path in (tmp_path / "imdb").iterdir()] == ["aclImdb_v1.tar.gz"]


def test_of_words_every_tenth_pair_of_training_reviews_is_to_tune_on(tmp_path, samples, rows):
    (tmp_path / "imdb").mkdir()
    with tarfile.open(tmp_path / "imdb" / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for part, count in (("train", 10), ("test", 3)):
            for label in ("neg", "pos"):
                for i in range(count):
                    _add(archive, f"{part}/{label}/{i}.txt", f"{part} {i}<br />OK!".encode())
    name = "sentiment_imdb_words"
    assert samples(name, tmp_path, Split.EVAL) == [
        {"inputs": "train 9<br />OK!", "targets": "neg"},
        {"inputs": "train 9<br />OK!", "targets": "pos"},
    ]
    assert {sample["inputs"][:4] for sample in samples(name, tmp_path, Split.TEST)} == {"test"}
    assert rows(name, tmp_path) == {"train": 18, "dev": 2, "test": 6}


def test_what_is_learnt_and_what_is_given_later_is_cut_into_the_same_words():
    problem = registry.problem("sentiment_imdb_words")
    cut = {"inputs": "so good !"}
    assert problem.inputs_of({"inputs": "So<br />GOOD!"}) == [cut]
    sample = {"inputs": "So<br />GOOD!", "targets": "pos"}
    assert list(problem.examples_of(sample)) == [{**cut, "targets": "pos"}]


def test_an_archive_that_is_cut_off_is_an_error(tmp_path):
    write_raw_files(tmp_path, 3, 2)
    path = tmp_path / "imdb" / "aclImdb_v1.tar.gz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="is damaged"):
        list(registry.problem("sentiment_imdb").generate_samples(tmp_path, Split.TRAIN))


def test_a_review_that_is_no_text_is_bad(tmp_path):
    with tarfile.open(tmp_path / "aclImdb_v1.tar.gz", "w:gz") as archive:
        _add(archive, "train/neg/0_1.txt", b"\xff")
        _add(archive, "train/pos/0_9.txt", b"good")
    problem = registry.problem("sentiment_imdb")
    with pytest.raises(DataError, match=r"file 1: aclImdb/train/neg/0_1\.txt is not UTF-8"):
        list(problem.generate_samples(tmp_path, Split.TRAIN))
    problem.bad_records = BadRecords("skip")
    found = list(problem.generate_samples(tmp_path, Split.TRAIN))
    assert found == [{"inputs": "good", "targets": "pos"}]


@pytest.mark.slow
def test_the_real_reviews_are_all_there(real, samples, rows):
    tmp_dir = real("imdb")
    found = samples("sentiment_imdb", tmp_dir, Split.TRAIN)
    labels = [sample["targets"] for sample in found]
    assert labels == ["neg", "pos"] * 12_500
    assert found[0]["inputs"].startswith("Story of a man who has unnatural feelings for a pig.")
    assert rows("sentiment_imdb_characters", tmp_dir, max_cases=200) == {"train": 200, "dev": 200}
