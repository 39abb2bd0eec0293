"""What an artifact says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import ArtifactError
from t2t_torch.features import InputSpec, OutputSpec
from t2t_torch.runtime.signature import FILE, Signature

WHOLE: dict[str, Any] = {
    "problem": "made_by_hand",
    "model": "none",
    "step": 3,
    "checkpoint": "step 3",
    "created": "2026-01-01T00:00:00+00:00",
    "fields": (InputSpec("inputs", "words"), InputSpec("pos", "labels", of="inputs")),
    "targets": (OutputSpec("slots", "tags", ("O", "B"), of="inputs"),),
    "needs_extensions": False,
    "quantized": "",
    "opset": 20,
    "made_with": {},
    "files": {},
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fields": (), "targets": (), "form": "torch"},
        {"search": {"beam_size": 4, "write_alignments": True}},
        {"fields": (InputSpec("inputs", "image", "uint8", shape=(2, 3, 1)),)},
        {"problem": "Größe 😀", "made_with": {"onnxruntime": "1.20"}},
    ],
)
def test_it_is_read_as_it_was_written_also_by_versions_without_a_checksum(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    signature = Signature(**{**WHOLE, **changes})
    (tmp_path / FILE).write_text(signature.to_json(), encoding="utf-8")
    assert Signature.read(tmp_path) == signature
    for version in (1, 2):
        told = json.loads(signature.to_json()) | {"format_version": version}
        del told["sha256"]
        (tmp_path / FILE).write_text(json.dumps(told), encoding="utf-8")
        assert Signature.read(tmp_path) == signature


def test_every_byte_that_is_changed_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    signature = Signature(**WHOLE)
    text = signature.to_json().encode()
    refused = 0
    for place in range(len(text)):
        for bit in (0, 1, 5):
            changed = bytearray(text)
            changed[place] ^= 1 << bit
            (tmp_path / FILE).write_bytes(changed)
            try:
                assert Signature.read(tmp_path) == signature, bytes(changed)
            except ArtifactError:
                refused += 1
    assert refused > 2 * len(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 4}, "does not match the SHA-256 in it"),
        ({"format_version": 1, "step": 4}, "does not match the SHA-256 in it"),
        ({"sha256": None}, "does not match the SHA-256 in it"),
        ({"format_version": 1, "sha256": None}, "does not match the SHA-256 in it"),
    ],
)
def test_a_changed_signature_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    told = json.loads(Signature(**WHOLE).to_json()) | change
    (tmp_path / FILE).write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ArtifactError, match=message):
        Signature.read(tmp_path)


def test_of_a_signature_without_a_checksum_numbers_have_to_be_whole(tmp_path: Path) -> None:
    told = json.loads(Signature(**WHOLE).to_json()) | {"format_version": 2, "step": 2.0}
    del told["sha256"]
    (tmp_path / FILE).write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"step is 2\.0, expected an integer"):
        Signature.read(tmp_path)
