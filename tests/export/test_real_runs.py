"""Briefly trained on real data, exported, and asked the whole test split: every answer is the same.

These take minutes: they are `slow`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import datagen, exporter, trainer
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.mode import Split
from t2t_torch.runtime.prediction import Prediction

ODD = ["", "   ", "😀", "naïve 😀 👍🏽 A man.", "the cat " * 150, "x" * 300]


class Case(NamedTuple):
    """What is trained, and how it is asked: with these fields, spaces between."""

    problem: str
    model: str
    hparams_set: str
    steps: int
    field: str
    search: str = ""
    hparams: str = "activation_dtype=float32"


CASES = {
    "multi30k": Case(
        "translate_multi30k_ende", "transformer", "transformer_tiny", 60, "inputs",
        "extra_length=10", "batch_size=1024,activation_dtype=float32",
    ),
    "dates": Case(  # of bytes
        "dates_to_iso", "transformer", "transformer_dates", 150, "inputs", "extra_length=12",
    ),
    "atis": Case(
        "intent_slot_atis", "joint_bilstm", "joint_bilstm_atis", 40, "inputs",
        hparams="activation_dtype=float32,learning_rate_warmup_steps=4",
    ),
    "ag_news": Case(
        "topic_ag_news_words", "text_cnn", "text_cnn_ag_news", 20, "inputs",
        hparams="activation_dtype=float32,learning_rate_warmup_steps=4",
    ),
    "ud_english_ewt": Case(
        "pos_ud_english_ewt", "bilstm_tagger", "bilstm_tagger_ud", 20, "inputs",
        hparams="activation_dtype=float32,learning_rate_warmup_steps=4",
    ),
    "xquad": Case(
        "xquad_en", "span_qa", "span_qa_tiny", 30, "question context",
        hparams="activation_dtype=float32,learning_rate_warmup_steps=4",
    ),
    "mnist": Case(
        "image_mnist", "transformer_encoder", "transformer_encoder_image", 10, "inputs",
        hparams="activation_dtype=float32,hidden_size=32,num_hidden_layers=1,"
        "learning_rate_warmup_steps=4",
    ),
    "ptb": Case("languagemodel_ptb10k", "lstm_lm", "lstm_lm_tiny", 30, "targets", "extra_length=8"),
}  # fmt: skip

_PROMPT = 6  # words of a line that a language model goes on with


def made(case: Case, name: str, shared_data: Path, folder: Path) -> Path:
    """Makes the data, trains and exports; returns a folder with `run` and `artifact`."""
    raw = folder / "raw"
    for file in (shared_data / name).rglob("*"):
        if file.is_file():
            for above in (shared_data, shared_data / name):
                link = raw / file.relative_to(above)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
    told = [f"--problem={case.problem}", f"--data_dir={folder / 'data'}"]
    assert datagen.main([*told, f"--tmp_dir={raw}"]) == 0
    run = [f"--output_dir={folder / 'run'}", f"--train_steps={case.steps}", "--eval_steps=1"]
    by = [f"--model={case.model}", f"--hparams_set={case.hparams_set}", f"--hparams={case.hparams}"]
    assert trainer.main([*told, *run, *by, "--schedule=train"]) == 0
    asked = [run[0], told[1], f"--export_dir={folder / 'artifact'}"]
    assert exporter.main([*asked, f"--decode_hparams={case.search}"]) == 0
    return folder


def inputs_of(case: Case, folder: Path) -> list[Any]:
    """Returns the whole test split as it is written, a language model's as beginnings."""
    problem = registry.problem(case.problem)
    split = Split.TEST if Split.TEST in problem.shards else Split.EVAL
    samples = list(problem.generate_samples(folder / "raw", split))
    if case.model.endswith("_lm"):
        given = [sample[case.field] for sample in samples]
        return [" ".join(str(text).split()[:_PROMPT]) for text in given]
    return [{field: sample[field] for field in case.field.split()} for sample in samples]


def same(one: Any, other: Any) -> bool:
    """Whether values are equal, and scores to 1e-4."""
    if isinstance(one, Prediction) and one.hypotheses:
        return one.text == other.text and one.score == pytest.approx(other.score, 1e-4, 1e-4)
    scores = [(one.scores[name], other.scores[name]) for name in one.scores]
    return one.values == other.values and all(
        first == pytest.approx(second, abs=1e-4) for first, second in scores
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_answer_to_the_test_split_is_that_of_the_run(
    name: str, shared_data: Path, tmp_path: Path, own_registry: None
) -> None:
    case = CASES[name]
    folder = made(case, name, shared_data, tmp_path)
    hparams = parse_decode_hparams(case.search) if case.search else None
    run = t2t_torch.load(folder / "run", hparams=hparams, device="cpu")
    artifact = t2t_torch.load(folder / "artifact", threads=1)
    fields = case.field.split()
    odd = ODD if len(fields) == 1 else [dict.fromkeys(fields, text) for text in ODD]
    asked: list[Any] = [*inputs_of(case, folder), *odd]
    expected = answers(run, asked)
    mixed = random.Random(0).sample(range(len(asked)), len(asked))
    shuffled = dict(zip(mixed, answers(artifact, [asked[i] for i in mixed]), strict=True))
    whole = answers(artifact, asked)
    few = [*range(0, len(asked), 20), *range(len(asked) - len(ODD), len(asked))]
    alone = {place: answers(artifact, [asked[place]])[0] for place in few}
    wrong = [
        (asked[place], expected[place], found[place])
        for found in (dict(enumerate(whole)), shuffled, alone)
        for place in found
        if not same_or_refused(expected[place], found[place])
    ]
    assert not wrong, wrong[:3]
    assert len({str(answer) for answer in expected}) > len(asked) // 20


def answers(answerer: Any, asked: Sequence[Any]) -> list[Any]:
    """Returns each answer, or the name of the error: one at a time where one is refused."""
    try:
        return list(answerer.predict(asked))
    except t2t_torch.errors.DataError as error:
        if len(asked) == 1:
            return [type(error).__mro__]
    half = len(asked) // 2
    return [*answers(answerer, asked[:half]), *answers(answerer, asked[half:])]


def same_or_refused(one: Any, other: Any) -> bool:
    """Whether both refuse, or both answer the same."""
    refused = isinstance(one, tuple), isinstance(other, tuple)
    return all(refused) or (not any(refused) and same(one, other))
