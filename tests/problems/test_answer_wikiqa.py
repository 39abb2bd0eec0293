from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.decode.files import input_of
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.errors import DataError
from t2t_torch.features import ClassLabel, Features, Real, Text
from t2t_torch.mode import Split
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder


def write_raw_files(tmp_dir: Path) -> None:
    (tmp_dir / "wikiqa").mkdir()
    for part in ("train", "test"):
        text = "".join(
            f"{label}\twhere do dogs {i} live\tDogs `` {i} '' {sentence} .\n"
            for i in range(20)
            for label, sentence in (("0", "bark"), ("1", "live here"), ("0", "sleep"))
        )
        (tmp_dir / "wikiqa" / f"{part}.txt").write_text(text, "utf-8")


def test_every_tenth_question_is_for_evaluation_with_all_its_sentences(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    held_out = samples("answer_ranking_wikiqa", tmp_path, Split.EVAL)
    assert [sample["query"] for sample in held_out] == [
        f"where do dogs {i} live" for i in (9, 9, 9, 19, 19, 19)
    ]
    assert (held_out[1]["document"], held_out[1]["targets"]) == ("Dogs `` 9 '' live here .", "1")
    assert rows("answer_ranking_wikiqa", tmp_path) == {"train": 54, "dev": 6, "test": 60}


def test_each_right_sentence_is_paired_with_each_wrong_one(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("answer_pairs_wikiqa", tmp_path, Split.TEST)[:2] == [
        {
            "query": "where do dogs 0 live",
            "positive": "Dogs `` 0 '' live here .",
            "negative": f"Dogs `` 0 '' {sentence} .",
        }
        for sentence in ("bark", "sleep")
    ]
    assert rows("answer_pairs_wikiqa", tmp_path) == {"train": 36, "dev": 4, "test": 40}


def test_a_label_other_than_0_and_1_is_bad(tmp_path):
    write_raw_files(tmp_path)
    (tmp_path / "wikiqa" / "test.txt").write_text("2\tq\ts\n", "utf-8")
    with pytest.raises(DataError, match=r"test\.txt, line 1: the label '2'"):
        list(registry.problem("answer_pairs_wikiqa").generate_samples(tmp_path, Split.TEST))


@pytest.mark.slow
def test_the_real_pairs_are_all_there(real, samples, rows):
    tmp_dir = real("wikiqa")
    counts = rows("answer_ranking_wikiqa", tmp_dir)
    assert (counts["train"] + counts["dev"], counts["test"]) == (8672, 2351)
    parts = {
        split: samples("answer_ranking_wikiqa", tmp_dir, split)
        for split in (Split.TRAIN, Split.EVAL, Split.TEST)
    }
    questions = {split: {sample["query"] for sample in part} for split, part in parts.items()}
    assert not questions[Split.TRAIN] & questions[Split.EVAL]
    assert len(questions[Split.TRAIN] | questions[Split.EVAL]) == 873
    assert len(questions[Split.TEST]) == 243
    right = [sum(s["targets"] == "1" for s in part) for part in parts.values()]
    assert (right[0] + right[1], right[2]) == (1040, 293)
    assert parts[Split.TEST][0]["query"] == "where do crocodiles live"
    assert {s["query"] for s in samples("answer_pairs_wikiqa", tmp_dir, Split.TEST)} < questions[
        Split.TEST
    ]
    assert rows("answer_pairs_wikiqa", tmp_dir, max_cases=200)["train"] == 200


def test_a_sentence_has_its_place_in_the_article(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    held_out = samples("answer_ranking_wikiqa_counts", tmp_path, Split.EVAL)
    assert [sample["dense"] for sample in held_out] == [0, 1, 2, 0, 1, 2]
    assert rows("answer_ranking_wikiqa_words", tmp_path) == {"train": 54, "dev": 6, "test": 60}


def test_words_are_in_lower_case_also_those_that_are_asked_for():
    problem = registry.problem("answer_ranking_wikiqa_words")
    (asked,) = problem.inputs_of({"query": "who is Ann ?", "document": "Ann (b. 1990)"})
    assert asked == {"query": "who is ann ?", "document": "ann ( b . 1990 )"}


def test_what_question_and_sentence_have_in_common_is_counted(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    problem = registry.problem("answer_ranking_wikiqa_counts")
    raw = samples("answer_ranking_wikiqa_counts", tmp_path, Split.EVAL)[1]
    (example,) = problem.examples_of(raw)
    # "where do dogs 9 live" and "dogs ` ` 9 ' ' live here .", the second sentence
    assert example["dense"] == pytest.approx([3 / 5, 0.0, math.log(9), math.log(2)])
    assert rows("answer_ranking_wikiqa_counts", tmp_path) == {"train": 54, "dev": 6, "test": 60}


def test_whoever_asks_gives_the_place_of_the_sentence():
    problem = registry.problem("answer_ranking_wikiqa_counts")
    asked = {"query": "which crocodiles live in rivers", "document": "A crocodile , in rivers ."}
    (found,) = problem.inputs_of({**asked, "dense": 0})
    assert found["dense"] == pytest.approx([3 / 5, 1 / 4, math.log(6), 0.0])
    with pytest.raises(DataError, match=r"dense is \[0\.5\], where the place"):
        problem.inputs_of({**asked, "dense": [0.5]})


def test_what_is_given_in_dense_is_told_with_an_example_that_could_be_given():
    problem = registry.problem("answer_ranking_wikiqa_counts")
    text, numbers = Text(ByteEncoder()), Real(problem.dense_size)
    features = Features(
        {"query": text, "document": text, "dense": numbers},
        {"targets": ClassLabel(ClassLabelEncoder(("0", "1")))},
    )
    hparams = registry.hparams("pair_classifier_tiny")
    asked = LabelPredictor(registry.model("pair_classifier")(hparams, features), problem, features)
    with pytest.raises(DataError, match="has no dense, but query, document") as refused:
        input_of(asked, '{"query": "a", "document": "b"}', "line 1")
    example, _, meaning = str(refused.value).partition("such as ")[2].partition("}")
    assert meaning == ", where dense is the place of the sentence in its article, from 0."
    assert asked.predict([json.loads(example + "}")])[0].values["targets"] in ("0", "1")


def test_the_real_test_part_has_237_questions_with_both_kinds_of_sentences(real, samples):
    kinds: dict[str, set[str]] = {}
    for sample in samples("answer_ranking_wikiqa", real("wikiqa"), Split.TEST):
        kinds.setdefault(sample["query"], set()).add(sample["targets"])
    assert sum(len(one) == 2 for one in kinds.values()) == 237
