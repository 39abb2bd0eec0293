"""Tables with a word on each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import UsageError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

SENTENCE = 'Ana,NNP,B-per\nmet,VBD,O\n"""",``,O\n",",",",O\n'
"""Rows of a word, a part of speech and a tag."""


def numbered(count: int) -> str:
    """Returns sentences that are named in their first row only, as in ner_dataset.csv."""
    rows = (
        f"{f'Sentence: {n}' if first else ''},{line}\n"
        for n in range(count)
        for first, line in zip((True, *[False] * 3), SENTENCE.splitlines(), strict=True)
    )
    return "Sentence #,Word,POS,Tag\n" + "".join(rows)


OPTIONS = {"word": "Word", "tag": "Tag", "sentence": "Sentence #"}


def test_the_rows_of_a_sentence_are_joined(match: Any, tmp_path: Path) -> None:
    path = tmp_path / "ner.csv"
    path.write_text(numbered(12))
    found = match("word_rows", path)
    assert found is not None
    assert (found.confidence, found.options) == (0.98, OPTIONS)
    assert "'POS'" in found.doubts[1]
    records = list(open_records(path, format="word_rows", options=found.options))
    assert [one.place.line for one in records] == list(range(2, 50, 4))
    values = {"words": ["Ana", "met", '"', ","], "tags": ["B-per", "O", "O", "O"]}
    assert all(one.values == values for one in records)


def test_sentences_may_have_numbers_or_blank_words_between_them(match: Any, tmp_path: Path) -> None:
    path = tmp_path / "ner.tsv"
    words = "a\tB-x\nb\tO\n"
    by_number = "id\tsent\tword\ttag\n" + "".join(
        f"{n}\t{n // 2}\t{'ab'[n % 2]}\t{('B-x', 'O')[n % 2]}\n" for n in range(20)
    )
    for content in (by_number, "word\ttag\n" + f"{words}\t\n" * 10):
        path.write_text(content)
        found = match("word_rows", path)
        assert found is not None
        records = list(open_records(path, format="word_rows", options=found.options))
        assert [one.values for one in records] == [{"words": ["a", "b"], "tags": ["B-x", "O"]}] * 10


def test_a_sentence_with_a_bad_row_is_left_out(tmp_path: Path) -> None:
    path, bad = tmp_path / "ner.csv", BadRecords("skip")
    path.write_text(numbered(3).replace("Sentence: 1,Ana", "Sentence: 1,").replace(",met", "", 1))
    made = list(open_records(path, format="word_rows", bad=bad, options=OPTIONS))
    assert [one.place.line for one in made] == [10]
    assert bad.count == 2
    with pytest.raises(UsageError, match="no column 'word'; the columns are Sentence #, Word"):
        list(open_records(path, format="word_rows"))


@pytest.mark.parametrize(
    "content",
    [
        "name,sex,country\n" + "".join(f"Ana{n},f,{'ab'[n // 20]}\n" for n in range(40)),
        "text,label\n" + "a text of words,x\nother words,y\n" * 20,
        "id,tokens,tags\n" + "1,a b,O B-x\n2,b,O\n" * 20,
        "word\n" + "a\n" * 20,
    ],
)
def test_it_matches_no_other_tables(content: str, match: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert match("word_rows", tmp_path / "a.csv") is None
