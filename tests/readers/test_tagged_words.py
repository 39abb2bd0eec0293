"""Words with their tags on lines: what is recognized, and what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.declaration.draft import draft
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

NOUNS = "dog cat bird horse child teacher baker driver painter writer".split()
LINES = [f"The{{0}}DT {noun}{{0}}NN barks{{0}}VBZ .{{0}}." for noun in NOUNS] * 4


@pytest.mark.parametrize("mark", ["/", "_", "|"])
def test_a_tag_stands_after_a_mark(tmp_path: Path, mark: str):
    path = tmp_path / "brown.txt"
    path.write_text("\n".join(LINES).format(mark) + "\n", "utf-8")
    made = draft(path)
    assert made.content["format"] == "tagged_words" and made.content["kind"] == "text2tags"
    assert made.samples[0]["inputs"][::2] == ["The", "barks"]
    assert made.samples[0]["targets"] == ["DT", "NN", "VBZ", "."]


def test_a_word_may_hold_the_mark_and_a_word_without_a_tag_is_bad(tmp_path: Path):
    path = tmp_path / "words.txt"
    path.write_text("1/2/CD cup/NN\n\nno tag/NN\n", "utf-8")
    bad = BadRecords("skip")
    (record,) = open_records(path, format="tagged_words", bad=bad, options={})
    assert record.values == {"words": ["1/2", "cup"], "tags": ["CD", "NN"]}
    assert "the word 'no' has no tag after '/'" in bad.listed[0]


@pytest.mark.parametrize(
    "line",
    [
        "and/or is/are a word",
        "see http://a.b/c and d/e",
        "no marks",
        "12/05 3/14 4/9",
        "usr/bin x/bin y/bin",
        "word_size my_word_size max_len",
        "1\tThe/DT dog/NN",
    ],
)
def test_other_texts_are_none(tmp_path: Path, line: str):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{line} {n}\n" for n in range(40)), "utf-8")
    assert draft(path).content.get("format") != "tagged_words"
