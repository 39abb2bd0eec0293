from __future__ import annotations

import gzip
import os
import socket
from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.files import open_regular, read_bytes, read_json, read_lines, read_parallel


def _file(folder: Path, content: bytes, name: str = "text.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_only_newlines_end_lines(tmp_path: Path) -> None:
    odd = "a\rb\x0b\x0c\x1c\x85\u2028\u2029\xa0 \t"
    path = _file(tmp_path, f"{odd}\nc\r\n\n d ".encode())
    assert list(read_lines(path)) == [odd, "c", "", " d "]


def test_what_windows_adds_is_no_part_of_the_text(tmp_path: Path) -> None:
    bom = "\ufeff"
    path = _file(tmp_path, f"{bom}a\r\n{bom}b\r\r\n\r\nc\rd\r".encode())
    assert list(read_lines(path)) == ["a", f"{bom}b\r", "", "c\rd\r"]
    assert list(read_lines(_file(tmp_path, bom.encode()))) == [""]


def test_invalid_utf8_after_a_byte_order_mark_is_counted_from_the_files_start(
    tmp_path: Path,
) -> None:
    path = _file(tmp_path, "\ufeffa\r\n".encode() + b"b\xff\n")
    with pytest.raises(DataError, match=r"line 2: byte 2 of the line \(byte 8 of the text\)"):
        list(read_lines(path))


def test_garbage_that_starts_like_gzip_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"text\.txt is not a gzip file"):
        list(read_lines(_file(tmp_path, b"\x1f\x8bgarbage of some length")))


def test_a_last_newline_makes_no_empty_line(tmp_path: Path) -> None:
    assert list(read_lines(_file(tmp_path, b"a\nb\n"))) == ["a", "b"]
    assert list(read_lines(_file(tmp_path, b"a\n\n"))) == ["a", ""]
    assert list(read_lines(_file(tmp_path, b""))) == []


def test_packed_files_are_read_whatever_their_name(tmp_path: Path) -> None:
    path = _file(tmp_path, gzip.compress("ä\nb\n".encode()), "train.txt")
    assert list(read_lines(path)) == ["ä", "b"]


def test_invalid_utf8_is_reported_with_file_line_and_byte(tmp_path: Path) -> None:
    path = _file(tmp_path, "grün\n".encode() + "grün\n".encode("latin-1"))
    lines = read_lines(path)
    assert next(lines) == "grün"
    with pytest.raises(DataError, match=r"text\.txt, line 2: byte 3 of the line \(byte 9 .* 0xfc"):
        next(lines)


def test_a_truncated_packed_file_is_reported(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b"line %d\n" % i for i in range(1000)))
    with pytest.raises(DataError, match=r"text\.txt is damaged after line \d+"):
        list(read_lines(_file(tmp_path, packed[:-20])))
    with pytest.raises(DataError, match=r"text\.txt is damaged"):
        list(read_lines(_file(tmp_path, packed[:-8] + bytes(8))))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt: No such file"):
        list(read_lines(tmp_path / "absent.txt"))


def test_parallel_files_give_pairs(tmp_path: Path) -> None:
    first, second = _file(tmp_path, b"a\n\n", "en"), _file(tmp_path, b"b\nc", "de")
    assert list(read_parallel(first, second)) == [("a", "b"), ("", "c")]


def test_files_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    first, second = _file(tmp_path, b"a\nb\n", "en"), _file(tmp_path, b"a\nb\nc\nd\n", "de")
    for pair, counts in (((first, second), "2 lines .* 4;"), ((second, first), "4 lines .* 2;")):
        with pytest.raises(DataError, match=counts):
            list(read_parallel(*pair))


def _special(folder: Path, kind: str) -> Path:
    """Makes a path that is no regular file."""
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    else:
        path.symlink_to({"device": "/dev/zero", "kernel": "/proc/self/environ"}[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("pipe", "a named pipe"),
        ("socket", "a socket"),
        ("device", "a device"),
        ("kernel", "a file of the kernel"),
    ],
)
def test_only_regular_files_are_opened_and_none_is_waited_for(
    kind: str, named: str, tmp_path: Path
) -> None:
    path = _special(tmp_path, kind)
    for read in (open_regular, read_bytes, read_json):
        with pytest.raises(DataError, match=f"{path} cannot be read: it is {named}"):
            read(path)
    with pytest.raises(DataError, match=f"Cannot read {path}: it is {named}"):
        list(read_lines(path))


def test_a_path_that_is_replaced_by_a_pipe_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, file = _special(tmp_path, "pipe"), _file(tmp_path, b"a")
    seen, opened = file.stat(), os.open
    monkeypatch.setattr(os, "stat", lambda path, **_: seen)
    monkeypatch.setattr(os, "open", lambda path, *flags: opened(pipe, *flags))
    with pytest.raises(DataError, match="a named pipe"):
        open_regular(file)


def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(_file(tmp_path, b"a\n"))
    assert read_bytes(tmp_path / "link") == b"a\n"


def test_the_size_of_a_file_is_checked_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match=r"sparse cannot be read: it has 1,099,511,627,776 bytes"):
        read_bytes(path)
    with pytest.raises(DataError, match="at most 16,777,216"):
        read_json(path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"[" * 100_000, "nested too deeply"), (b"[" + b"[]," * (1 << 20), "more than 1,048,576")],
)
def test_json_that_would_take_much_memory_is_refused(
    content: bytes, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=fault):
        read_json(_file(tmp_path, content))
