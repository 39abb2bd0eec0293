"""Workbooks: sizes that a file states wrongly, and workbooks made to do harm."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.tables import read_excel
from t2t_torch.readers.text_file import BadRecords

openpyxl = pytest.importorskip("openpyxl")

SHEET = "xl/worksheets/sheet1.xml"


def workbook(path: Path, rows: int = 240) -> Path:
    book = openpyxl.Workbook()
    book.active.append(["ticket", "queue"])
    for number in range(rows):
        book.active.append([f"ticket {number}", "sales" if number % 2 else "help"])
    book.save(path)
    return path


def changed(path: Path, change: Callable[[str], str], member: str = SHEET) -> Path:
    """Replaces the text of a member of a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    before = parts[member].decode()
    parts[member] = change(before).encode()
    assert parts[member] != before.encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def values_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [record.values for record in read_excel(path, BadRecords("skip"), **options)]


@pytest.mark.parametrize("stated", ["", "A1", "A1:A1", "A1:B100", "A1:A241", "A1:XFD1048576"])
def test_all_rows_and_columns_are_read_whatever_size_a_sheet_states(
    tmp_path: Path, stated: str
) -> None:
    new = f'<dimension ref="{stated}"/>' if stated else ""
    path = changed(
        workbook(tmp_path / "a.xlsx"), lambda text: re.sub("<dimension[^>]*/>", new, text)
    )
    rows = values_of(path)
    assert len(rows) == 240
    assert rows[-1] == {"ticket": "ticket 239", "queue": "sales"}


ENTITIES = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<!DOCTYPE worksheet [<!ENTITY a0 "ha">{ENTITIES}]>'


@pytest.mark.parametrize(
    ("member", "value"), [(SHEET, "ticket 7"), ("xl/workbook.xml", 'name="Sheet"')]
)
def test_entities_are_refused_in_every_part_of_a_workbook(
    tmp_path: Path, member: str, value: str
) -> None:
    def with_bomb(text: str) -> str:
        start = text.index("<", text.index("?>") if text.startswith("<?") else 0)
        bomb = value.replace("Sheet", "&a9;").replace("ticket", "&a9;")
        return text[:start] + BOMB + text[start:].replace(value, bomb, 1)

    path = changed(workbook(tmp_path / "a.xlsx"), with_bomb, member)
    with pytest.raises(DataError, match=r"a\.xlsx is no workbook of Excel, or is damaged"):
        values_of(path)


def test_a_workbook_that_unpacks_to_a_multiple_of_its_size_is_refused(tmp_path: Path) -> None:
    path = changed(
        workbook(tmp_path / "a.xlsx"),
        lambda text: text.replace("<sheetData>", "<sheetData>" + "<row/>" * 1_000_000),
    )
    assert path.stat().st_size < 30_000
    with pytest.raises(
        DataError, match=r"unpacks to 6,\d{3},\d{3} bytes, as decompression bombs do"
    ):
        values_of(path)


@pytest.mark.parametrize("row", ['<row r="99999999999">', '<row r="1048577">'])
def test_rows_beyond_those_of_excel_are_refused(tmp_path: Path, row: str) -> None:
    path = changed(workbook(tmp_path / "a.xlsx"), lambda text: text.replace('<row r="9">', row, 1))
    with pytest.raises(DataError, match="has more than 1,048,576 rows"):
        values_of(path)


def test_cells_at_the_far_right_of_every_row_are_refused(tmp_path: Path) -> None:
    far = '<c r="XFD1" t="n"><v>1</v></c></row>'
    path = changed(workbook(tmp_path / "a.xlsx", 2000), lambda text: text.replace("</row>", far))
    with pytest.raises(DataError, match=r"or 20,000,000 cells\. Save it as CSV"):
        values_of(path)
