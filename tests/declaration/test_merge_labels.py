"""`--merge_labels`: spellings of a label become one, and the declaration says so."""

from __future__ import annotations

import json

import pytest

from t2t_torch import registry
from t2t_torch.bin.commands import datagen
from t2t_torch.declaration.problem import problem_of
from t2t_torch.errors import RegistryError, UsageError
from t2t_torch.mode import Split
from t2t_torch.workflows.generate import merge_labels


@pytest.fixture(autouse=True)
def folders():
    """Forgets the folders of a test."""
    roots = registry._STATE.roots[:]
    yield
    registry._STATE.roots[:] = roots
    registry._STATE.forget_index()


def _declared(tmp_path, content):
    path = tmp_path / "problems" / "spam.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"problem": "spam", **content}))
    registry.import_usr_dir(path.parent)
    return path


def _labels(path, tmp_path, split=Split.TRAIN):
    problem = problem_of(json.loads(path.read_text()), path)
    return [sample["targets"] for sample in problem.generate_samples(tmp_path, split)]


def test_datagen_merges_and_prints_the_mapping(tmp_path, capsys):
    rows = ["Ham", "ham ", "ham", "ham", "spam", "Spam", "spam", "x  y", "x y", "x y"]
    (tmp_path / "a.csv").write_text("t,l\n" + "".join(f"{r} {i},{r}\n" for i, r in enumerate(rows)))
    (tmp_path / "b.csv").write_text("t,l\nnew,SPAM\n")
    content = {"kind": "text2class", "files": {"train": "a.csv", "eval": "b.csv"}}
    path = _declared(tmp_path, {**content, "fields": {"inputs": "t", "targets": "l"}})
    command = [
        f"--t2t_usr_dir={path.parent}", "--problem=spam", f"--data_dir={tmp_path / 'data'}",
        f"--tmp_dir={tmp_path}",
    ]  # fmt: skip
    assert datagen.main([*command, "--merge_labels"]) == 0
    said = capsys.readouterr().out
    assert "'Ham', 'ham ' -> 'ham'" in said and "'SPAM', 'Spam' -> 'spam'" in said
    assert sorted({*_labels(path, tmp_path)}) == ["ham", "spam", "x y"]
    assert _labels(path, tmp_path, Split.EVAL) == ["spam"]
    before = path.read_bytes()
    assert datagen.main([*command, "--merge_labels"]) == 0  # the same, and the data is kept
    assert path.read_bytes() == before
    assert datagen.main(command) == 0


def test_tags_several_labels_and_declared_labels(tmp_path):
    (tmp_path / "a.tsv").write_text("t\tl\none\ta,A,b\ntwo\ta\n")
    column = {"column": "l", "split": ","}
    content = {
        "kind": "text2multilabel",
        "files": {"train": "a.tsv", "eval": 0.1},
        "fields": {"inputs": "t", "targets": column},
        "labels": ["A", "a", "b"],
    }
    path = _declared(tmp_path, content)
    assert merge_labels("spam", tmp_path) == {"A": "a"}
    assert json.loads(path.read_text())["labels"] == ["a", "b"]
    assert ["a", "a", "b"] in _labels(path, tmp_path)


def test_the_label_that_remains_has_no_blanks_at_its_ends(tmp_path):
    labels = ["neg ", "neg ", "neg ", "neg", "Neg", "Neg", "pos ", " Pos", "pos "]
    (tmp_path / "a.csv").write_text(
        "t,l\n" + "".join(f"text {i},{one}\n" for i, one in enumerate(labels))
    )
    content = {"kind": "text2class", "files": {"train": "a.csv", "eval": 0.1}}
    path = _declared(tmp_path, {**content, "fields": {"inputs": "t", "targets": "l"}})
    merged = merge_labels("spam", tmp_path)
    assert merged == {"neg ": "neg", "Neg": "neg", "pos ": "pos", " Pos": "pos"}
    assert {*_labels(path, tmp_path)} <= {"neg", "pos"}
    assert merge_labels("spam", tmp_path) == merged


def test_a_problem_without_labels_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("inputs\ttargets\none\tun\n")
    content = {"kind": "text2text", "files": {"train": "a.tsv", "eval": 0.1}}
    path = _declared(tmp_path, content)
    with pytest.raises(UsageError, match="no labels"):
        merge_labels("spam", tmp_path)
    with pytest.raises(RegistryError, match="merge_labels"):
        problem_of({"problem": "spam", **content, "merge_labels": {"a": "b"}}, path)
