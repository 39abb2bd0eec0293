"""Pictures and sounds."""

from __future__ import annotations

import numpy as np
from made_tables import ROWS, best, draws, texts


def test_pictures_with_a_label_are_classified():
    pictures = [np.zeros((8, 6, 3), np.uint8) for _ in range(ROWS)]
    made = best(c0=pictures, c1=draws(1, "10", "9", "7"))
    assert made.kind == "image2class"
    assert made.more == {
        "labels": ["7", "9", "10"],
        "settings": {"height": 8, "width": 6, "channels": 3},
    }


def test_paths_of_sounds_beside_texts_are_speech():
    made = best(c0=[f"clips/{n}.wav" for n in range(ROWS)], c1=texts(1))
    assert (made.kind, made.fields) == ("speech2text", {"inputs": "c0", "targets": "c1"})
