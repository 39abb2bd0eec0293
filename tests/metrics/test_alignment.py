"""Edits and common subsequences, against the plain way to compute them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.metrics.alignment import common_lengths, edit_distances, word_errors

SEQUENCE = st.lists(st.integers(1, 4), max_size=7)


def edits(a, b):
    if not a or not b:
        return len(a) + len(b)
    rest = edits(a[:-1], b[:-1]) + (a[-1] != b[-1])
    return min(rest, edits(a[:-1], b) + 1, edits(a, b[:-1]) + 1)


def common(a, b):
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return common(a[:-1], b[:-1]) + 1
    return max(common(a[:-1], b), common(a, b[:-1]))


def rows(sequences):
    """Ids [N, T], filled up with what is also an id, and lengths [N]."""
    width = max(map(len, sequences))
    filled = [sequence + [1] * (width - len(sequence)) for sequence in sequences]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return torch.tensor(filled).view(len(sequences), width), lengths


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(SEQUENCE, SEQUENCE), min_size=1, max_size=4))
def test_pairs_side_by_side_are_counted_as_each_alone(pairs):
    outputs, references = zip(*pairs, strict=True)
    sides = *rows(outputs), *rows(references)
    assert edit_distances(*sides).tolist() == [edits(*pair) for pair in pairs]
    assert common_lengths(*sides).tolist() == [common(*pair) for pair in pairs]


def test_words_are_compared_whole():
    outputs = [["the", "cat"], [], ["a"]]
    references = [["the", "cats", "sat"], ["b"], []]
    assert word_errors(outputs, references) == (2 + 1 + 1, 4)
    assert word_errors([], []) == (0, 0)
