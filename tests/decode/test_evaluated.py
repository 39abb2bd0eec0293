"""The rows of a split, with what is right and what is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.decode.evaluation import EvaluatedRow, EvaluatedRows, check_rows
from t2t_torch.decode.hparam import DecodeHParams, parse_decode_hparams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.loading import load
from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, Text, TreeFeature
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.classification import TextPair2RealProblem
from t2t_torch.problem_types.words import IntentSlotProblem, SpanQAProblem
from t2t_torch.testing import small
from t2t_torch.text.encoder import ByteEncoder, ClassLabelEncoder
from t2t_torch.text.tree import TransitionEncoder
from t2t_torch.text_problem import VocabType


def rows_of(
    family: type[Problem], samples: list[dict[str, Any]], folder: Path, **more: Any
) -> tuple[EvaluatedRows, LabelPredictor]:
    """The rows of a problem made of the samples, and a model that has learnt nothing."""
    body = {
        "name": "made",
        "shards": {Split.TRAIN: 1, Split.EVAL: 1},
        "generate_samples": lambda self, tmp, split: iter(samples),
        **more,
    }
    problem = type("Made", (family,), body)()
    generate_data(problem, folder, folder, num_processes=1, progress=False)
    features = problem.features(folder)
    torch.manual_seed(0)
    model_class = registry.model("transformer_encoder")
    model = model_class(small(registry.hparams("transformer_encoder_tiny")), features)
    predictor = LabelPredictor(model, problem, features)
    return EvaluatedRows(predictor, folder, Split.EVAL, DecodeHParams(num_labels=1)), predictor


@pytest.mark.parametrize("vocab_type", [VocabType.WORD, VocabType.CHARACTER])
def test_rows_of_several_targets(
    tmp_path: Path, vocab_type: VocabType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("t2t_torch.decode.evaluation._BATCH_TOKENS", 4)
    monkeypatch.setattr("t2t_torch.decode.evaluation._CHUNK", 3)
    samples = [
        {"inputs": ["to"] * n + ["Oslo"], "intent": "go", "slots": ["O"] * n + ["B-city"]}
        for n in (1, 4, 2, 3, 5)
    ]
    rows, predictor = rows_of(
        IntentSlotProblem, samples, tmp_path, vocab_type=vocab_type, word_shape=True, word_bytes=4
    )
    found = list(rows)
    assert [row.number for row in found] == [0, 1, 2, 3, 4]
    assert sorted(len(row.right["slots"]) for row in found) == [2, 3, 4, 5, 6]
    for row in found:
        answer = predictor.predict([{"inputs": row.inputs["inputs"]}])[0]
        for target in ("intent", "slots"):
            assert row.records[target]["value"] == answer.values[target]
        assert row.is_right("slots") is (answer.values["slots"] == row.right["slots"])
    assert sum(rows.confusion["slots"].values()) == sum(len(row.right["slots"]) for row in found)
    cells = dict(zip(rows.header, rows.cells(found[0]), strict=True))
    assert cells["intent"] == "go" and cells["intent_is_right"] is True
    assert cells["slots"].split(" ")[-1] == "B-city"
    assert cells["slots_found_tagged"].startswith("to/")


def test_rows_are_found_in_the_type_of_the_metrics(tmp_path: Path) -> None:
    samples = [{"first": "a b", "second": "b", "targets": 1.5}]
    rows, predictor = rows_of(TextPair2RealProblem, samples, tmp_path, vocab_type=VocabType.WORD)

    def value(rows: EvaluatedRows) -> float:
        (row,) = rows
        return row.records["targets"]["value"][0]

    exact = value(rows)
    asked = EvaluatedRows(predictor, tmp_path, Split.EVAL, activation_dtype="bfloat16")
    rounded = value(asked)
    assert rounded != exact and rounded == pytest.approx(exact, abs=0.05)
    predictor.model.hparams = predictor.model.hparams.replace(activation_dtype="bfloat16")
    assert value(EvaluatedRows(predictor, tmp_path, Split.EVAL)) == rounded


def test_numbers_are_neither_right_nor_wrong(tmp_path: Path) -> None:
    samples = [{"first": "a b", "second": "b", "targets": 1.5}]
    rows, _ = rows_of(TextPair2RealProblem, samples, tmp_path, vocab_type=VocabType.WORD)
    (row,) = rows
    assert rows.header == ["row", "first", "second", "targets", "targets_found"]
    assert rows.cells(row)[:4] == [0, "a b", "b", 1.5]
    assert isinstance(rows.cells(row)[4], float)


def test_the_answer_to_a_question_is_told_as_words(tmp_path: Path) -> None:
    answers = [{"text": "Bob", "start": 7}]
    sample = {"question": "who?", "context": "It was Bob, not Al.", "answers": answers}
    rows, _ = rows_of(SpanQAProblem, [sample, {**sample, "answers": []}], tmp_path)
    found = list(rows)
    assert sorted(row.right["targets"] for row in found) == ["", "Bob"]
    assert all(row.records["targets"]["value"] in "It was Bob , not Al ." for row in found)


def test_texts_are_decoded_and_their_loss_is_that_of_the_right_one(run_dir: Path) -> None:
    problem = registry.problem("dates_to_iso")
    generate_data(problem, run_dir, run_dir, num_processes=1, max_cases=40, progress=False)
    predictor = load(run_dir, device="cpu", hparams=DecodeHParams(beam_size=1, extra_length=4))
    rows: list[EvaluatedRow] = []
    hparams = DecodeHParams(beam_size=1, extra_length=4)
    evaluated = EvaluatedRows(predictor, run_dir, Split.EVAL, hparams)
    rows = list(evaluated)
    texts = [row.inputs["inputs"] for row in rows]
    assert [row.records["targets"]["value"] for row in rows] == predictor(texts)
    first = rows[0]
    features, model = predictor.features, predictor.model
    batch = {
        name: torch.tensor([features.all[name].encode(text)])
        for name, text in (("inputs", texts[0]), ("targets", first.right["targets"]))
    }
    loss = model(batch).losses["targets"].sum.item()
    assert first.records["targets"]["loss"] == pytest.approx(loss, rel=1e-4)
    assert evaluated.header[-2:] == ["targets_is_right", "targets_loss"]


TEXT = Text(ByteEncoder())
PROBLEMS = {
    "labels": Features({"inputs": TEXT}, {"targets": ClassLabel(ClassLabelEncoder(["a", "b"]))}),
    "texts": Features({"inputs": TEXT}, {"targets": TEXT}),
    "trees": Features({"inputs": TEXT}, {"targets": TreeFeature(TransitionEncoder(["S"]))}),
    "language": Features({}, {"targets": TEXT}),
}


@pytest.mark.parametrize(
    ("problems", "asked", "told"),
    [
        ("labels", "beam_size=4", "does not read beam_size. It reads num_labels."),
        ("labels", "output_format=tsv", "does not read output_format. It reads num_labels."),
        ("labels", "num_labels=2", None),
        ("texts", "beam_size=4,alpha=1", None),
        ("texts", "num_labels=2", "does not read num_labels. It reads beam_size,"),
        ("texts", "return_beams=true", "does not read return_beams."),
        ("texts", "valid_trees=false", "does not read valid_trees."),
        ("trees", "valid_trees=false,beam_size=1", None),
        ("language", "beam_size=4", "does not read beam_size. It reads none."),
        ("labels texts", "beam_size=4,num_labels=2", None),
        ("labels texts", "num_samples=2", "--output of labels, texts does not read num_samples."),
    ],
)
def test_rows_refuse_how_they_are_not_decoded(problems: str, asked: str, told: str | None) -> None:
    chosen = {name: PROBLEMS[name] for name in problems.split()}
    if told is None:
        check_rows(parse_decode_hparams(asked), chosen)
        return
    with pytest.raises(HParamsError, match=re.escape(told)):
        check_rows(parse_decode_hparams(asked), chosen)
