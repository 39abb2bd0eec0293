"""Files that nothing can be learnt from: each is told with one error, and nothing is guessed."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import stat
from pathlib import Path

import pytest

from t2t_torch.bin.commands import datagen

pytestmark = pytest.mark.usefixtures("own_registry")

DRAW = random.Random(1)
NOISE = bytes(DRAW.randrange(256) for _ in range(5000))
LABELLED = "".join(f"hello you {n},x {n},{'ab'[n % 2]}\n" for n in range(100)).encode()
NUMBERS = "".join(
    f"{','.join(str(DRAW.random()) for _ in range(199))},{'ab'[n % 2]}\n" for n in range(60)
)

BAD: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "empty.jsonl": (b"", r"empty\.jsonl is empty"),
    "empty.conll": (b"", "has no row"),
    "empty": (b"", "is empty"),
    "noise.csv": (NOISE, "is no text"),
    "noise.txt": (NOISE, "is no text"),
    "noise.json": (NOISE, "is no text"),
    "noise.jsonl": (NOISE, r"noise\.jsonl is no text, and no format that is read: its byte \d+"),
    "noise.parquet": (NOISE, r"noise\.parquet is no text, and no .*, parquet included: its byte"),
    "noise": (NOISE, "is no text"),
    "nul.csv": (b"text,label\n" + b"a \0 b,c\n" * 50, r"nul\.csv is .*byte 14, on line 2, is 0x00"),
    "cut.csv.gz": (gzip.compress(LABELLED)[:99], r"cut\.csv\.gz .*is damaged"),
    "heads.csv": (b"id,text,label\n", r"has no row but the first, .* \(id, text, label\)"),
    "one.tsv": (b"hello there\tgood\n", "has no row but the first"),
    "twice.csv": (b"text,text,label\n" + LABELLED, r"names 'text' twice.*\"header\": false"),
    "blank.csv": (
        b"text,label\n" + b"".join(b" ,%s\n" % (b"a", b"b")[n % 2] for n in range(99)),
        r"no column of texts among its columns \(text, label\)",
    ),
    "wide.csv": (
        f"{','.join(f'c{n}' for n in range(199))},label\n{NUMBERS}".encode(),
        r"no column of texts among its columns \(c0, c1, c2, c3, c4 and 195 more\)",
    ),
}


def _refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the one line of the error with which the command ends."""
    capsys.readouterr()
    assert datagen.main([f"--declare={path}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert "Traceback" not in printed.err
    return printed.err


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", BAD)
def test_a_file_that_nothing_can_be_learnt_from_is_refused(name: str, tmp_path: Path, capsys):
    raw, told = BAD[name]
    (tmp_path / name).write_bytes(raw)
    assert re.search(told, _refusal(tmp_path / name, capsys))


def test_a_folder_without_files_is_refused(tmp_path: Path, capsys):
    assert "holds nothing" in _refusal(tmp_path, capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every file")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, capsys):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"text,label\n" + LABELLED)
    path.chmod(0)
    assert "Permission denied" in _refusal(path, capsys)


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path, capsys):
    os.mkfifo(tmp_path / "pipe.csv")
    assert stat.S_ISFIFO((tmp_path / "pipe.csv").stat().st_mode)
    assert "is no file" in _refusal(tmp_path / "pipe.csv", capsys)


def test_what_is_said_of_many_columns_is_short(tmp_path: Path, capsys):
    path = tmp_path / "wide.csv"
    rows = [f"hello {n} you,{line}" for n, line in enumerate(NUMBERS.splitlines())]
    head = f"text,{','.join(f'c{n}' for n in range(199))},label"
    path.write_text("\n".join([head, *rows]) + "\n", "utf-8")
    assert datagen.main([f"--declare={path}"]) == 0
    printed = capsys.readouterr()
    content = json.loads(printed.out)
    assert (content["kind"], content["fields"]) == (
        "text2class",
        {"inputs": "text", "targets": "label"},
    )
    doubts = [line for line in printed.err.splitlines() if line.startswith("  - ")]
    assert len(doubts) == 2
    assert max(map(len, doubts)) < 250
    assert "unused columns: 'c0', 'c1', 'c2', 'c3', 'c4' and 194 more." in printed.err


def test_an_object_is_not_left_out_where_its_keys_are_told(tmp_path: Path, capsys):
    path = tmp_path / "events.jsonl"
    rows = [
        {"data": {"text": f"hello {n} you", "label": "ab"[n % 2]}, "meta": {"age": n % 40 + 0.5}}
        for n in range(100)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert datagen.main([f"--declare={path}"]) == 0
    told = capsys.readouterr().err
    assert "'data'" not in told and "'meta'" not in told
    assert "'meta.age'" in told
