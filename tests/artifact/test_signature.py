"""What an artifact says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.artifact.signature import FILE, Field, Signature, Target

WHOLE: dict[str, Any] = {
    "problem": "made_by_hand",
    "model": "none",
    "step": 3,
    "checkpoint": "step 3",
    "created": "2026-01-01T00:00:00+00:00",
    "fields": (Field("inputs", "words"), Field("pos", "labels", of="inputs")),
    "targets": (Target("slots", "tags", ("O", "B"), of="inputs"),),
    "needs_extensions": False,
    "quantized": "",
    "opset": 20,
    "made_with": {},
    "files": {},
}


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({}, 1),
        ({"fields": (Field("inputs", "text"),), "targets": (Target("targets", "text"),)}, 1),
        ({"search": {"beam_size": 4, "write_alignments": False}}, 1),
        ({"fields": (), "targets": (), "form": "torch"}, 1),
        ({"search": {"beam_size": 4, "write_alignments": True}}, 2),
        ({"fields": (Field("inputs", "words"), Field("lists", "gazetteer", of="inputs"))}, 2),
        ({"fields": (Field("dense", "word_numbers", "float32", size=2, of="inputs"),)}, 2),
        ({"fields": (Field("inputs", "image", "uint8", shape=(2, 3, 1)),)}, 2),
        ({"targets": (Target("targets", "span", of="context"),)}, 2),
    ],
)
def test_the_form_is_the_oldest_that_has_it(
    changes: dict[str, Any], version: int, tmp_path: Path
) -> None:
    signature = Signature(**{**WHOLE, **changes})
    (tmp_path / FILE).write_text(signature.to_json(), encoding="utf-8")
    assert json.loads(signature.to_json())["format_version"] == version
    assert Signature.read(tmp_path) == signature
    # Before there was a second form, the same was written as the first.
    told = json.loads(signature.to_json()) | {"format_version": 1}
    (tmp_path / FILE).write_text(json.dumps(told), encoding="utf-8")
    assert Signature.read(tmp_path) == signature
