from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.text.tree import Tree, parse_tree

WORDS = 'how long to " Rome "'
TREE = '[IN:GET_DURATION how long to [SL:DESTINATION " Rome " ] ]'
ROWS = (
    f"How long to Rome\t{WORDS}\t{TREE}\n"
    "What is love\tWhat is love\t[IN:UNSUPPORTED What is love ]\n"
    "Hm 5\tHm 5\t[IN:UNSUPPORTED_EVENT Hm 5 ]\n"
)


def write_raw_files(tmp_dir: Path) -> None:
    (tmp_dir / "top").mkdir()
    with zipfile.ZipFile(tmp_dir / "top" / "semanticparsingdialog.zip", "w") as archive:
        for part in ("train", "eval", "test"):
            archive.writestr(f"top-dataset-semantic-parsing/{part}.tsv", ROWS)


def test_requests_that_are_not_supported_are_left_out(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    found = samples("semantic_parse_top", tmp_path, Split.EVAL)
    assert found == [{"inputs": WORDS.split(), "targets": TREE}]
    assert rows("semantic_parse_top", tmp_path) == {"train": 1, "dev": 1, "test": 1}


def test_words_and_tree_alone_are_read_too(tmp_path, samples):
    for part in ("train_supported", "eval", "test"):
        (tmp_path / f"{part}.tsv").write_text(f"{WORDS}\t{TREE}\n", "utf-8")
    assert len(samples("semantic_parse_top", tmp_path, Split.TRAIN)) == 1


def test_a_tree_that_never_ends_is_bad(tmp_path):
    (tmp_path / "train.tsv").write_text(f"{WORDS}\t{TREE[:-2]}\n", "utf-8")
    with pytest.raises(DataError, match=r"train\.tsv, line 1: .*the bracket that opens here"):
        list(registry.problem("semantic_parse_top").generate_samples(tmp_path, Split.TRAIN))


@pytest.mark.slow
@pytest.mark.sample(1)
@pytest.mark.parametrize("split", [Split.TEST, Split.EVAL, Split.TRAIN])
def test_every_real_tree_is_what_its_transitions_build(real, samples, split):
    for sample in samples("semantic_parse_top", real("top"), split):
        tree = parse_tree(sample["targets"])
        assert tree.words == sample["inputs"]
        assert Tree.from_transitions(tree.transitions(), tree.words) == tree


@pytest.mark.slow
def test_the_real_requests_are_all_there(real, samples, rows):
    tmp_dir = real("top")
    first = samples("semantic_parse_top", tmp_dir, Split.EVAL)[0]
    assert first == {
        "inputs": ["what", "'s", "to", "do"],
        "targets": "[IN:GET_EVENT what 's to do ]",
    }
    counts = rows("semantic_parse_top", tmp_dir)
    assert counts == {"train": 28414, "dev": 4032, "test": 8241}
