from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from t2t_torch.data.raw_file import RawFile
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.problem_types.text2text import ParallelCorpus, TranslateProblem
from t2t_torch.readers.text_file import BadRecords


def pairs(corpus: ParallelCorpus, folder: Path) -> list[tuple[str, str]]:
    return list(corpus.pairs(folder, BadRecords()))


def test_both_sides_may_stand_in_columns(tmp_path: Path) -> None:
    path = tmp_path / "titles.tsv"
    path.write_text("Hund\tDog\t1\nHaus \u2028 \x0b x\t House\t2\n", "utf-8")
    corpus = ParallelCorpus(RawFile("titles.tsv"), columns=(1, 0))
    assert pairs(corpus, tmp_path) == [("Dog", "Hund"), ("House", "Haus \u2028 \x0b x")]


def test_segments_of_different_number_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sgm").write_text("<seg>1</seg>\n<seg>2</seg>\n", "utf-8")
    (tmp_path / "b.sgm").write_text("<seg>1</seg>\n", "utf-8")
    corpus = ParallelCorpus(RawFile("a.sgm"), RawFile("b.sgm"))
    with pytest.raises(DataError, match=r"b\.sgm ends after 1 segments, but .*a\.sgm has more"):
        pairs(corpus, tmp_path)


def test_all_files_are_fetched_and_told() -> None:
    first, second, both = RawFile("a.txt"), RawFile("b.txt"), RawFile("c.tsv")

    class Mine(TranslateProblem):
        shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}
        corpora: ClassVar = {
            Split.TRAIN: [ParallelCorpus(first, second)],
            Split.EVAL: [ParallelCorpus(both)],
        }

    assert Mine().raw_files(Path("nowhere")) == []
    with pytest.raises(DataError, match=r"a\.txt is not there"):
        Mine().prepare(Path("nowhere"))


def test_files_of_the_corpora_are_raw_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n\n y \n", "utf-8")
    (tmp_path / "b.txt").write_text("X\nonly here\nY\n", "utf-8")

    class Mine(TranslateProblem):
        shards: ClassVar = {Split.TRAIN: 1}
        corpora: ClassVar = {Split.TRAIN: [ParallelCorpus(RawFile("a.txt"), RawFile("b.txt"))]}

    assert Mine().raw_files(tmp_path) == [tmp_path / "a.txt", tmp_path / "b.txt"]
    samples = list(Mine().generate_samples(tmp_path, Split.TRAIN))
    assert samples == [{"inputs": "x", "targets": "X"}, {"inputs": "y", "targets": "Y"}]
