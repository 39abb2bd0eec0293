"""Every tree of the real data is built by its transitions, and every one of them is valid."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.features import TreeFeature
from t2t_torch.layers.tree import ValidTransitions
from t2t_torch.mode import Split
from t2t_torch.text.tree import TransitionEncoder, parse_tree

PROBLEMS = {
    "semantic_parse_top": ("top", 40_687),
    "parsing_treebank_sample": ("treebank", 3_914),
    "parsing_treebank_sample_tags": ("treebank", 3_914),
}


def all_valid(feature: TreeFeature, rows: list[list[int]], words: list[int]) -> bool:
    """Whether each id of each row is valid after those before it, with no room to spare."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    rules = ValidTransitions(feature, 40, torch.device("cpu"))
    lengths = torch.tensor([len(row) for row in rows])
    progress = rules.start(torch.tensor(words), lengths)
    for step in torch.from_numpy(ids).T:
        valid = rules.valid(progress).gather(1, step[:, None])[:, 0]
        if not bool((valid | (step == 0)).all()):
            return False
        progress = rules.after(step, progress)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_all_trees_are_built_again_from_ids_that_are_all_valid(name, real, samples) -> None:
    folder, count = PROBLEMS[name]
    tmp_dir, problem = real(folder), registry.problem(name)
    examples = [
        example
        for split in Split
        for sample in samples(name, tmp_dir, split)
        for example in problem.examples_of(sample)
    ]
    assert len(examples) == count
    labels = sorted({label for example in examples for label in example["targets"].labels})
    feature = TreeFeature(
        TransitionEncoder(labels),
        tags="tags" if problem.given_tags else "",
        is_round=folder == "treebank",
    )
    rows = feature.encode_batch([example["targets"] for example in examples])
    words = [example["inputs"] for example in examples]
    for row, example in zip(rows, examples, strict=True):
        tree, tags = example["targets"], example.get("tags", ())
        whole = tree.with_tags(tags) if tags else tree
        assert parse_tree(feature.over(row, example["inputs"], tags)) == whole
    assert all_valid(feature, rows, list(map(len, words)))
    rows[7].insert(1, rows[7][-2])  # it does find fault
    assert not all_valid(feature, rows, list(map(len, words)))
