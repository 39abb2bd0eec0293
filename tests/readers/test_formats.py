from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.formats import FORMATS, format_of, open_records


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"), ("a.CSV.gz", "csv"), ("a.tsv", "tsv"), ("a.jsonl.gz", "jsonl"),
        ("a.parquet", "parquet"), ("a.conll", "conll"), ("a.conllu.gz", "conllu"),
        ("a.txt", "lines"), ("a.mrg", "trees"), ("train-v1.1.json", "squad"),
        ("train-images-idx3-ubyte.gz", "idx"),
    ],
)  # fmt: skip
def test_endings_tell_formats(name: str, format: str) -> None:
    assert format_of(Path(name)) == format


@pytest.mark.parametrize("name", ["a.xml", "csv", "a.gz", "train.en"])
def test_an_ending_that_tells_no_format_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(DataError) as caught:
        open_records(Path(name))
    assert name in str(caught.value)
    assert ".csv csv" in str(caught.value)
    assert all(format in str(caught.value) for format in FORMATS)


def test_folders_tell_formats_by_what_is_in_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither seq\.in"):
        format_of(tmp_path)
    (tmp_path / "seq.in.gz").write_bytes(b"")
    assert format_of(tmp_path) == "bio"
    (tmp_path / "dataset_info.json").write_text("{}")
    assert format_of(tmp_path) == "huggingface"


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError,
        match=r"no format 'xml'.*conllu, csv, docbin, excel, huggingface.*@register_reader",
    ):
        open_records(Path("a"), format="xml")


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="csv has no option 'sep'; its options are delimiter"):
        open_records(Path("a.csv"), options={"sep": ";"})
    with pytest.raises(UsageError, match="it has no options"):
        open_records(Path("a.parquet"), options={"sep": ";"})


@pytest.mark.parametrize(
    ("format", "option", "value"),
    [
        ("csv", "header", "false"), ("csv", "header", 1), ("csv", "columns", "a"),
        ("csv", "columns", [1]), ("csv", "delimiter", 9), ("parallel", "files", ["a", "b"]),
        ("parallel", "files", {"inputs": 3}), ("huggingface", "split", None),
    ],
)  # fmt: skip
def test_an_option_of_the_wrong_type_is_refused_at_once(
    format: str, option: str, value: Any
) -> None:
    with pytest.raises(UsageError, match=f"The option {option} of the format {format} is "):
        open_records(Path("a"), format=format, options={option: value})


def test_listing_formats_imports_nothing_heavy() -> None:
    code = (
        "import sys; import t2t_torch.readers.formats; "
        "heavy = {'numpy', 'pyarrow', 'datasets', 'torch'} & sys.modules.keys(); assert not heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
