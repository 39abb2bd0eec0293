"""Slices with more errors than the rest are found, and only these."""

from __future__ import annotations

import random

from t2t_torch.reports.slices import Slices, sections_of_slices


def test_the_word_and_the_label_of_the_errors_are_the_worst():
    choose, slices = random.Random(1), Slices()
    for number in range(600):
        words = choose.choices("one two three four five six".split(), k=5)
        is_hard = number % 15 == 0
        text = " ".join([*words, "Knot," if is_hard else "rope"])
        wrong = is_hard or choose.random() < 0.05
        slices.add({"inputs": text, "n": 3.0}, "abc"[number % 7 % 3], is_right=not wrong)
    first, *others = slices.worst()
    assert first == {"slice": "word in inputs 'knot'", "rows": 40, "errors": 40, "share": 1.0}
    assert not others
    (section,) = sections_of_slices({"slices": {"targets": [first], "other": []}})
    assert section.blocks[0].rows == [["word in inputs 'knot'", "40", "40", "100 %"]]


def test_lengths_values_and_labels():
    slices = Slices()
    for number in range(300):
        is_long = number % 5 == 0
        words = ["w"] * (20 if is_long else 3)
        slices.add({"words": words, "topic": "xy"[is_long]}, ["a", "b"], is_right=not is_long)
    names = {one["slice"] for one in slices.worst()}
    assert {"length of words 17 to 32 words", "topic is 'y'"} <= names
    assert not any("'x'" in name or "label" in name for name in names)
