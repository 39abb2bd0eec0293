"""Segments of evaluation sets of machine translation, in SGML and XML."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords

SOURCES = '<srcset setid="x"><doc docid="d">\n<seg id="1">Tom &amp; I</seg>\n<seg id="2">b</seg>\n'
REFERENCES = '<refset setid="x"><doc docid="d">\n<seg id="1">Tom und ich</seg>\n<seg id="2">\n'
WMT = """<dataset><doc id="d"><src lang="en"><p>\n<seg id="1">a</seg>\n</p></src>
<ref translator="A"><p>\n<seg id="1">b</seg>\n</p></ref>
<ref translator="B"><p>\n<seg id="1">c</seg>\n</p></ref></doc></dataset>"""


def match(path: Path) -> Match | None:
    matches = FORMATS["sgm"].matches
    assert matches is not None
    return matches(Head(path))


def test_a_file_with_both_sides_has_pairs_with_the_first_reference(tmp_path: Path) -> None:
    path = tmp_path / "newstest.xml"
    path.write_text(WMT)
    assert match(path) == Match(1.0)
    (record,) = open_records(path, format="sgm")
    assert record.values == {"source": "a", "target": "b"}


def test_sources_alone_are_texts_and_other_markup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sgm"
    path.write_text(SOURCES)
    assert match(path) == Match(1.0)
    assert [one.values["text"] for one in open_records(path)] == ["Tom & I", "b"]
    path.write_text("<html><p>no segments</p></html>")
    assert match(path) is None
    with pytest.raises(DataError, match="has no segments"):
        list(open_records(path))


def test_references_are_found_by_the_setid(tmp_path: Path) -> None:
    (tmp_path / "a-src.sgm").write_text(SOURCES)
    (tmp_path / "a-ref.sgm").write_text(REFERENCES)
    found = match(tmp_path / "a-src.sgm")
    assert found is not None
    assert found.doubts == ["a-ref.sgm has the translations, by its setid."]
    assert match(tmp_path) == Match(1.0)
    for path in (tmp_path / "a-src.sgm", tmp_path):
        bad = BadRecords("skip")
        (record,) = open_records(path, format="sgm", bad=bad)
        assert record.values == {"source": "Tom & I", "target": "Tom und ich"}
        assert [one.removeprefix(f"{tmp_path}/") for one in bad.listed] == [
            "a-ref.sgm, line 3, column 1: a <seg> without a </seg> on its line",
            "a-src.sgm, line 3: segment 2 of the document 'd' has no reference",
        ]


def test_references_in_a_packed_file_are_found(tmp_path: Path) -> None:
    for name, text in (("src", SOURCES), ("ref", REFERENCES)):
        (tmp_path / f"a-{name}.sgm.gz").write_bytes(gzip.compress(text.encode()))
    (record,) = open_records(tmp_path / "a-src.sgm.gz", bad=BadRecords("skip"))
    assert record.values == {"source": "Tom & I", "target": "Tom und ich"}
