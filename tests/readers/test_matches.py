"""Each reader recognizes its files by their content, whatever their names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.detection import detect_format, rank_formats
from t2t_torch.readers.head import Head

TEXTS = [f"the boat of captain {n} left, again" for n in range(40)]
LABELS = ["good" if n % 3 else "bad" for n in range(40)]
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "a b", "qas": []}]}]}


def rows(delimiter: str, head: str = "") -> str:
    lines = [f"{label}{delimiter}{text}" for label, text in zip(LABELS, TEXTS, strict=True)]
    return "\n".join([head, *lines] if head else lines) + "\n"


def sentences(*tags: str, comment: str = "") -> str:
    return "\n".join(f"{comment}boat{n} {tags[n % 2]}\nleft {tags[-1]}\n" for n in range(40))


CASES = [
    ("tsv", rows("\t"), {"header": False}),
    ("tsv", rows("\t", "label\ttext"), {}),
    ("csv", rows(";", "label;text"), {"delimiter": ";"}),
    ("csv", rows(" ||| "), {"delimiter": " ||| ", "header": False}),
    ("csv", "".join(f'"{n}","say \\"{t}\\", he"\n' for n, t in enumerate(TEXTS)),
     {"escape": "\\", "header": False}),
    ("lines", "\n".join(TEXTS), {}),
    ("labelled", "".join(f"__label__{a} {b}\n" for a, b in zip(LABELS, TEXTS, strict=True)),
     {"prefix": "__label__"}),
    ("labelled", "".join(f"ABBR:{a} {b}\n" for a, b in zip(LABELS, TEXTS, strict=True)), {}),
    ("conll", sentences("B-x", "O"), {}),
    ("conll", sentences("NN", "VB"), {}),
    ("conll", sentences("B-x", "O", comment="# id = 1 of 2\n"), {"comments": True}),
    ("conllu", "1\tboat\tboat\tNOUN\t_\t_\t0\troot\t_\t_\n\n" * 3, {}),
    ("trees", "".join(f"(S (NN boat{n}) (VB left))\n" for n in range(9)), {}),
    ("jsonl", "".join(f"{json.dumps({'text': t})}\n" for t in TEXTS), {}),
    ("json", json.dumps({"a": [{"text": t} for t in TEXTS]}), {"records": "a"}),
    ("squad", json.dumps(SQUAD), {}),
    ("spans", json.dumps([[t, {"entities": [[4, 8, "SHIP"]]}] for t in TEXTS]), {}),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "options"), CASES)
def test_content_says_the_format(format: str, text: str, options: dict, tmp_path: Path) -> None:
    path = tmp_path / "train"
    path.write_text(text, "utf-8")
    found = detect_format(path)
    assert (found.format, dict(found.options)) == (format, options)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"%PDF-1.4 and so on", "PDF"), (b"<!DOCTYPE html>\n<html>\n", "HTML"),
        (b'<?xml version="1.0"?>\n<corpus>\n<s>one</s>\n</corpus>\n', "root element <corpus>"),
        (b"---\nintents:\n  - greet\n  - leave\n  - ask\n", "YAML"),
        (b"SQLite format 3\0\x10", "SQLite"), (b"\x89PNG\r\n", "picture"), (b"", "is empty"),
        (b"PK\x03\x04", "zip archive"), (bytes(257) + b"ustar", "tar archive"),
        (b"\x28\xb5\x2f\xfd\4\0", "packed with zstd"), (b"7z\xbc\xaf\x27\x1c", "7z archive"),
        (b"\0\n\1\n\0\n", "is no text"), (b'{"a":\n {"0": 1}\n}', "one object on each line"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_refused_by_name(start: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "train.json").write_bytes(start)
    with pytest.raises(DataError, match=said):
        detect_format(tmp_path / "train.json")


def test_the_second_best_format_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(sentences("B-x", "O").replace(" ", "\t"), "utf-8")
    ranked = rank_formats(Head(tmp_path / "a.tsv"))
    assert [one.format for one in ranked[:2]] == ["conll", "tsv"]
