from __future__ import annotations

import dataclasses

import pytest

from t2t_torch.reports.column_statistics import LabelCounts
from t2t_torch.reports.data_report import sections_of
from t2t_torch.reports.section import (
    Bar,
    Note,
    Table,
    command_line,
    confusion_blocks,
    counted,
    number,
    percent,
)


def texts(table):
    return [[one.text if isinstance(one, Bar) else one for one in row] for row in table.rows]


def tables(statistics, name):
    (section,) = (one for one in sections_of(statistics) if one.name == name)
    return [block for block in section.blocks if isinstance(block, Table)]


def test_a_section_of_what_the_data_does_not_have_is_left_out(evil_statistics):
    assert [one.name for one in sections_of(evil_statistics)] == [
        "lengths",
        "unknowns",
        "labels",
        "numbers",
        "samples",
        "extremes",
        "duplicates",
        "buckets",
    ]
    bare = dataclasses.replace(
        evil_statistics, features=evil_statistics.features[:1], samples=(), pairs=(), buckets=None
    )
    assert [one.name for one in sections_of(bare)] == [
        "lengths",
        "unknowns",
        "extremes",
        "duplicates",
    ]


def test_twenty_labels_are_told_and_the_rest_summed(evil_statistics):
    labels = [f"l{i}" for i in range(30)]
    feature = next(one for one in evil_statistics.features if one.name == "class")
    splits = {
        "train": LabelCounts(tuple(labels), tuple(range(30))),
        "dev": LabelCounts(tuple(labels), (10,) * 29 + (0,), unknown=5),
    }
    figures = {
        split: dataclasses.replace(feature.splits[split], labels=labels)
        for split, labels in splits.items()
    }
    feature = dataclasses.replace(feature, splits=figures)
    statistics = dataclasses.replace(evil_statistics, features=(feature,))
    (table,) = tables(statistics, "labels")
    rows = texts(table)
    assert rows[0] == ["l29", "29", "6.67 %", "0", "0 %"]
    assert rows[19][:2] == ["l10", "10"]
    assert rows[20] == ["(10 more)", "45", "10.3 %", "100", "33.9 %"]
    assert table.rows[0][2].length == 1.0, "the longest bar is that of the greatest share"
    (section,) = (one for one in sections_of(statistics) if one.name == "labels")
    notes = [block.text for block in section.blocks if isinstance(block, Note)]
    assert notes == ["Never in training (1): l0", "Unknown to training, in dev: 5 (1.69 %)."]


def test_of_two_equal_rows_the_second_is_not_told_again(evil_statistics):
    examples = tables(evil_statistics, "duplicates")[-1]
    rows = texts(examples)
    assert rows[0][:3] == ["same row", "train", "0"]
    assert rows[1] == ["", "train", "1", "(the same)"]


def test_the_buckets_end_with_their_sum(evil_statistics):
    (table,) = tables(evil_statistics, "buckets")
    assert texts(table)[-1] == ["all", "", "5", "2", "710", "0 %"]


@pytest.mark.parametrize(
    ("value", "plain_text"),
    [
        (0, "0"),
        (1234567, "1,234,567"),
        (2.0, "2"),
        (0.12345, "0.1235"),
        (12345.678, "12,345.7"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_told_short(value, plain_text):
    assert number(value) == plain_text


@pytest.mark.parametrize(
    ("share", "plain_text"),
    [(0, "0 %"), (1, "100 %"), (0.5, "50.0 %"), (0.0123, "1.23 %"), (0.00001, "< 0.01 %")],
)
def test_small_shares_are_told_with_more_places(share, plain_text):
    assert percent(share) == plain_text


def test_one_is_no_plural():
    assert [counted(1, "row"), counted(0, "row"), counted(1200, "row")] == [
        "1 row",
        "0 rows",
        "1,200 rows",
    ]


@pytest.mark.parametrize(
    ("labels", "head", "first"),
    [(["1", "2"], ("1", "2"), "1"), (["1", "a longer name"], ("1", "2"), "1  1")],
)
def test_short_labels_are_the_columns_of_the_matrix(labels, head, first):
    matrix = next(iter(confusion_blocks(labels, [(0, 0, 3), (1, 0, 1)])))
    assert tuple(matrix.head[1:]) == head
    assert matrix.rows[0][0] == first


def test_an_argument_of_a_command_is_text_in_one_piece():
    shown = command_line("t2t-data --problem=<b>", "Command:").html
    assert shown == (
        '<p class="command">Command: <span>t2t-data</span> <span>--problem=&lt;b&gt;</span></p>'
    )
