from __future__ import annotations

import json
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

CONTEXT = "In 1921 the dog {i} learnt to read."


def write_raw_files(tmp_dir: Path) -> None:
    answer = {"text": "1921", "answer_start": 3}
    articles = [
        {
            "title": f"Dog {i}",
            "paragraphs": [
                {
                    "context": CONTEXT.replace("{i}", str(i)),
                    "qas": [
                        {"id": f"{i}", "question": f"When did {i} learn?", "answers": [answer]}
                    ],
                }
            ],
        }
        for i in range(16)
    ]
    (tmp_dir / "xquad").mkdir()
    (tmp_dir / "xquad" / "xquad.en.json").write_text(json.dumps({"data": articles}), "utf-8")


def test_every_eighth_article_is_for_evaluation(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("xquad_en", tmp_path, Split.EVAL) == [
        {
            "question": f"When did {i} learn?",
            "context": CONTEXT.replace("{i}", str(i)),
            "answers": [{"text": "1921", "start": 3}],
        }
        for i in (7, 15)
    ]
    assert rows("xquad_en", tmp_path) == {"train": 14, "dev": 2}


def test_an_answer_that_is_not_where_it_is_said_to_be_is_bad(tmp_path):
    write_raw_files(tmp_path)
    path = tmp_path / "xquad" / "xquad.en.json"
    path.write_text(path.read_text("utf-8").replace('"answer_start": 3', '"answer_start": 4', 1))
    with pytest.raises(DataError, match=r"question 1: \(id 0\) the answer '1921' does not stand"):
        list(registry.problem("xquad_en").generate_samples(tmp_path, Split.TRAIN))


@pytest.mark.slow
def test_the_real_questions_are_all_there(real, samples, rows):
    tmp_dir = real("xquad")
    parts = [samples("xquad_en", tmp_dir, split) for split in (Split.TRAIN, Split.EVAL)]
    assert [len(part) for part in parts] == [1042, 148]
    first = parts[0][0]
    assert first["question"] == "How many points did the Panthers defense surrender?"
    assert first["answers"] == [{"text": "308", "start": 34}]
    assert rows("xquad_en", tmp_dir, max_cases=100)["train"] >= 100
