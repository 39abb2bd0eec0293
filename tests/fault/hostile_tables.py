"""Hostile tables: workbooks, CSV, JSON lines, Parquet, compressed ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
from hostile import add, reader
from pyarrow import parquet


@reader("table")
def read_table(path: Path) -> Any:
    """Reads all rows, as datagen does; bad ones are left out."""
    from t2t_torch.readers.formats import open_records
    from t2t_torch.readers.text_file import BadRecords

    return sum(1 for _ in open_records(path, bad=BadRecords("skip")))


@reader("declared")
def declare_table(path: Path) -> Any:
    """Looks at a table, as `t2t-datagen --declare` does."""
    from t2t_torch.readers.detection import detect_format

    return detect_format(path)


# Workbooks.

SHEET = "xl/worksheets/sheet1.xml"


def workbook(
    change: Callable[[str], str] = str, member: str = SHEET, more: dict[str, bytes] | None = None
) -> bytes:
    """Returns a workbook with another text of a member, and more members."""
    file, changed = io.BytesIO(), io.BytesIO()
    book = openpyxl.Workbook()
    for number in range(100):
        book.active.append(["ticket", "queue"] if not number else [f"ticket {number}", "help"])
    book.save(file)
    with (
        zipfile.ZipFile(file) as archive,
        zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as other,
    ):
        for name in archive.namelist():
            text = archive.read(name)
            other.writestr(name, change(text.decode()).encode() if name == member else text)
        for name, content in (more or {}).items():
            other.writestr(name, content)
    return changed.getvalue()


def with_dtd(dtd: str, value: str = "ticket 7", entity: str = "&a;") -> Callable[[str], str]:
    """Returns a change that adds a DTD before the root element, and uses an entity."""

    def change(text: str) -> str:
        start = text.index("<", text.index("?>") if text.startswith("<?") else 0)
        return text[:start] + dtd + text[start:].replace(value, entity, 1)

    return change


_LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
_LONG = f'<!ENTITY a "{"x" * 100_000}">'
for _name, _dtd, _entity in (
    ("laughs", f'<!DOCTYPE a [<!ENTITY a0 "ha">{_LAUGHS}]>', "&a9;"),
    ("quadratic", f"<!DOCTYPE a [{_LONG}]>", "&a;" * 20_000),
    ("file", '<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>', "&a;"),
    ("network", '<!DOCTYPE a [<!ENTITY a SYSTEM "http://127.0.0.1:9/a">]>', "&a;"),
    ("parameter", '<!DOCTYPE a [<!ENTITY % a SYSTEM "http://127.0.0.1:9/a">%a;]>', "a"),
    ("dtd", '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd">', "a"),
):
    _harmless = _name in ("parameter", "dtd")  # nothing is loaded
    add(
        "table",
        f"{_name}.xlsx",
        workbook(with_dtd(_dtd, entity=_entity)),
        is_read=_harmless,
        is_quick=_name == "laughs",
    )
    for _member, _value in (("workbook", 'name="Sheet"'), ("styles", "Calibri")):
        _bomb = with_dtd(_dtd, _value, f'name="{_entity}"' if "=" in _value else _entity)
        add("table", f"{_name}_{_member}.xlsx", workbook(_bomb, f"xl/{_member}.xml"), is_read=True)


def rows(content: str) -> Callable[[str], str]:
    """Returns a change that puts rows before all others."""
    return lambda text: text.replace("<sheetData>", "<sheetData>" + content)


_FAR = '<c r="XFD1" t="n"><v>1</v></c></row>'
for _name, _change in {
    "empty_rows": rows("<row/>" * 1_000_000),
    "rows_beyond": lambda text: text.replace('<row r="9">', '<row r="99999999999">', 1),
    "row_negative": lambda text: text.replace('<row r="9">', '<row r="-9">', 1),
    "row_text": lambda text: text.replace('<row r="9">', '<row r="nine">', 1),
    "columns_beyond": lambda text: text.replace('r="A9"', 'r="ZZZZZZ9"'),
    "string_beyond": rows('<row><c t="s"><v>99999999</v></c></row>'),
    "style_beyond": rows('<row><c s="99999999"><v>1</v></c></row>'),
    "date_beyond": rows('<row><c t="d"><v>99999-99-99</v></c></row>'),
    "number_long": rows(f"<row><c><v>{'9' * 100_000}</v></c></row>"),
    "cut": lambda text: text[: len(text) // 2],
    "nested": rows("<a>" * 50_000),
    "attributes": rows("<row " + " ".join(f'a{n}="b"' for n in range(50_000)) + "/>"),
    "dimension": lambda text: re.sub(
        "<dimension[^>]*/>", '<dimension ref="A1:XFD99999999"/>', text
    ),
    "far": lambda text: text.replace("</row>", _FAR),
    "empty": lambda text: "",
    "utf16": lambda text: '<?xml version="1.0" encoding="utf-16"?>' + text,
}.items():
    add(
        "table",
        f"{_name}.xlsx",
        lambda path, change=_change: workbook(change),
        is_read=_name
        in ("row_negative", "style_beyond", "dimension", "far", "attributes", "number_long"),
        is_quick=_name in ("empty_rows", "rows_beyond"),
    )
add(
    "table",
    "cells.xlsx",
    lambda path: workbook(rows(("<row>" + "<c/>" * 1000 + "</row>") * 800)),
    is_read=True,
)
add("table", "zeros.xlsx", lambda path: workbook(more={"xl/media/a.png": bytes(200 << 20)}))
add("table", "not_a_zip.xlsx", b"PK\x03\x04" + bytes(1000), is_quick=True)
add("table", "empty_file.xlsx", b"")
add("table", "cut_zip.xlsx", workbook()[:-30])
add(
    "table",
    "many_members.xlsx",
    lambda path: workbook(more={f"a{n}.xml": b"" for n in range(20_000)}),
    is_read=True,
)
for _seed in range(10):
    _rng, _file = random.Random(_seed), bytearray(workbook())
    for _ in range(1 + _seed):
        _file[_rng.randrange(len(_file))] = _rng.randrange(256)
    add("table", f"damaged_{_seed}.xlsx", bytes(_file), is_read=True)

# Text.

for _ending, _text in {
    "quote.csv": b'a,b\n"' + b"x," * 2_000_000,
    "line.csv": b"a,b\n" + b"x" * 20_000_000,
    "columns.csv": b",".join(b"c%d" % n for n in range(200_000)) + b"\n" + b"," * 199_999,
    "nulls.csv": b"\x00" * 5_000_000,
    "returns.csv": b"a,b\r" * 500_000,
    "quotes.csv": b"a,b\n" + b'"""' * 1_000_000,
    "twice.csv": b"a,a\n1,2\n",
    "not_utf8.csv": b"a,b\n" + b"\xff\xfe,\x80\n" * 10_000,
    "nested.jsonl": b"[" * 1_000_000,
    "nested_object.jsonl": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "digits.jsonl": b'{"a": ' + b"9" * 1_000_000 + b"}",
    "exponent.jsonl": b'{"a": 1e999999999}',
    "keys.jsonl": b"{" + b",".join(b'"k%d": 1' % n for n in range(200_000)) + b"}",
    "array.json": b"[" + b"[]," * 1_000_000 + b"[]]",
    "surrogate.jsonl": b'{"a": "\\ud800"}\n' * 1000,
}.items():
    add("table", _ending, _text, is_read=True, is_quick=_ending in ("quote.csv", "nested.jsonl"))
_LINES = b"a,b\n" + b"1,2\n" * 10
for _ending, _pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
    add(
        "table",
        f"line.csv.{_ending}",
        lambda path, pack=_pack: pack(_LINES + bytes(300 << 20)),
        is_quick=_ending == "gz",
        is_read=True,
    )
    add("table", f"cut.csv.{_ending}", _pack(_LINES * 1000)[:-20])
add(
    "table",
    "many_members.csv.gz",
    gzip.compress(b"") * 200_000 + gzip.compress(_LINES),
    is_read=True,
)

# Parquet.


def written(table: Any, **options: Any) -> bytes:
    """Returns a Parquet file."""
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def repeated(value: Any, count: int) -> Any:
    """Returns a table of one column of equal values."""
    return pyarrow.table({"a": pyarrow.DictionaryArray.from_arrays([0] * count, [value])})


_GOOD = pyarrow.table({"text": [f"text {n}" for n in range(500)], "label": ["a", "b"] * 250})
add(
    "table",
    "nulls.parquet",
    lambda path: written(pyarrow.table({"a": pyarrow.nulls(300_000, "int32")})),
    is_read=True,
)
add(
    "table",
    "many_nulls.parquet",
    lambda path: written(pyarrow.table({"a": pyarrow.nulls(200_000_000, "int32")})),
    is_quick=True,
)
add(
    "table",
    "strings.parquet",
    lambda path: written(repeated("x" * 1_000_000, 5000)),
    is_quick=True,
    is_read=True,
)
add(
    "table",
    "lists.parquet",
    lambda path: written(pyarrow.table({"a": [[0] * 5_000_000] * 4})),
    is_read=True,
)
add(
    "table",
    "columns.parquet",
    lambda path: written(pyarrow.table({f"c{n}": [1] for n in range(20_000)})),
    is_read=True,
)
add(
    "table",
    "zstd.parquet",
    lambda path: written(pyarrow.table({"a": ["x" * 50_000_000] * 4}), compression="zstd"),
    is_read=True,
)
add("table", "empty.parquet", b"")
add("table", "magic.parquet", b"PAR1" + bytes(100) + b"PAR1")
add("table", "footer.parquet", b"PAR1" + b"\xff" * 100 + b"\xff\xff\xff\x7fPAR1")
add("table", "cut.parquet", written(_GOOD)[:-10])
for _seed in range(20):
    _rng, _file = random.Random(_seed), bytearray(written(_GOOD))
    for _ in range(1 + _seed // 4):
        _file[_rng.randrange(4, len(_file))] = _rng.randrange(256)
    add("table", f"damaged_{_seed}.parquet", bytes(_file), is_read=True)


# Pictures of MNIST's format, with a file of labels beside them.


def idx(*shape: int, content: bytes = b"") -> bytes:
    """Returns a file that states a shape."""
    return bytes((0, 0, 8, len(shape))) + b"".join(n.to_bytes(4, "big") for n in shape) + content


def add_idx(name: str, count: int, pictures: Callable[[], bytes], ending: str = "") -> None:
    """Registers a file of pictures, and writes one of labels."""

    def write(path: Path) -> bytes:
        labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
        packed = gzip.compress if ending else bytes
        labels.write_bytes(packed(idx(count)))
        return packed(pictures())

    add("table", f"{name}-images-idx3-ubyte{ending}", write)


_MOST = 2**32 - 1
add_idx("large", 1, lambda: idx(1, _MOST, _MOST))
add_idx("empty", _MOST, lambda: idx(_MOST, 0, 5))
add_idx("cut", _MOST, lambda: idx(_MOST, 28, 28))
add_idx("zeros", 1, lambda: idx(1, 20_000, 20_000, content=bytes(400_000_000)), ".gz")
add("table", "zeros.parquet.gz", lambda path: gzip.compress(bytes(400_000_000)))
