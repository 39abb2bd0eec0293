"""Folds of a cross-validation: each row in one, equal inputs together, none trained on."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.data.shards import Shards
from t2t_torch.errors import HParamsError
from t2t_torch.mode import Split
from t2t_torch.pipeline.training_split import rows_of_fold
from t2t_torch.reports.column_statistics import StoredColumn, row_hashes
from t2t_torch.train.problem_data import ProblemData


@pytest.fixture
def shards(own_registry, tmp_path):
    """120 rows, of which 40 inputs occur three times."""
    lines = [f"text number {n % 40} of some,{'ab'[n % 2]}" for n in range(120)]
    (tmp_path / "numbers.csv").write_text("\n".join(["text,label", *lines]))
    content = t2t.declare(tmp_path / "numbers.csv") | {
        "files": {"train": "numbers.csv", "eval": 0.2}
    }
    content["files"]["train"] = str(tmp_path / "numbers.csv")
    t2t.generate(content, tmp_path)
    return tmp_path, Shards.open(tmp_path, "numbers", Split.TRAIN)


def test_each_row_is_in_one_fold_and_equal_inputs_are_together(shards):
    folder, rows = shards
    features = registry.problem("numbers").features(folder)
    folds = np.stack([rows_of_fold(rows, features, f"{n}/4") for n in (1, 2, 3, 4)])
    assert (folds.sum(0) == 1).all()
    assert folds.any(1).all()
    texts = row_hashes(StoredColumn(rows.column(features.columns["inputs"])))
    assert 20 < len(set(texts.tolist())) < len(rows)
    for text in set(texts.tolist()):
        assert (folds[:, texts == text].any(1)).sum() == 1
    assert rows_of_fold(rows, features, "") is None


def test_a_fold_is_evaluated_and_not_trained_on(shards):
    folder, rows = shards
    problem = registry.problem("numbers")
    features = problem.features(folder)
    hparams = registry.hparams("fasttext_tiny").replace(fold="2/4")
    data = ProblemData(problem, features, hparams, folder, loader_workers=0)

    def texts(batches):
        return {tuple(row[row > 0].tolist()) for one in batches for row in one["inputs"]}

    held = texts(data.evaluate(Split.EVAL, rank=0, world_size=1))
    source = data.train(seed=1, start=0, rank=0, world_size=1)
    trained = texts(next(iter(source)) for _ in range(source.report.batches))
    assert held and trained and not held & trained
    assert sum(rows_of_fold(rows, features, "2/4")) + source.report.kept == len(rows)


@pytest.mark.parametrize("fold", ["2", "0/4", "5/4", "1/1", "a/b"])
def test_what_is_no_fold_is_refused(shards, fold):
    folder, rows = shards
    with pytest.raises(HParamsError, match="as 2/5"):
        rows_of_fold(rows, registry.problem("numbers").features(folder), fold)


def test_every_row_trains_on_dev_too_and_says_so(shards, capsys):
    folder, rows = shards
    problem = registry.problem("numbers")
    hparams = registry.hparams("fasttext_tiny").replace(fold="all")
    data = ProblemData(problem, problem.features(folder), hparams, folder, loader_workers=0)
    dev = Shards.open(folder, "numbers", Split.EVAL)
    both = Shards.open(folder, "numbers", Split.TRAIN, Split.EVAL)
    assert len(both) == len(rows) + len(dev) and both.fingerprint != rows.fingerprint
    assert data.train(seed=1, start=0, rank=0, world_size=1).report.kept == len(both)
    assert len(data.training_rows("targets")) == len(both)
    batches = list(data.evaluate(Split.EVAL, rank=0, world_size=1))
    assert sum(len(one["inputs"]) for one in batches) == len(dev)
    assert "dev was trained on" in capsys.readouterr().err
    again = pickle.loads(pickle.dumps(both))
    assert again.lengths["inputs"].tolist() == both.lengths["inputs"].tolist()
