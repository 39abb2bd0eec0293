"""The head of a file, from which its format is recognized."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.head import MAX_HEAD_LINES, Head
from t2t_torch.readers.text_file import blocks_of


def head_of(tmp_path: Path, raw: bytes, name: str = "a.txt") -> Head:
    (tmp_path / name).write_bytes(raw)
    return Head(tmp_path / name)


def test_lines_have_no_ends_and_their_number_is_bounded(tmp_path: Path) -> None:
    head = head_of(tmp_path, b"\xef\xbb\xbfone\r\n\r\ntwo\n")
    assert (head.lines, head.full_lines, head.encoding) == (["one", "", "two"], ["one", "two"], "")
    assert len(head_of(tmp_path, b"x\n" * 5000).lines) == MAX_HEAD_LINES


def test_a_compressed_file_is_unpacked(tmp_path: Path) -> None:
    head = head_of(tmp_path, gzip.compress(b"a\tb\n"), "a.TSV.gz")
    assert head.start == b"a\tb\n"
    assert head.has_ending(".tsv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252"])
def test_other_encodings_are_inferred(encoding: str, tmp_path: Path) -> None:
    text = "".join(f"the café of Zürich has number {n}\n" for n in range(50))
    head = head_of(tmp_path, text.encode(encoding))
    assert head.encoding == encoding
    assert head.lines[7] == "the café of Zürich has number 7"
    assert head.inferred_encoding[1]


def test_an_encoding_that_is_not_clear_is_an_error(tmp_path: Path) -> None:
    head = head_of(tmp_path, "Очень хороший фильм\n".encode("cp1251") * 9)
    with pytest.raises(DataError, match="encoding is not clear"):
        _ = head.lines


def test_sounds_are_not_text_of_two_bytes(tmp_path: Path) -> None:
    quiet = b"RIFF" + bytes(n % 7 if n % 2 else 0 for n in range(4000))
    assert (head_of(tmp_path, quiet).encoding, head_of(tmp_path, quiet).lines) == ("", [])


def test_json_is_read_by_lines_or_as_a_whole(tmp_path: Path) -> None:
    assert head_of(tmp_path, b'{"a": 1}\n\n[2]\n').json_lines == [{"a": 1}, [2]]
    assert head_of(tmp_path, b'[{"a":\n 1}]').json == [{"a": 1}]
    assert head_of(tmp_path, b"7\n").json is None


def test_blocks_of_lines(tmp_path: Path) -> None:
    head = head_of(tmp_path, b"a\tb\nc\td\n\ne\n")
    blocks = blocks_of(enumerate(head.lines))
    assert list(blocks) == [[(0, "a\tb"), (1, "c\td")], [(3, "e")]]


def test_a_folder_has_names(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).touch()
    assert (Head(tmp_path).is_folder, Head(tmp_path).names) == (True, ["a", "b"])
