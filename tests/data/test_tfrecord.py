"""TFRecord files, against tensor2tensor's own (golden/tfrecords), and checksums bit by bit."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord_writer import write_example, write_records

from t2t_torch.data import tfrecord
from t2t_torch.data.tfrecord import parse_example, read_records
from t2t_torch.errors import DataError

FOLDER = Path(__file__).parents[1] / "golden" / "tfrecords"
EXPECTED = json.loads((FOLDER / "expected.json").read_text("utf-8"))
SHARDS: list[Any] = [
    pytest.param(file, records, id=file)
    for problem in EXPECTED["problems"].values()
    for file, records in problem["shards"].items()
]


def bit_by_bit(content: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in content:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def checksums(pieces: list[bytes]) -> list[int]:
    """Returns checksums, the mask of TFRecord files undone."""
    masked = [(tfrecord.masked_crc32c(piece) - 0xA282EAD8) & 0xFFFFFFFF for piece in pieces]
    return [(crc >> 17) | (crc << 15) & 0xFFFFFFFF for crc in masked]


def contents(path: Path) -> list[bytes]:
    return [content for records in read_records(path) for content in records.contents]


def lists(content: bytes) -> dict[str, list[Any]]:
    return {name: list(values.items) for name, values in parse_example(content).items()}


def test_the_checksum_is_that_of_the_standard() -> None:
    # RFC 3720, appendix B.4, and the usual check value.
    known = {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
        b"123456789": 0xE3069283,
    }
    assert checksums(list(known)) == list(known.values())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=9), max_size=5), st.lists(st.integers(0, 3100), max_size=3))
def test_checksums_of_pieces_of_any_length_are_found_together(short, lengths) -> None:
    long = [bytes(i * 31 + length & 0xFF for i in range(length)) for length in lengths]
    pieces = [*short, *long, *short]
    assert checksums(pieces) == [bit_by_bit(piece) for piece in pieces]


@pytest.mark.parametrize(("file", "expected"), SHARDS)
def test_tensor2tensors_records_are_read_as_they_are(file, expected) -> None:
    found = [lists(content) for content in contents(FOLDER / file)]
    assert found == [record["features"] for record in expected]


@pytest.mark.parametrize(("file", "expected"), SHARDS)
def test_what_is_written_has_tensor2tensors_bytes_and_content(file, expected, tmp_path) -> None:
    # The order of the names in a record is not fixed, so whole examples are compared as read.
    write_records(tmp_path / "copy", contents(FOLDER / file))
    assert (tmp_path / "copy").read_bytes() == (FOLDER / file).read_bytes()
    made = [write_example(record["features"]) for record in expected]
    assert [lists(content) for content in made] == [record["features"] for record in expected]
    assert [len(content) for content in made] == [len(c) for c in contents(FOLDER / file)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 200))
def test_records_of_any_bytes_come_back_in_any_batches(tmp_path_factory, records, batch) -> None:
    path = tmp_path_factory.mktemp("records") / "file"
    write_records(path, records)
    usual, tfrecord._BATCH_BYTES = tfrecord._BATCH_BYTES, batch
    try:
        batches = list(read_records(path))
    finally:
        tfrecord._BATCH_BYTES = usual
    assert [content for one in batches for content in one.contents] == records
    numbers = [one.first + index for one in batches for index in range(len(one.contents))]
    assert numbers == list(range(1, len(records) + 1))


def test_a_record_larger_than_what_is_read_at_once_comes_back(tmp_path) -> None:
    records = [b"a", bytes(range(256)) * 3000, b"b"]
    write_records(tmp_path / "file", records)
    assert contents(tmp_path / "file") == records


@pytest.mark.parametrize(
    ("byte", "told"),
    [
        (0, r"record 1 \(from byte 0\): the checksum of its length"),
        (7, r"record 1 \(from byte 0\): the checksum of its length"),
        (9, r"record 1 \(from byte 0\): the checksum of its length"),
        (12, r"record 1 \(from byte 0\): the checksum of its content"),
        (19 + 16 + 2, r"record 2 \(from byte 19\): the checksum of its content"),
        (-1, r"record 40 \(from byte 741\): the checksum of its content"),
    ],
)
def test_a_byte_that_changed_is_found_by_record_and_place(byte, told, tmp_path) -> None:
    path = tmp_path / "file"
    write_records(path, [b"one"] * 40)
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"file, {told} .* 0x[0-9a-f]{{8}} .*copy it again"):
        contents(path)


@pytest.mark.parametrize("left", range(1, 19))
def test_a_file_that_ends_within_a_record_is_refused(left, tmp_path) -> None:
    path = tmp_path / "file"
    write_records(path, [b"one"] * 3)
    path.write_bytes(path.read_bytes()[: 2 * 19 + left])
    within = "within the record's length" if left < 12 else "3 bytes of content were expected"
    with pytest.raises(DataError, match=rf"record 3 \(from byte 38\): .*{within}"):
        contents(path)


def test_a_length_beyond_all_memory_is_not_believed(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<Q", 1 << 62) + bytes(100))
    with pytest.raises(DataError, match=r"record 1 .* the checksum of its length"):
        contents(path)


def test_other_files_are_refused_with_what_they_may_be(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(b"records" * 9))
    with pytest.raises(DataError, match="packed; unpack it"):
        contents(path)
    with pytest.raises(DataError, match=r"Cannot read .*absent"):
        contents(tmp_path / "absent")
    path.write_bytes(b"")
    assert contents(path) == []


NUMBERS = st.integers(-(2**63), 2**63 - 1)
LISTS = st.one_of(
    st.lists(NUMBERS, min_size=1, max_size=6),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=6),
    st.lists(st.binary(max_size=6), min_size=1, max_size=6),
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=5), LISTS, max_size=4))
def test_an_example_of_any_lists_comes_back(given_lists) -> None:
    assert lists(write_example(given_lists)) == given_lists


def message(*fields: bytes) -> bytes:
    return b"".join(fields)


def framed(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def example_of(feature: bytes, *, name: bytes = b"x", more: bytes = b"") -> bytes:
    return framed(1, framed(1, framed(1, name) + framed(2, feature) + more) + more) + more


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (framed(3, framed(1, b"\x01\x80\x01")), [1, 128]),  # packed
        (framed(3, b"\x08\x01\x08\x80\x01"), [1, 128]),  # one by one
        (framed(3, b"\x08\x01" + framed(1, b"\x02")), [1, 2]),  # both
        (framed(3, b"\x08\x01") + framed(3, b"\x08\x02"), [1, 2]),  # in two parts
        (framed(3, b"\x08" + b"\xff" * 9 + b"\x01"), [-1]),
        (framed(2, framed(1, struct.pack("<2f", 0.5, -2))), [0.5, -2.0]),
        (framed(2, b"\x0d" + struct.pack("<f", 0.5)), [0.5]),
        (framed(1, framed(1, b"ab") + framed(1, b"")), [b"ab", b""]),
        (framed(1, framed(1, b"ab")) + framed(3, b"\x08\x07"), [7]),  # the last kind counts
    ],
)
def test_every_way_to_write_a_list_is_read(feature: bytes, expected: list[Any]) -> None:
    unknown = message(
        b"\x78\x96\x01",  # field 15: a varint, 8 bytes, 4 bytes, a message
        b"\x79" + bytes(8),
        b"\x7d" + bytes(4),
        framed(15, b"whatever"),
    )
    assert lists(example_of(feature)) == {"x": expected}
    assert lists(example_of(feature, more=unknown)) == {"x": expected}
    assert lists(example_of(unknown + feature + unknown)) == {"x": expected}


def test_a_name_that_is_there_twice_has_its_last_list_and_an_empty_feature_none() -> None:
    twice = example_of(framed(3, b"\x08\x01")) + example_of(framed(3, b"\x08\x02"))
    assert lists(twice) == {"x": [2]}
    assert lists(example_of(b"")) == {}
    assert lists(b"") == {}


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a",  # ends after a tag
        b"\x0a\x05abc",  # longer than what is there
        b"\x0b",  # a group
        b"\x02\x00",  # field 0
        b"\x08" + b"\x80" * 10 + b"\x01",  # a number of 11 bytes
        example_of(framed(3, b"\x08\x80")),
        framed(1, framed(1, framed(1, b"\xff"))),  # a name that is not UTF-8
    ],
)
def test_what_is_no_example_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_example(record)


def test_lists_that_end_within_a_number_are_refused() -> None:
    for cut in (framed(3, framed(1, b"\x01\x80")), framed(2, framed(1, b"abc"))):
        with pytest.raises(ValueError, match="it is no Example"):
            parse_example(example_of(cut))
