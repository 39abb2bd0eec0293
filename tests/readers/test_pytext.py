"""PyText's tab-separated files."""

from __future__ import annotations

from typing import Any

import pytest

from t2t_torch.errors import DataError

COLUMNS = ["label", "slots", "text"]


@pytest.mark.parametrize(
    ("row", "words", "tags"),
    [
        ("fly\t4:6:to,7:16:city\tFly to New Haven", "fly to new haven", "O B-to B-city I-city"),
        ("fly\t7:10:a,11:16:a\tfly to New Haven", "fly to new haven", "O O B-a B-a"),
        ("hi\t\tHi  you\tfurther", "hi you", "O O"),
    ],
)
def test_slots_are_tags_of_words_in_lower_case(read: Any, row: str, words: str, tags: str) -> None:
    (record,), bad = read(f"{row}\n", "pytext", columns=COLUMNS)
    assert not bad.listed
    assert list(record.values) == [*COLUMNS, "words", "tags"]
    assert (record.values["words"], record.values["tags"]) == (words.split(), tags.split())


def test_words_may_keep_their_case_and_fields_have_quotes(read: Any) -> None:
    (record,), _ = read('x\t"Fly ""it"""\n', "pytext", columns=["a", "text"], lower_case=False,
                        quoted=True)  # fmt: skip
    assert record.values["words"] == ["Fly", '"it"']


def test_several_texts_are_json(read: Any) -> None:
    (record,), bad = read('["a", "b"]\n[oops\n', "pytext", columns=["text_seq"])
    assert record.values == {"text_seq": ["a", "b"]}
    assert "line 2" in bad.listed[0]


def test_a_slot_of_another_form_is_bad_and_columns_are_needed(read: Any) -> None:
    records, bad = read("x\t0-3:city\tRiga\n", "pytext", columns=COLUMNS)
    assert not records
    assert "'0-3:city' is no slot; expected START:END:LABEL" in bad.listed[0]
    with pytest.raises(DataError, match='needs "options"'):
        read("x\n", "pytext")
