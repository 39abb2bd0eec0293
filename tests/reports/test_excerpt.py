from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_torch.reports.section import cut, pad, visible, width


@given(st.text())
def test_what_is_shown_is_printable_and_one_line(text):
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert all(one.isprintable() or one in "\u200c\u200d" for one in shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("a\nb\tc\x1b[2J\x00", "a\\nb\\tc\\x1b[2J\\x00"),
        ("\u202egnol", "\\u202egnol"),
        ("a\u00a0b", "a␣b"),
        ("👩\u200d🚀 می\u200cخواهم", "👩\u200d🚀 می\u200cخواهم"),
    ],
)
def test_invisible_characters_are_escaped(text, expected):
    assert visible(text) == expected


@given(st.text(), st.integers(1, 30))
def test_a_cut_text_fits_and_says_that_it_is_cut(text, columns):
    shown = cut(text, columns)
    assert width(shown) <= columns
    assert shown == text or shown.endswith("…")


def test_wide_characters_take_two_columns_and_marks_none():
    assert width("東京") == 4
    assert width("e\u0301") == 1
    assert pad("東京", 6) == "東京  "
    assert pad("12", 4, right=True) == "  12"
    assert cut("東京都", 5) == "東京…"
