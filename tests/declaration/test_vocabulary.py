"""The size of a drafted vocabulary follows the corpus."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from t2t_torch.declaration.draft import draft

pytestmark = pytest.mark.usefixtures("own_registry")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("words", "length", "expected"),
    [(100, 9, {"vocab_size": 400}), (3000, 9, {"vocab_size": 2900}),
     (90000, 9, {"vocab_size": 1600}), (3000, 1, {"vocab_type": "character"})],
)  # fmt: skip
def test_a_piece_for_each_word_that_repeats_and_characters_for_names(
    words, length, expected, tmp_path: Path
):
    draw = random.Random(1)
    known = ["".join(draw.choices(LETTERS, k=7)) for _ in range(words)]
    rows = [f"{' '.join(draw.choices(known, k=length))}\t{draw.choice('ab')}" for _ in range(2000)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", "utf-8")
    content = draft(tmp_path / "train.tsv").content
    assert expected.items() <= content.items()
    assert content["files"]["eval"] == {"rows": 200}
