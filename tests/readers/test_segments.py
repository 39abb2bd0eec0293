from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.sgm import read_segments
from t2t_torch.readers.text_file import BadRecords, read_talk


def write(folder: Path, text: str) -> Path:
    path = folder / "x.sgm"
    path.write_bytes(text.encode())
    return path


def test_segments_are_told_with_their_lines(tmp_path: Path) -> None:
    first = '<seg id="1"> A &lt;b&gt; \u2028 &quot;c&quot; </seg>'
    text = f"<doc>\n{first}\n<p>\n<SEG>d</SEG><seg>e</seg>\n"
    found = list(read_segments(write(tmp_path, text), BadRecords()))
    assert found == [(2, 'A <b> \u2028 "c"'), (4, "d"), (4, "e")]


def test_what_only_looks_like_an_entity_is_kept(tmp_path: Path) -> None:
    found = list(read_segments(write(tmp_path, "<seg>AT&T &amp;lt; &copy</seg>\n"), BadRecords()))
    assert found == [(1, "AT&T &lt; &copy")]


def test_a_segment_without_an_end_keeps_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "<seg>a</seg>\n <seg>b\n</seg>\n<seg>c</seg>\n")
    with pytest.raises(DataError, match=r"x\.sgm, line 2, column 2: a <seg> without a </seg>"):
        list(read_segments(path, BadRecords()))
    bad = BadRecords("skip")
    assert list(read_segments(path, bad)) == [(1, "a"), (2, None), (4, "c")]
    assert bad.count == 1


def test_talks_are_their_lines_and_titles(tmp_path: Path) -> None:
    text = (
        "<url>x</url>\n<keywords>a, b</keywords>\n<title> On It </title>\n"
        "<description>What it is</description>\n Text <applause> here \n\n"
        '<reviewer href="x">R</reviewer>\n<translator>T</translator>\nMore\n'
    )
    found = list(read_talk(write(tmp_path, text), BadRecords()))
    assert [text for _, text in found] == [
        "On It",
        "What it is",
        "Text <applause> here",
        "",
        "More",
    ]
    assert found[0][0] == 3


def test_parallel_talks_are_read_without_their_markup(tmp_path: Path) -> None:
    for language, title in (("en", "Bees"), ("de", "Bienen")):
        lines = f"<url>http://x</url>\n<title>{title}</title>\n{title}. \n<reviewer></reviewer>\n"
        (tmp_path / f"train.tags.{language}").write_text(lines)
    files = {"inputs": "train.tags.en", "targets": "train.tags.de"}
    options = {"files": files, "talks": True}
    made = [one.values for one in open_records(tmp_path, format="parallel", options=options)]
    assert made == [
        {"inputs": "Bees", "targets": "Bienen"}, {"inputs": "Bees.", "targets": "Bienen."}
    ]  # fmt: skip
