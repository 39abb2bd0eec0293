from __future__ import annotations

from pathlib import Path

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split


def test_sentences_of_all_files_come_in_order(tmp_path: Path) -> None:
    tiny_raw_files.write_lm1b(tmp_path)
    problem = registry.problem("languagemodel_lm1b32k")
    samples = list(problem.generate_samples(tmp_path, Split.TRAIN))
    assert samples[0] == {"targets": "The dog ran 1 times ."}
    assert samples[98] == {"targets": "The dog ran 99 times ."}


def test_words_that_the_benchmark_does_not_know_are_replaced(tmp_path: Path) -> None:
    tiny_raw_files.write_lm1b(tmp_path)
    problem = registry.problem("languagemodel_lm1b_characters")
    samples = list(problem.generate_samples(tmp_path, Split.EVAL))
    assert samples == [{"targets": "The UNK ran ."}, {"targets": "The dog ran ."}]


def test_an_archive_that_lacks_one_of_its_files_is_refused(tmp_path: Path) -> None:
    tiny_raw_files.write_lm1b(tmp_path)
    problem = registry.problem("languagemodel_lm1b32k")
    problem.prepare(tmp_path)
    lost = next(tmp_path.rglob("news.en-00042-of-00100"))
    lost.unlink()
    with pytest.raises(DataError, match=r"holds no news\.en-00042-of-00100"):
        problem.prepare(tmp_path)
