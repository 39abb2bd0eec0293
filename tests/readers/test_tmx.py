"""Translation memories, TMX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="de-DE"><seg>Hund</seg></tuv><tuv xml:lang="en-GB"><note>n</note>
<seg><bpt i="1">&lt;b&gt;</bpt>a <hi>dog</hi><ept i="1"/></seg></tuv></tu>
<tu><tuv lang="EN"><seg>cat</seg></tuv><tuv lang="DE"><seg> </seg></tuv></tu>
<tu><tuv lang="EN"><seg>alone</seg></tuv></tu>%s</body></tmx>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_units_with_both_texts_are_read(encoding: str, match: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((TMX % "").encode(encoding))
    bad, options = BadRecords("skip"), {"encoding": "" if encoding == "utf-8" else encoding}
    (record,) = open_records(path, format="tmx", bad=bad, options=options)
    assert record.values == {"source": "a dog", "target": "Hund"}
    assert bad.count == 1
    assert [one for one in ("tmx", "xliff", "sgm") if match(one, path)] == ["tmx"]


def test_of_three_languages_two_are_chosen_and_the_others_named(match: Any, tmp_path: Path) -> None:
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
