from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.text_file import MAX_LISTED, BadRecords, Place

PATH = Path("train.csv")


def test_a_place_reads_as_file_line_and_column() -> None:
    assert str(Place(PATH, 3, 7)) == "train.csv, line 3, column 7"
    assert str(Place(PATH, 3)) == "train.csv, line 3"
    assert str(Place(PATH, 3, unit="row")) == "train.csv, row 3"


def test_the_first_bad_record_ends_the_reading_unless_told_otherwise() -> None:
    with pytest.raises(
        DataError,
        match=r"^train\.csv, line 2, column 5: it is odd\. Fix it, or .*--on_bad_record=skip$",
    ):
        BadRecords().report(Place(PATH, 2, 5), "it is odd")


def test_all_that_is_left_out_is_counted_and_the_first_of_it_listed() -> None:
    bad = BadRecords("skip")
    for line in range(1, MAX_LISTED + 11):
        bad.report(Place(PATH, line), "odd")
    assert bad.count == MAX_LISTED + 10
    assert bad.listed == [f"train.csv, line {n}: odd" for n in range(1, MAX_LISTED + 1)]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'ignore'.*fail, skip"):
        BadRecords("ignore")  # type: ignore[arg-type]
