"""`t2t-compare`: what differs between runs, and how they did."""

from __future__ import annotations

import re

import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.bin.commands import compare
from t2t_torch.workflows.compare import _names


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short runs with different rates, on two problems with the same metrics."""
    folder, roots = tmp_path_factory.mktemp("compared"), registry._STATE.roots[:]
    rows = [
        {"text": f"{word} {n}", "label": word[0]} for word in ("good", "bad") for n in range(20)
    ]
    for name, rate in (("first", 0.01), ("second", 0.02)):
        content = {
            "problem": f"{name}_words",
            "kind": "text2class",
            "files": {"train": rows, "eval": 0.2},
            "fields": {"inputs": "text", "targets": "label"},
        }
        t2t.train(
            content,
            "fasttext",
            "fasttext_tiny",
            data_dir=folder / f"data_{name}",
            output_dir=folder / name,
            train_steps=6,
            local_eval_frequency=2,
            hparams={"learning_rate_constant": rate, "batch_size": 64},
        )
    yield folder / "first", folder / "second"
    registry._STATE.roots[:] = roots
    registry._STATE.forget_index()


def test_settings_and_metrics_stand_side_by_side(runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert compare.main([*map(str, runs), f"--report={page}"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"hparams.learning_rate_constant +0.01 +0.02", out)
    assert "hparams.batch_size" not in out, "it is the same in both"
    assert re.search(r"problem +first_words +second_words", out)
    assert re.search(r"dev accuracy, best +\S+ at \d +\S+ at \d", out)
    html = page.read_text()
    assert html.count("<svg") >= 3
    assert "dev loss" in html and "second" in html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{0}"], "1 runs: give 2 to 5"),
        (["{0}", "{0}/"], "a run is given twice"),
        (["{0}", "{0}x"], "is not a run directory"),
        (["{0}", "{1}", "--report=/nowhere/page.html"], "there is no folder /nowhere"),
    ],
)
def test_bad_arguments_are_refused(runs, arguments, message, capsys):
    assert compare.main([word.format(*runs) for word in arguments]) == 2
    assert message in capsys.readouterr().err


def test_runs_of_the_same_name_are_named_with_their_folders(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    assert _names(paths) == ["a/run", "b/run"]
