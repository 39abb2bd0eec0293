"""XLIFF, the exchange format of localization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords

XLIFF = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body>
<trans-unit id="1"><source>a <x id="0"/>dog</source><target>ein <g id="1">Hund</g></target>
<alt-trans><target>no</target></alt-trans></trans-unit>
<trans-unit id="2"><source>cat</source></trans-unit></body></file></xliff>"""
XLIFF2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"><file><unit id="u">
<segment><source>a <pc id="1">dog</pc></source><target>ein Hund</target></segment>
<segment state="initial"><source>cat</source><target>cat</target></segment></unit></file></xliff>"""


@pytest.mark.parametrize("content", [XLIFF, XLIFF2])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_translated_units_are_read(content: str, encoding: str, match: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode(encoding))
    bad, options = BadRecords("skip"), {"encoding": "" if encoding == "utf-8" else encoding}
    (record,) = open_records(path, format="xliff", bad=bad, options=options)
    assert record.values == {"source": "a dog", "target": "ein Hund"}
    assert bad.count == 0
    assert [one for one in ("tmx", "xliff", "sgm") if match(one, path)] == ["xliff"]


def test_a_target_without_a_source_is_bad(tmp_path: Path) -> None:
    path, bad = tmp_path / "a.xlf", BadRecords("skip")
    path.write_text(XLIFF.replace('a <x id="0"/>dog', " "))
    assert list(open_records(path, bad=bad)) == []
    assert bad.listed == [f"{path}, unit 1: a target without a source"]


def test_entities_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xliff").write_text('<!DOCTYPE t [<!ENTITY a "b">]><xliff>&a;</xliff>')
    with pytest.raises(DataError, match="EntitiesForbidden"):
        list(open_records(tmp_path / "a.xliff"))
