"""A header is a row that does not look like the rows below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.delimited import find_header
from t2t_torch.readers.detection import detect_format

NUMBERS = [str(n * 7) for n in range(30)]
LABELS = ["oui" if n % 3 else "non" for n in range(30)]
TEXTS = [f"le bateau du capitaine {n} est parti ce matin." for n in range(30)]


def below(first: list[str], *columns: list[str]) -> list[list[str]]:
    return [first, *map(list, zip(*columns, strict=True))]


@pytest.mark.parametrize(
    "rows",
    [
        below(["avis", "note"], TEXTS, NUMBERS), below(["समीक्षा", "भावना"], TEXTS, LABELS),
        below(["What do you think of the service of our team?", "Again?"], TEXTS, LABELS),
        below(["", "avis"], NUMBERS, TEXTS), below(["a", "when"], TEXTS, ["2024-01-02"] * 30),
    ],
)  # fmt: skip
def test_names_in_any_language_are_a_header(rows: list[list[str]]) -> None:
    assert find_header(rows).is_header


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (below([TEXTS[3] + "x", "oui"], TEXTS, LABELS), "'oui' is in other rows"),
        (below(["13", "le bateau est parti."], NUMBERS, TEXTS), "as those below"),
        (below(["un autre bateau est parti hier soir.", "un bateau."], TEXTS, TEXTS), "sentence"),
    ],
)
def test_values_are_no_header(rows: list[list[str]], why: str) -> None:
    found = find_header(rows)
    assert not found.is_header
    assert why in found.doubts[0]


def test_a_header_of_weak_evidence_is_doubted_and_a_repeated_one_counted() -> None:
    words = [chr(97 + n % 26) * (n + 3) for n in range(30)]
    assert "if it is data" in find_header(below(["abc", "id"], words, words[::-1])).doubts[0]
    rows = below(["avis", "note"], TEXTS, NUMBERS)
    assert find_header([*rows, ["avis", "note"]]).repeated == 1


def test_lines_before_a_table_are_to_be_deleted(tmp_path: Path) -> None:
    rows = "".join(f"{a};{b}\n" for a, b in zip(LABELS, TEXTS, strict=True))
    (tmp_path / "a.csv").write_text(f"Export of May\n\nlabel;text\n{rows}", "utf-8")
    with pytest.raises(DataError, match=r"no rows of the table(.|\n)*tail -n \+3"):
        detect_format(tmp_path / "a.csv")


def test_a_header_that_names_a_column_twice_is_found() -> None:
    assert find_header(below(["note", "note"], NUMBERS, NUMBERS)).twice == "note"


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("", "file.csv is empty"),
        ("\n\r\n", "file.csv is empty"),
        ("a,b,a\n", "name 'a' more than once"),
        (",,\n", "no name for column 1, 2, 3"),
        ("a,b\r1,2\r", "the header holds carriage returns"),
        ('"a\n', "The header is bad: .*line 1, column 1: .*never closed"),
        ('"a"b\n', "The header is bad: .*line 1, column 4"),
        (b"a\xe9,b\n", "The header is bad: .*line 1, column 2"),
        ("\ufeffa\n".encode("utf-16"), "The header is bad: .*iconv -f UTF-16"),
    ],
)
def test_a_header_that_names_no_columns_is_refused_even_where_bad_rows_are_left_out(
    read: Any, header: bytes | str, why: str
) -> None:
    with pytest.raises(DataError, match=why):
        read(header, "csv")
