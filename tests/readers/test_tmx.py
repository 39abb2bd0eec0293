"""Translation memories: TMX and XLIFF."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head, Match
from t2t_torch.readers.text_file import BadRecords

TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="de-DE"><seg>Hund</seg></tuv><tuv xml:lang="en-GB"><note>n</note>
<seg><bpt i="1">&lt;b&gt;</bpt>a <hi>dog</hi><ept i="1"/></seg></tuv></tu>
<tu><tuv lang="EN"><seg>cat</seg></tuv><tuv lang="DE"><seg> </seg></tuv></tu>
<tu><tuv lang="EN"><seg>alone</seg></tuv></tu>%s</body></tmx>"""
XLIFF = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body>
<trans-unit id="1"><source>a <x id="0"/>dog</source><target>ein <g id="1">Hund</g></target>
<alt-trans><target>no</target></alt-trans></trans-unit>
<trans-unit id="2"><source>cat</source></trans-unit></body></file></xliff>"""
XLIFF2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"><file><unit id="u">
<segment><source>a <pc id="1">dog</pc></source><target>ein Hund</target></segment>
<segment state="initial"><source>cat</source><target>cat</target></segment></unit></file></xliff>"""


def match(name: str, path: Path) -> Match | None:
    matches = FORMATS[name].matches
    assert matches is not None
    return matches(Head(path))


@pytest.mark.parametrize(
    ("name", "content", "count_bad"),
    [("tmx", TMX % "", 1), ("xliff", XLIFF, 0), ("xliff", XLIFF2, 0)],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_units_with_both_texts_are_read(
    name: str, content: str, count_bad: int, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode(encoding))
    bad, options = BadRecords("skip"), {"encoding": "" if encoding == "utf-8" else encoding}
    (record,) = open_records(path, format=name, bad=bad, options=options)
    assert record.values["source"] == "a dog"
    assert record.values["target"] in ("Hund", "ein Hund")
    assert bad.count == count_bad
    assert [one for one in ("tmx", "xliff", "sgm") if match(one, path)] == [name]


def test_of_three_languages_two_are_chosen_and_the_others_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    units = '<tu><tuv lang="fr"><seg>x</seg></tuv><tuv lang="EN"><seg>y</seg></tuv></tu>'
    path.write_text(TMX % units)
    found = match("tmx", path)
    assert found is not None
    assert found.options == {"source": "en", "target": "de"}
    assert "fr" in found.doubts[0]
    (record,) = open_records(path, options={"source": "fr", "target": "en"})
    assert record.values == {"source": "x", "target": "y"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("<tmx><body><tu>", r"line 1, column 16: no XML"),
        ('<!DOCTYPE t [<!ENTITY a "b">]><tmx>&a;</tmx>', "EntitiesForbidden"),
        ("<tmx>" + "<a>" * 200, "nested deeper"),
    ],
)
def test_damaged_xml_and_entities_are_refused(content: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(content)
    with pytest.raises(DataError, match=why):
        list(open_records(path))
