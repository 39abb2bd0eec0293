"""Predictions of an evaluation on the page of the run: they agree with the metrics."""

from __future__ import annotations

import json
import math
import random
import re

import pytest
import torch

import t2t_torch as t2t
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import load
from t2t_torch.hooks.predictions import Predictions
from t2t_torch.run.metrics_file import MetricsFile

pytestmark = pytest.mark.usefixtures("own_registry")

WORDS = ("red", "blue", "dog", "cat", "runs", "is", "a", "the")
EVIL = '<b onclick="x">&amp; 😀'


def texts(count: int):
    source = random.Random(3)
    return [source.choices(WORDS, k=source.randint(2, 6)) for _ in range(count)]


KINDS = {
    "text2class": lambda words: EVIL if "dog" in words else "pet " if "cat" in words else "pet",
    "text2tags": lambda words: ["B-x" if word in ("dog", "cat") else "O" for word in words],
    "text2multilabel": lambda words: [word for word in ("red", "dog", EVIL) if word in words],
    "text2real": lambda words: 100.0 * len(words),
    "text2text": lambda words: " ".join(words[::-1]),
}
MODELS = {
    "text2tags": ("bilstm_tagger", "tag_decoder=crf,"),
    "text2text": ("transformer", "hidden_size=16,filter_size=16,num_hidden_layers=1,"),
}


@pytest.fixture
def train(tmp_path):
    """Trains on a kind of problem for a few steps; returns the run's folder."""

    def run(kind: str, output: str = "run", **settings):
        rows = [
            {
                "words": words if kind == "text2tags" else " ".join(words),
                "answer": KINDS[kind](words),
            }
            for words in texts(120)
        ]
        declaration = {
            "problem": f"words_to_{kind}",
            "kind": kind,
            "files": {"train": rows, "eval": 0.4},
            "fields": {"inputs": "words", "targets": "answer"},
        }
        model, hparams = MODELS.get(kind, ("fasttext", ""))
        t2t.train(
            declaration,
            model,
            f"{model}_{'test' if model == 'transformer' else 'tiny'}",
            data_dir=tmp_path / "data",
            output_dir=tmp_path / output,
            hparams=f"{hparams}batch_size=64,learning_rate_warmup_steps=0",
            **{"train_steps": 12, "local_eval_frequency": 6, **settings},
        )
        return tmp_path / output

    return run


def read(folder):
    """The record, the last evaluation by short names, and the page."""
    record = json.loads((folder / "predictions.json").read_text(encoding="utf-8"))
    last = [report for report in MetricsFile(folder).read() if report["split"] == "dev"][-1]
    metrics = {name.rpartition("/")[2]: value for name, value in last.items()}
    return record, metrics, (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["text2class", "text2tags"])
def test_the_diagonal_of_the_confusion_is_the_accuracy(train, kind):
    record, metrics, page = read(train(kind))
    assert (record["step"], record["split"]) == (12, "dev")
    pairs = record["targets"]["targets"]["pairs"]
    right = sum(count for one, other, count in pairs if one == other)
    assert right / sum(count for *_, count in pairs) == pytest.approx(metrics["accuracy"])
    assert "Confusion matrix" in page
    verdicts = [row[0] for row in record["samples"]["rows"]]
    assert verdicts == sorted(verdicts, reverse=True), "wrong ones first"
    for verdict, _, reference, prediction in record["samples"]["rows"]:
        assert (reference == prediction) == (verdict == "right")


def test_labels_are_text_on_the_page_and_blanks_at_their_ends_are_seen(train):
    _, _, page = read(train("text2class"))
    assert "<b onclick" not in page
    assert "&lt;b onclick=&quot;x&quot;&gt;&amp;amp; 😀" in page
    assert "pet␣" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page), "nothing from elsewhere"


def test_the_baseline_is_a_line_of_the_curve(train):
    record, _, page = read(train("text2class"))
    ((name, levels),) = record["baselines"].items()
    assert name == "metrics-words_to_text2class/targets/accuracy"
    assert "a linear model of n-grams" in levels
    assert page.count("<title>a linear model of n-grams</title>") == 1


def test_counts_of_several_labels(train):
    record, _, page = read(train("text2multilabel"))
    target = record["targets"]["targets"]
    right, predicted, there = target["of_labels"]
    assert all(
        one <= min(two, three) for one, two, three in zip(right, predicted, there, strict=True)
    )
    assert sum(there) > 0
    assert "Labels of targets" in page


def test_numbers_are_in_their_own_units(train):
    record, metrics, page = read(train("text2real"))
    points = record["targets"]["targets"]["points"]
    assert {round(reference, 2) for reference, _ in points} <= {
        100.0 * size for size in range(2, 7)
    }
    # The split has 16 rows or more in a batch: of each batch the first 16 are kept.
    error = math.sqrt(sum((one - other) ** 2 for one, other in points) / len(points))
    assert error == pytest.approx(metrics["rmse"], rel=0.5)
    assert "Absolute error" in page


def test_texts_are_decoded_with_the_weights_of_the_evaluation(train):
    folder = train("text2text", keep_checkpoint_max=2)
    record, _, page = read(folder)
    rows = record["samples"]["rows"]
    assert len(rows) == 6
    settings = DecodeHParams(beam_size=1, extra_length=20)
    expected = load(folder, hparams=settings)([row[0] for row in rows])
    assert [row[2] for row in rows] == [text or "(empty)" for text in expected]
    assert [row[1] for row in rows] == [" ".join(row[0].split()[::-1]) for row in rows]
    assert "Decoded greedily" in page


def test_the_weights_do_not_depend_on_it(train, monkeypatch):
    with_it = train("text2text", "with", random_seed=5)
    monkeypatch.setattr(Predictions, "before_evaluation", lambda *_: None)
    without = train("text2text", "without", random_seed=5)
    assert not (without / "predictions.json").exists()
    pairs = zip(*(t2t.load(one).model.parameters() for one in (with_it, without)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_run_without_an_evaluation_says_so(train):
    folder = train("text2class", schedule="train")
    assert not (folder / "predictions.json").exists()
    assert "No evaluation yet" in (folder / "report.html").read_text(encoding="utf-8")
