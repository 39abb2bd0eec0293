"""Files that are not what they should be, in every format of text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_torch.errors import DataError
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
    options: dict[str, Any] = {"files": {"inputs": "absent"}} if format == "parallel" else {}
    if format == "idx":
        options = {"labels": "absent-labels"}
    if format == "huggingface":
        pytest.importorskip("datasets")
    with pytest.raises(DataError, match="absent"):
        list(open_records(path, format=format, options=options))


@pytest.mark.parametrize("format", sorted(FORMATS.keys() - {"lines", "parallel", "bio"}))
def test_a_folder_or_a_picture_in_place_of_a_file_is_refused(tmp_path: Path, format: str) -> None:
    picture = tmp_path / "picture-images-idx3-ubyte"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)))
    (tmp_path / "picture-labels-idx1-ubyte").write_bytes(b"")
    if format == "huggingface":
        pytest.importorskip("datasets")
    for path in (picture, tmp_path):
        with pytest.raises(DataError, match=str(tmp_path)):
            list(open_records(path, format=format))
