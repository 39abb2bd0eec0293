"""An exporter that is killed at any instant leaves a whole artifact, the one before, or none."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import exported
import processes
import pytest

import t2t_torch
from t2t_torch.errors import UsageError


def answer_of(folder: Path) -> Any:
    return t2t_torch.load(folder, device="cpu").predict([exported.ROW])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "kills"),
    [
        ("safetensors", 3),
        pytest.param("safetensors", 100, marks=pytest.mark.slow),
        pytest.param("onnx", 30, marks=pytest.mark.slow),
        pytest.param("torch", 30, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_there_is_whole_however_often_the_exporter_is_killed(
    own_registry: None, tmp_path: Path, form: str, kills: int
) -> None:
    exported.write_run(tmp_path)
    artifact = tmp_path / "artifact"
    flags = [*exported.flags_of(tmp_path, form, artifact), "--overwrite"]

    def start(step: int) -> processes.Child:
        asked = [*flags, f"--checkpoint={step}"]
        return processes.start(tmp_path / "errors", processes.run_exporter, asked)

    begun = time.monotonic()
    child = start(2)
    assert child.wait() == 0, child.said
    seconds = time.monotonic() - begun
    whole = {2: answer_of(artifact)}
    child = start(3)
    assert child.wait() == 0, child.said
    whole[3] = answer_of(artifact)
    assert whole[2] != whole[3]
    draw, there = random.Random(form), 0
    for kill in range(kills):
        child = start(2 + kill % 2)
        time.sleep(draw.random() * seconds * 1.2)
        child.kill()
        try:
            assert answer_of(artifact) in whole.values()
            there += 1
        except UsageError as error:  # between two renames: the next export takes it back
            assert "is not there" in str(error)
            assert not artifact.exists()
    assert there > kills / 2
    child = start(3)
    assert child.wait() == 0, child.said
    assert answer_of(artifact) == whole[3]
    assert not list(tmp_path.glob(".artifact.*"))
