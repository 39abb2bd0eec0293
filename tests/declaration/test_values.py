"""Values that are not what a field needs."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest

from t2t_torch.declaration.rows import UnfitError, number_of
from t2t_torch.errors import DataError, RegistryError
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords

GAZETTEER = {
    "kind": "text2tags",
    "fields": {"inputs": "w", "targets": "t"},
    "features": {"gazetteer": "g"},
}
ANSWER = {"kind": "spanqa"}


def with_gazetteer(held: Any) -> dict[str, Any]:
    return {"w": ["a", "b"], "t": ["x", "y"], "g": held}


def with_answer(start: Any) -> dict[str, Any]:
    answers = [{"text": "cd", "answer_start": start}]
    return {"question": "q", "context": "ab cd", "answers": answers}


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (ANSWER, with_answer("x"), r"answer_start 'x' is no whole number"),
    (ANSWER, with_answer([6]), r"answer_start \[6\] is no whole number"),
    (ANSWER, with_answer(6.7), r"answer_start 6\.7 is no whole number"),
    (ANSWER, with_answer(True), r"answer_start True is no whole number"),
    (ANSWER, with_answer(10**400), r"is not at character 1000"),
    *(
        (GAZETTEER, with_gazetteer([{"tokenIdx": where, "features": {"c": 1}}]), told)
        for where, told in (
            ("x", "tokenIdx 'x' is no whole number"),
            (None, "tokenIdx None is no whole number"),
            (-5, "tokenIdx -5 is no place"),
            (30_000_000, "2 words, but 30000001 in 'gazetteer'"),
        )
    ),
    (GAZETTEER, with_gazetteer([{"tokenIdx": 0, "features": [1]}]), r"\[1\] is no mapping"),
    (GAZETTEER, with_gazetteer([[1]]), r"\[1\] is no mapping"),
    (GAZETTEER, with_gazetteer({"a": 1}), "is no list"),
    (GAZETTEER, with_gazetteer("[" * 100_000), "no JSON list"),
    *(
        ({"kind": "text2real"}, {"inputs": "a", "targets": value}, told)
        for value, told in (
            (1e300, "too great"),
            (-3.5e38, "too great"),
            (10**400, "no finite number"),
            ("1_000", "'1_000' is no number"),
            (True, "True is no number"),
        )
    ),
    ({"kind": "text2tags"}, {"inputs": ["a", " "], "targets": ["x", "x"]}, "word 2 is empty"),
]


@pytest.mark.parametrize(("keys", "row", "told"), BAD)
def test_a_value_that_does_not_fit_is_told_with_its_place_or_skipped(
    keys: dict[str, Any], row: dict[str, Any], told: str, declare, samples
):
    files = {"t.jsonl": json.dumps(row) + "\n", "dev.jsonl": json.dumps(row) + "\n"}
    problem = declare(files, files={"train": "t.jsonl", "eval": "dev.jsonl"}, **keys)
    with pytest.raises(DataError, match=rf"t\.jsonl, line 1: .*{told}"):
        samples(problem, Split.TRAIN)
    problem.bad_records = BadRecords("skip")
    with pytest.raises(DataError, match="there is no row for 'train'"):
        samples(problem, Split.TRAIN)
    assert problem.bad_records.count == 1


def test_starts_may_be_written_as_tables_write_them(declare, samples):
    rows = "".join(json.dumps(with_answer(start)) + "\n" for start in (3, "3", 3.0))
    problem = declare(
        {"t.jsonl": rows, "d.jsonl": rows},
        files={"train": "t.jsonl", "eval": "d.jsonl"},
        kind="spanqa",
    )
    starts = [sample["answers"][0]["start"] for sample in samples(problem, Split.TRAIN)]
    assert starts == [3, 3, 3]


def test_numbers_are_those_that_32_bits_hold():
    greatest = float(np.finfo(np.float32).max)
    assert number_of(greatest) == greatest
    assert number_of(np.float32(1.5)) == number_of(" 1.5 ") == 1.5
    with pytest.raises(UnfitError):
        number_of(np.nextafter(greatest, np.inf))


def test_words_are_cut_at_spaces_and_tabs_alone(declare, samples):
    words = "10\u00a0000 \ta\u2028b"
    row = json.dumps({"inputs": words, "targets": "x y"}) + "\n"
    files = {"train": "t.jsonl", "eval": "d.jsonl"}
    problem = declare({"t.jsonl": row, "d.jsonl": row}, files=files, kind="text2tags")
    assert samples(problem, Split.TRAIN)[0]["inputs"] == ["10\u00a0000", "a\u2028b"]


def test_a_defect_shows_its_traceback_and_the_row(declare, samples, monkeypatch, caplog):
    text = "inputs,targets\na,b\n"
    problem = declare({"t.csv": text, "d.csv": text}, files={"train": "t.csv", "eval": "d.csv"})
    problem.bad_records = BadRecords("skip")

    def broken(row: Any) -> Any:
        raise ZeroDivisionError

    problem.prepare = lambda tmp_dir: None
    monkeypatch.setattr(problem.sample_maker, "sample", broken)
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        samples(problem, Split.TRAIN)
    assert "t.csv, line 2: no sample could be made" in caplog.text


def test_what_is_told_ends_with_one_full_stop(declare, samples):
    text = "inputs,targets\na,q2\n"
    problem = declare(
        {"t.csv": text, "d.csv": text},
        files={"train": "t.csv", "eval": "d.csv"},
        labels=["q0", "q1"],
    )
    with pytest.raises(DataError, match=r"There are q0, q1\. Fix it"):
        samples(problem, Split.TRAIN)


def test_a_gazetteer_needs_words_that_are_given(declare):
    with pytest.raises(RegistryError, match=r'"features\.gazetteer": kind \'spanqa\' has no such'):
        declare(kind="spanqa", features={"gazetteer": "g"})


@pytest.mark.parametrize(("kind", "labels"), [("text2multilabel", []), ("text2class", None)])
def test_labels_may_have_a_column_each(kind, labels, declare, samples):
    text = "inputs,rude,odd\nhello there,1,0\ngood bye,0,0\nsee you,false,true\nbad row,2,0\n"
    problem = declare(
        {"t.csv": text, "d.csv": text},
        files={"train": "t.csv", "eval": "d.csv"},
        kind=kind,
        fields={"inputs": "inputs", "targets": {"column": ["rude", "odd"], "one_hot": True}},
    )
    problem.bad_records = BadRecords("skip")
    made = [one["targets"] for one in samples(problem, Split.TRAIN)]
    assert made == ([["rude"], [], ["odd"]] if labels == [] else ["rude", "odd"])
    assert "'2' is neither 0 nor 1" in str(problem.bad_records.listed)


def test_answers_of_datasets_are_lists_of_texts_and_starts(declare, samples):
    held = {"text": ["up", "down"], "answer_start": [0, 7]}
    row = json.dumps({"question": "where?", "context": "up and down", "answers": held}) + "\n"
    files = {"train": "t.jsonl", "eval": "d.jsonl"}
    problem = declare({"t.jsonl": row, "d.jsonl": row}, files=files, kind="spanqa")
    expected = [{"text": "up", "start": 0}, {"text": "down", "start": 7}]
    assert samples(problem, Split.TRAIN)[0]["answers"] == expected
