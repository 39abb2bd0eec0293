from __future__ import annotations

from pathlib import Path

import pytest
import tiny_raw_files

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split


def test_stories_come_in_the_order_of_the_list_without_captions(tmp_path: Path) -> None:
    tiny_raw_files.write_cnn_dailymail(tmp_path)
    problem = registry.problem("summarize_cnn_dailymail32k")
    assert list(problem.generate_samples(tmp_path, Split.TRAIN)) == [
        {"inputs": "Rain fell all day.", "targets": "Wet."},
        {"inputs": "LONDON (CNN) A dog ran. It barked!", "targets": "Dog runs. It barks."},
    ]
    assert list(problem.generate_samples(tmp_path, Split.EVAL)) == [
        {"inputs": "Sun shone \u2028 bright.", "targets": "Dry\u2019"}
    ]


def test_a_story_that_is_missing_is_named(tmp_path: Path) -> None:
    tiny_raw_files.write_cnn_dailymail(tmp_path)
    with (tmp_path / "all_test.txt").open("a", encoding="utf-8") as file:
        file.write("http://cnn.com/nowhere\n")
    samples = registry.problem("summarize_cnn_dailymail32k").generate_samples(tmp_path, Split.TEST)
    with pytest.raises(DataError, match=r"all_test\.txt, line 2: no \w{40}\.story, the story of"):
        list(samples)


def test_stories_unpacked_by_hand_do_without_the_archives(tmp_path: Path) -> None:
    tiny_raw_files.write_cnn_dailymail(tmp_path)
    problem = registry.problem("summarize_cnn_dailymail32k")
    problem.prepare(tmp_path)
    for publisher in ("cnn", "dailymail"):
        (tmp_path / f"{publisher}_stories" / publisher).rename(tmp_path / publisher)
        (tmp_path / f"{publisher}_stories.tgz").unlink()
    problem.prepare(tmp_path)
    assert len(list(problem.generate_samples(tmp_path, Split.TEST))) == 1
