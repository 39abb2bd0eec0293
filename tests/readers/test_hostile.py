"""Files that are not what they should be, in every format of text."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from t2t_torch.errors import DataError
from t2t_torch.features.picture import encoded
from t2t_torch.files import passes_kernel, path_inside
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.text_file import BadRecords


@dataclass
class Kind:
    """How a text is written in a format, and found again."""

    format: str
    row: Callable[[str], str]
    found: Callable[[dict[str, Any]], str]
    head: str = ""
    line: int = 1  # of the first text
    step: int = 1  # lines from a text to the next
    column: int = 1  # of the text
    options: dict[str, Any] | None = None

    def content(self, *texts: str) -> str:
        return self.head + "".join(map(self.row, texts))


def _json(text: str) -> str:
    return json.dumps({"text": text}, ensure_ascii=False) + "\n"


KINDS = [
    Kind("csv", lambda t: f"{t},x\n", lambda v: v["text"], "text,label\n", 2),
    Kind("tsv", lambda t: f"x\t{t}\n", lambda v: v["text"], "label\ttext\n", 2, column=3),
    Kind("jsonl", _json, lambda v: v["text"], column=11),
    Kind("lines", lambda t: f"{t}\n", lambda v: v["text"]),
    Kind("conll", lambda t: f"{t} X\n\n", lambda v: v["0"][0], step=2),
    Kind("conll", lambda t: f"{t}\tX\n\n", lambda v: v["w"][0], step=2,
         options={"delimiter": "\t", "columns": ["w", "t"]}),
    Kind("conllu", lambda t: "\t".join(["1", t, *"_" * 8]) + "\n\n", lambda v: v["form"][0],
         step=2, column=3),
    Kind("trees", lambda t: f"(S (NN {t}))\n", lambda v: v["words"][0], column=8),
    Kind("trees", lambda t: f"[S [NN {t} ] ]\n", lambda v: v["words"][0], column=8),
]  # fmt: skip
PIECES = [bytes([byte]) for byte in b'",\t\n\r\0()[]{}:a1 #-_\xe9']
EVERY = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.format)


def _read(path: Path, kind: Kind) -> tuple[list[str], list[int], BadRecords]:
    bad = BadRecords("skip")
    options = kind.options or {}
    records = list(open_records(path, format=kind.format, bad=bad, options=options))
    return [kind.found(r.values) for r in records], [r.place.line for r in records], bad


def test_a_name_that_begins_with_dots_is_inside_of_its_folder(tmp_path: Path) -> None:
    assert path_inside(tmp_path, "..hidden.arrow") == tmp_path / "..hidden.arrow"
    for name in ("..", "../a", "a/../../b", "/a"):
        with pytest.raises(DataError, match="is outside of"):
            path_inside(tmp_path, name)


def test_shared_memory_is_no_file_of_the_kernel() -> None:
    assert not passes_kernel(Path("/dev/shm/code/mine"))
    for path in ("/dev/fd/3/mine", "/proc/self/cwd/mine", "/dev/null", "/sys/x"):
        assert passes_kernel(Path(path))


@pytest.mark.sample(4)
@EVERY
@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, b"1\ta" + b"\t_" * 8]) | st.binary(max_size=9)))
def test_no_line_ends_the_reading_where_bad_records_are_left_out(
    folder: Path, kind: Kind, pieces: list[bytes]
) -> None:
    path = folder / "file"
    path.write_bytes(kind.head.encode() + b" " + b"".join(pieces))
    texts, lines, bad = _read(path, kind)
    assert len(texts) + bad.count <= 2 * len(pieces) + path.read_bytes().count(b"\n") + 1
    assert lines == sorted(lines)
    assert all(f"{path}, line " in told for told in bad.listed)


@EVERY
def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_text(
    tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "file"
    path.write_bytes(("\ufeff" + kind.content("a", "b").replace("\n", "\r\n")).encode())
    texts, lines, bad = _read(path, kind)
    assert (texts, bad.count) == (["a", "b"], 0)
    assert lines == [kind.line, kind.line + kind.step]


@EVERY
@pytest.mark.parametrize("byte", [b"\0", "é".encode("latin-1")], ids=["NUL", "latin-1"])
def test_a_byte_that_is_no_text_spoils_one_record(tmp_path: Path, kind: Kind, byte: bytes) -> None:
    content = kind.content("a", "äB", "c").encode().replace(b"B", byte)
    path = tmp_path / "file"
    path.write_bytes(content)
    texts, _, bad = _read(path, kind)
    assert (texts, bad.count) == (["a", "c"], 1)
    place = f"{path}, line {kind.line + kind.step}, column {kind.column + 1}: "
    assert bad.listed[0].startswith(place)
    assert "iconv" in bad.listed[0]
    with pytest.raises(DataError, match=f"line {kind.line + kind.step}, column"):
        list(open_records(path, format=kind.format, options=kind.options or {}))


@EVERY
@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c", "\x1c", "\xa0", "\u3000"])
def test_only_newlines_end_lines_and_only_blanks_end_words(
    tmp_path: Path, kind: Kind, separator: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(kind.content(f"a{separator}b", "c").encode())
    assert _read(path, kind)[0] == [f"a{separator}b", "c"]


@EVERY
def test_a_line_of_a_megabyte_is_read(tmp_path: Path, kind: Kind) -> None:
    long = "ab" * 2**19
    path = tmp_path / "file"
    path.write_bytes(kind.content("a", long, "c").encode())
    assert _read(path, kind)[0] == ["a", long, "c"]


@EVERY
def test_an_empty_file_has_no_records(tmp_path: Path, kind: Kind) -> None:
    for name, content in (("empty", b""), ("empty.gz", gzip.compress(b"")), ("bytes.gz", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        if kind.format in ("csv", "tsv"):
            with pytest.raises(DataError, match=f"{name} is empty; a first row"):
                _read(path, kind)
        elif kind.format != "lines":
            assert _read(path, kind)[0] == []


@EVERY
def test_blank_lines_are_no_records(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "file"
    path.write_text(f"{kind.content('a')}\n\r\n\n{kind.row('b')}\n", newline="")
    texts, lines, bad = _read(path, kind)
    if kind.format == "lines":
        assert texts == ["a", "", "", "", "b", ""]
    else:
        assert (texts, bad.count) == (["a", "b"], 0)
        assert lines == [kind.line, kind.line + kind.step + 3]


@EVERY
def test_a_last_line_needs_no_end(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "file"
    path.write_text(kind.content("a", "b").rstrip("\n"))
    assert _read(path, kind)[0] == ["a", "b"]


@EVERY
def test_packed_files_are_read_whatever_their_name(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(kind.content("a", "ß").encode()))
    assert _read(path, kind)[0] == ["a", "ß"]


@EVERY
def test_a_truncated_packed_file_is_refused_even_where_bad_records_are_left_out(
    tmp_path: Path, kind: Kind
) -> None:
    path = tmp_path / "file.gz"
    content = kind.content(*(f"t{n}" for n in range(1000)))
    path.write_bytes(gzip.compress(content.encode())[:-9])
    with pytest.raises(DataError, match=r"file\.gz is damaged"):
        _read(path, kind)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_missing_file_is_named_in_every_format(tmp_path: Path, format: str) -> None:
    path = tmp_path / "absent"
    of_files = format in ("class_files", "parallel")
    options: dict[str, Any] = {"files": {"inputs": "absent"}} if of_files else {}
    if format == "idx":
        options = {"labels": "absent-labels"}
    if format == "huggingface":
        pytest.importorskip("datasets")
    with pytest.raises(DataError, match="absent"):
        list(open_records(path, format=format, options=options))


@pytest.mark.parametrize(
    "format", sorted(FORMATS.keys() - {"lines", "parallel", "class_files", "bio"})
)
def test_a_folder_or_a_picture_in_place_of_a_file_is_refused(tmp_path: Path, format: str) -> None:
    picture = tmp_path / "picture-images-idx3-ubyte"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)))
    (tmp_path / "picture-labels-idx1-ubyte").write_bytes(b"")
    if format == "huggingface":
        pytest.importorskip("datasets")
    for path in (picture, tmp_path):
        with pytest.raises(DataError, match=str(tmp_path)):
            list(open_records(path, format=format))


def test_a_packed_file_that_unpacks_to_a_line_without_end_is_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"a" * 5000 + b"\n"))
    monkeypatch.setattr("t2t_torch.files._LONGEST_LINE", 4000)
    with pytest.raises(DataError, match="a line of more than 4,000 bytes, as decompression bombs"):
        list(open_records(path))


@pytest.mark.slow
def test_a_packed_file_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path, monkeypatch
) -> None:
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"\n" * 1_000_000))
    monkeypatch.setattr("t2t_torch.files._ALWAYS_ALLOWED", 1000)
    with pytest.raises(DataError, match="bytes, as decompression bombs do"):
        list(open_records(path))


@pytest.mark.parametrize("packed", [False, True])
def test_a_json_file_may_be_one_line_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr("t2t_torch.files._LONGEST_PLAIN", 4000)
    monkeypatch.setattr("t2t_torch.files._LONGEST_LINE", 4000)
    text = json.dumps([{"text": random.Random(i).random()} for i in range(500)]).encode()
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert len(list(open_records(path, format="json"))) == 500
    path.write_bytes(gzip.compress(b"[" + b" " * 200_000 + b"]"))
    with pytest.raises(DataError, match="bytes, as decompression bombs do"):
        list(open_records(path, format="json"))


def test_hostile_pictures_are_bad_records(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{number}.png").write_bytes(encoded(np.zeros((4, 4, 3), np.uint8)))
    screen = b"GIF89a" + struct.pack("<HHBBB", 9000, 9000, 0x80, 0, 0) + bytes(6)
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 9000, 9000, 0) + b"\x02\x02\x4c\x01\x00\x3b"
    (tmp_path / "a" / "large.gif").write_bytes(screen + frame)
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n"
    (tmp_path / "b" / "program.png").write_bytes(program)
    for options in ({}, {"encoded": True}):
        bad = BadRecords("skip")
        records = list(open_records(tmp_path, format="class_folders", bad=bad, options=options))
        assert len(records) == 6
        assert sorted("pixels; at most" in one for one in bad.listed) == [False, True]
        assert any(
            f"program.png, picture 1: cannot be read: {len(program)} bytes" in one
            for one in bad.listed
        )


def test_a_text_of_a_class_that_unpacks_to_much_is_a_bad_record(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}.txt.gz").write_bytes(gzip.compress(b"a text"))
    (tmp_path / "a" / "2.txt.gz").write_bytes(gzip.compress(bytes(70_000_000), 1))
    bad = BadRecords("skip")
    records = list(open_records(tmp_path, format="class_folders", bad=bad))
    assert [record.values["text"] for record in records] == ["a text"] * 4
    assert "2.txt.gz, line 1: a text of more than 67,108,864 bytes" in bad.listed[0]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (lambda: pa.nulls(2_000_000, pa.int32()), "unpacks to 2,000,000 values of a column"),
        (lambda: [[0] * 1_000_000] * 4, "unpacks to 4,000,000 values of a column"),
        (lambda: ["x" * 70_000_000], r"unpacks to 7\d,\d{3},\d{3} bytes in a group of rows"),
    ],
)
def test_decompression_bombs_are_refused_by_their_metadata(
    tmp_path: Path, column: Any, why: str
) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": column()}), path, compression="zstd")
    assert path.stat().st_size < 20_000
    with pytest.raises(DataError, match=why):
        next(open_records(path))


def test_texts_that_begin_alike_are_no_bomb(tmp_path: Path) -> None:
    rows = ["You are a helpful assistant. " * 100 + str(number) for number in range(10_000)]
    path, table = tmp_path / "x.parquet", pa.table({"a": rows})
    options = {"compression": "zstd", "use_dictionary": False}
    parquet.write_table(table, path, row_group_size=5000, **options)
    assert path.stat().st_size < 200_000
    assert [record.values["a"] for record in open_records(path)] == rows


def test_what_is_no_whole_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    text = [f"{n} some text" for n in range(5000)]
    parquet.write_table(pa.table({"a": text}), path, compression="zstd", use_dictionary=False)
    good = path.read_bytes()
    spoilt = bytearray(good)
    spoilt[100:200] = bytes(100)
    for content in (b"", b"a,b\n1,2\n", good[:-5], bytes(spoilt), gzip.compress(good)[:-20]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.parquet is no parquet file, or is damaged"):
            list(open_records(path))


@pytest.mark.parametrize("shape", [(1, 2**32 - 1, 2**32 - 1), (2**32 - 1, 0, 5)])
def test_a_shape_that_no_picture_has_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    images = tmp_path / "t-images-idx3-ubyte"
    images.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, *shape))
    (tmp_path / "t-labels-idx1-ubyte").write_bytes(struct.pack(">4BIB", 0, 0, 8, 1, 1, 0))
    with pytest.raises(DataError, match=r"states items of [\d,]+ bytes; expected 1 to 67,108,864"):
        next(open_records(images))
