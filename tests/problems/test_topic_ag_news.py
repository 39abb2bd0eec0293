from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

ROW = '"3","Shares of ""Dog"" rise","They cost #36;{i}, and\\they rise."\n'


def write_raw_files(tmp_dir: Path) -> None:
    folder = tmp_dir / "ag_news"
    folder.mkdir()
    for part, count in (("train", 20), ("test", 3)):
        text = "".join(ROW.replace("{i}", str(i)) for i in range(count))
        (folder / f"{part}.csv").write_text(text, "utf-8")


def test_title_and_description_are_one_text_and_are_left_as_they_are(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    text = 'Shares of "Dog" rise They cost #36;9, and\\they rise.'
    held_out = samples("topic_ag_news", tmp_path, Split.EVAL)
    assert held_out[0] == {"inputs": text, "targets": "Business"}
    assert held_out[1] == {"inputs": text.replace(";9", ";19"), "targets": "Business"}
    assert rows("topic_ag_news", tmp_path) == {"train": 18, "dev": 2, "test": 3}


def test_the_layout_with_tabs_is_read_too(tmp_path, samples):
    text = '1\tPeace at last\n2\t"A ""cup"" won"\n'
    (tmp_path / "ag_news_train.txt").write_text(text, "utf-8")
    (tmp_path / "ag_news_test.txt").write_text(text, "utf-8")
    assert samples("topic_ag_news", tmp_path, Split.TEST) == [
        {"inputs": "Peace at last", "targets": "World"},
        {"inputs": 'A "cup" won', "targets": "Sports"},
    ]


def test_words_are_cut_where_a_title_is_glued_to_its_description():
    problem = registry.problem("topic_ag_news_words")
    sample = {"inputs": "Peace talksUnions meet\\in York", "targets": "World"}
    cut = {"inputs": "peace talks unions meet in york"}
    assert list(problem.examples_of(sample)) == [{**cut, "targets": "World"}]
    assert problem.inputs_of({"inputs": sample["inputs"]}) == [cut]


def test_a_class_that_is_none_of_the_four_is_bad(tmp_path):
    write_raw_files(tmp_path)
    (tmp_path / "ag_news" / "test.csv").write_text('"5","a","b"\n', "utf-8")
    with pytest.raises(DataError, match=r"test\.csv, line 1: the class '5'"):
        list(registry.problem("topic_ag_news").generate_samples(tmp_path, Split.TEST))


@pytest.mark.slow
def test_the_real_articles_are_all_there(real, samples, rows):
    tmp_dir = real("ag_news")
    first = samples("topic_ag_news", tmp_dir, Split.TEST)[0]
    assert first["targets"] == "Business"
    assert first["inputs"].startswith("Fears for T N pension after talks Unions representing")
    assert rows("topic_ag_news", tmp_dir) == {"train": 10800, "dev": 1200, "test": 7600}
