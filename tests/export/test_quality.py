"""Answers that are parts of a text, as metrics read them."""

from __future__ import annotations

import torch

from t2t_torch.export.quantization import _of_spans
from t2t_torch.modalities.label import best_spans

TEXT = "the cat saw the other cat near the house".split()


def test_a_part_of_a_text_is_the_words_that_it_stands_at():
    asked = [("saw the other", 0), ("house", 0), ("the", 5), ("cat", 0), ("", 3), ("he", 0)]
    contexts = [TEXT] * len(asked)
    right = [(near, near) for _, near in asked]
    logits = _of_spans(contexts, [value for value, _ in asked], right)
    assert logits.shape == (6, 10, 2)
    expected = [[2, 4], [8, 8], [3, 3], [1, 1], [-1, -1], [0, 0]]
    assert torch.equal(best_spans(logits), torch.tensor(expected))


def test_whole_words_go_before_nearer_parts_of_words():
    logits = _of_spans([["cats", "and", "a", "cat"]], ["cat"], [(0, 0)])
    assert best_spans(logits).tolist() == [[3, 3]]
