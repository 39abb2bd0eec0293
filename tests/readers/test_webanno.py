"""WebAnno TSV 3 of WebAnno and INCEpTION."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import DataError, UsageError
from t2t_torch.readers.formats import FORMATS, open_records
from t2t_torch.readers.head import Head
from t2t_torch.readers.text_file import BadRecords

HEADER = """#FORMAT=WebAnno TSV 3.3
#T_SP=de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS|PosValue
#T_CH=de.tudarmstadt.ukp.dkpro.core.api.coref.type.CoreferenceLink|referenceRelation|referenceType
#T_SP=webanno.custom.Mention|identifier|value
#T_RL=webanno.custom.Link|role|BT_webanno.custom.Mention


"""
BODY = """#Text=Ana Lima flew
1-1\t0-3\tAna\tNNP\t_\t_\thttp://x/Q1[1]\tPER[1]\t_\t_\t
1-2\t4-8\tLima\tNNP\t_\t_\t*[1]|*[2]\tPER[1]|X\\_Y[2]\t_\t_\t
1-2.1\t4-6\tLi\t_\t_\t_\t_\t_\t_\t_\t
1-3\t9-13\tflew\tVBD\t_\t_\t_\t_\t_\t_\t

#Text=to a|b
#Text=now
2-1\t14-16\tto\tIN\t_\t_\t*\tA\\_B\t_\t_\t
2-2\t17-20\ta\\|b\t_\t_\t_\t*\t*\t_\t_\t
"""


def read(path: Path, content: str, **options: Any) -> tuple[list[dict[str, Any]], BadRecords]:
    path.write_text(content)
    bad = BadRecords("skip")
    records = open_records(path, format="webanno", bad=bad, options=options)
    return [one.values for one in records], bad


def test_annotations_of_spans_become_tags(tmp_path: Path) -> None:
    made, _ = read(tmp_path / "a.tsv", HEADER + BODY, layer="Mention.value")
    assert made == [
        {"text": "Ana Lima flew", "words": ["Ana", "Lima", "flew"],
         "tags": ["B-PER", "I-PER", "O"]},
        {"text": "to a|b now", "words": ["to", "a|b"], "tags": ["B-A_B", "B-Mention"]},
    ]  # fmt: skip
    made, _ = read(tmp_path / "a.tsv", HEADER + BODY, layer="POS.PosValue")
    assert [one["tags"] for one in made] == [["NNP", "NNP", "VBD"], ["IN", "_"]]


def test_damaged_files_and_other_layers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    damaged = HEADER + BODY.replace("\tVBD\t_\t_\t_\t_\t_\t_", "")
    made, bad = read(path, damaged, layer="Mention.value")
    assert len(made) == 1
    assert bad.listed == [f"{path}, line 12: 4 columns; Mention.value is another"]
    with pytest.raises(DataError, match="does not begin with"):
        read(path, "a\tb\n")
    with pytest.raises(UsageError, match=r"no layer 'x'; its layers are Mention\.value, POS"):
        read(path, HEADER + BODY, layer="x")


def test_it_matches_its_header_and_names_the_other_layers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(HEADER + BODY)
    matches = FORMATS["webanno"].matches
    assert matches is not None
    match = matches(Head(path))
    assert match is not None
    assert (match.confidence, match.options) == (1.0, {"layer": "Mention.value"})
    assert "'POS.PosValue'" in match.doubts[0]
    path.write_text("#Text=a\n1-1\t0-1\ta\tX\n")
    assert matches(Head(path)) is None
