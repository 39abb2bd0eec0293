from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.mode import Split
from t2t_torch.text.tree import Tree, parse_tree

# A trace, function tags, an index and a bracket as a word.
TREE = """
( (S
    (NP-SBJ-1 (DT The) (-LRB- -LRB-) (NNS dogs) )
    (VP (VBP want)
      (S
        (NP-SBJ (-NONE- *-1) )
        (VP (TO to)
          (VP (VB read) ))))
    (. .) ))
"""
PARSE = (
    "(S (NP (DT The) (-LRB- -LRB-) (NNS dogs))"
    " (VP (VBP want) (S (VP (TO to) (VP (VB read))))) (. .))"
)


def write_raw_files(tmp_dir: Path) -> None:
    (tmp_dir / "treebank").mkdir()
    with zipfile.ZipFile(tmp_dir / "treebank" / "treebank.zip", "w") as archive:
        for i in range(1, 200):
            archive.writestr(f"treebank/combined/wsj_{i:04}.mrg", TREE)
            archive.writestr(f"treebank/parsed/wsj_{i:04}.prd", "something else")


@pytest.mark.slow
def test_trees_are_without_traces_and_function_tags(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    assert samples("parsing_treebank_sample", tmp_path, Split.TEST)[0] == {
        "inputs": ["The", "(", "dogs", "want", "to", "read", "."],
        "targets": PARSE,
    }
    assert rows("parsing_treebank_sample", tmp_path) == {"train": 159, "dev": 20, "test": 20}


def test_what_the_data_was_made_from_is_the_archive(tmp_path):
    write_raw_files(tmp_path)
    problem = registry.problem("parsing_treebank_sample")
    assert problem.raw_files(tmp_path) == [tmp_path / "treebank" / "treebank.zip"]


@pytest.mark.slow
def test_the_real_trees_are_all_there(real, samples, rows):
    tmp_dir = real("treebank")
    train = samples("parsing_treebank_sample", tmp_dir, Split.TRAIN)
    assert train[0]["inputs"][:2] == ["Pierre", "Vinken"]
    assert train[0]["targets"].startswith("(S (NP (NP (NNP Pierre) (NNP Vinken)) (, ,) (ADJP")
    other = [samples("parsing_treebank_sample", tmp_dir, s) for s in (Split.EVAL, Split.TEST)]
    assert [len(part) for part in (train, *other)] == [3396, 273, 245]
    words = sum(len(sample["inputs"]) for part in (train, *other) for sample in part)
    assert words == 94_084
    for sample in (sample for part in (train, *other) for sample in part):
        tree = parse_tree(sample["targets"])
        assert tree.words == sample["inputs"]
        assert Tree.from_transitions(tree.transitions(), tree.words) == tree
    assert rows("parsing_treebank_sample", tmp_dir, max_cases=50)["train"] == 50


def test_given_parts_of_speech_are_an_input_and_not_in_the_tree(tmp_path, samples, rows):
    write_raw_files(tmp_path)
    name = "parsing_treebank_sample_tags"
    (example,) = registry.problem(name).examples_of(samples(name, tmp_path, Split.TEST)[0])
    assert example["tags"] == ["DT", "-LRB-", "NNS", "VBP", "TO", "VB", "."]
    assert str(example["targets"]) == "[S [NP The ( dogs ] [VP want [S [VP to [VP read ] ] ] ] . ]"
    assert rows(name, tmp_path) == {"train": 159, "dev": 20, "test": 20}
    features = registry.problem(name).features(tmp_path / "data")
    assert set(features.inputs) >= {"inputs", "inputs_tags"}
    assert features.targets["targets"].tags == "tags" and features.targets["targets"].is_round
