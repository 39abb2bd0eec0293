"""Files of other encodings than UTF-8."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.formats import open_records

_SQUAD = (
    '{"data": [{"title": "t", "paragraphs": [{"context": "Zürich – 20 €", "qas": [{"id": "1", '
    '"question": "?", "answers": [{"text": "20", "answer_start": 9}]}]}]}]}'
)


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_words_with_tags_are_read_in_the_encoding_that_is_named(
    encoding: str, tmp_path: Path
) -> None:
    columns = "\t".join(["1", "Zürich", *"_" * 8])
    files = {"conll": ("a.conll", "Zürich B-CITY\n"), "conllu": ("a.conllu", f"{columns}\n")}
    for format, (name, content) in files.items():
        (tmp_path / name).write_bytes(content.encode(encoding))
        (record,) = open_records(tmp_path / name, format=format, options={"encoding": encoding})
        assert ["Zürich"] in record.values.values()
    for name, content in (("seq.in", "Zürich\n"), ("seq.out", "B-CITY\n"), ("label", "x\n")):
        (tmp_path / name).write_bytes(content.encode(encoding))
    (record,) = open_records(tmp_path, options={"encoding": encoding})
    assert record.values["words"] == ["Zürich"]


@pytest.mark.parametrize(
    ("format", "content", "field"),
    [
        ("csv", "text,n\nZürich – 20 €,1\n", "text"),
        ("tsv", "text\tn\nZürich – 20 €\t1\n", "text"),
        ("jsonl", '{"text": "Zürich – 20 €"}\n', "text"),
        ("json", '[{"text": "Zürich – 20 €"}]', "text"),
        ("lines", "Zürich – 20 €\n", "text"),
        ("squad", _SQUAD, "context"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_a_file_is_read_in_the_encoding_that_is_named(
    format: str, content: str, field: str, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode(encoding))
    records = list(open_records(path, format=format, options={"encoding": encoding}))
    assert [record.values[field] for record in records] == ["Zürich – 20 €"]


def test_an_encoding_is_a_known_one_and_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes("text,n\nä,1\n".encode())
    with pytest.raises(UsageError, match="'klingon' is no encoding"):
        list(open_records(path, options={"encoding": "klingon"}))
    path.write_bytes("text,n\nä,1\n".encode() + b"\x81,2\n")
    with pytest.raises(DataError, match=r"is not of the encoding cp1252.*Name the right one"):
        list(open_records(path, options={"encoding": "cp1252"}))
