from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split

HEAD = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
PAIRS = [
    ("1", "A dog is reading", "A dog reads", "4.8", "ENTAILMENT"),
    ("2", "A dog is reading", "No dog is reading", "3.3", "CONTRADICTION"),
    ("3", 'A "dog" is reading', "A man is sleeping", "1", "NEUTRAL"),
]


def write_raw_files(tmp_dir: Path) -> None:
    (tmp_dir / "sick").mkdir()
    for part in ("train", "trial", "test_annotated"):
        end = "\r\n" if part == "test_annotated" else "\n"
        text = "".join("\t".join(row) + end for row in (HEAD, *PAIRS))
        (tmp_dir / "sick" / f"SICK_{part}.txt").write_bytes(text.encode())


@pytest.mark.parametrize("split", [Split.TRAIN, Split.EVAL, Split.TEST])
def test_a_pair_has_a_judgment_and_a_score(split, tmp_path, samples):
    write_raw_files(tmp_path)
    pairs = [{"first": row[1], "second": row[2]} for row in PAIRS]
    judged = [{**pair, "targets": row[4]} for pair, row in zip(pairs, PAIRS, strict=True)]
    scored = [{**pair, "targets": float(row[3])} for pair, row in zip(pairs, PAIRS, strict=True)]
    assert samples("entailment_sick", tmp_path, split) == judged
    assert samples("relatedness_sick", tmp_path, split) == scored


def test_both_problems_share_one_vocabulary(tmp_path, rows):
    write_raw_files(tmp_path)
    for name in ("entailment_sick", "relatedness_sick"):
        assert rows(name, tmp_path) == {"train": 3, "dev": 3, "test": 3}
    assert len(list((tmp_path / "data").glob("vocab.*"))) == 1


@pytest.mark.parametrize(
    ("name", "column", "value", "told"),
    [
        ("entailment_sick", 4, "MAYBE", "the judgment 'MAYBE', none of CONTRADICTION, "),
        ("relatedness_sick", 3, "much", "could not convert string to float: 'much'"),
    ],
)
def test_a_pair_that_is_judged_otherwise_is_bad(name, column, value, told, tmp_path):
    row = list(PAIRS[0])
    row[column] = value
    text = "".join("\t".join(one) + "\n" for one in (HEAD, row))
    (tmp_path / "SICK_train.txt").write_text(text, "utf-8")
    with pytest.raises(DataError, match=rf"SICK_train\.txt, line 2: {told}"):
        list(registry.problem(name).generate_samples(tmp_path, Split.TRAIN))


@pytest.mark.slow
def test_the_real_pairs_are_all_there(real, samples, rows):
    tmp_dir = real("sick")
    judged = samples("entailment_sick", tmp_dir, Split.TRAIN)[0]
    scored = samples("relatedness_sick", tmp_dir, Split.TRAIN)[0]
    assert judged["second"].startswith("A group of boys in a yard is playing and a man is standing")
    assert (judged["targets"], scored["targets"]) == ("NEUTRAL", 4.5)
    for name in ("entailment_sick", "relatedness_sick"):
        assert rows(name, tmp_dir) == {"train": 4500, "dev": 500, "test": 4927}


def test_both_targets_are_those_of_the_problems_of_one(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    pairs = samples("sick_words", tmp_path, Split.EVAL)
    assert [pair["entailment"] for pair in pairs] == [row[4] for row in PAIRS]
    assert [pair["relatedness"] for pair in pairs] == [float(row[3]) for row in PAIRS]
    problem = registry.problem("sick_words")
    (example,) = problem.examples_of(pairs[2])
    assert example["first"] == 'a " dog " is reading'
    (asked,) = problem.inputs_of({"first": "A Dog", "second": "A man's"})
    assert asked == {"first": "a dog", "second": "a man's"}
    assert rows("sick_words", tmp_path) == {"train": 3, "dev": 3, "test": 3}


def test_of_a_pair_that_is_judged_otherwise_both_targets_are_bad(tmp_path):
    rows_of_file = [list(PAIRS[0]), list(PAIRS[1]), list(PAIRS[2])]
    rows_of_file[1][4] = "MAYBE"
    text = "".join("\t".join(one) + "\n" for one in (HEAD, *rows_of_file))
    (tmp_path / "SICK_train.txt").write_text(text, "utf-8")
    with pytest.raises(DataError, match="line 3: the judgment 'MAYBE'"):
        list(registry.problem("sick_words").generate_samples(tmp_path, Split.TRAIN))
