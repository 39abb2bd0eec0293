"""Nothing is told to anyone about what an artifact is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ASK = """
import sys
import t2t_torch
asked = {"inputs": "go", "pos": "X", "note": "", "dense": [0, 0]}
print(t2t_torch.load(sys.argv[1])([asked])[0]["intent"])
"""


def test_onnxruntime_keeps_nothing_that_it_could_send(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    kept = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")  # no CI, no ORT_DISABLE_TELEMETRY
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    told = subprocess.run(
        [sys.executable, "-c", ASK, folder],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "go\n"
    assert told.stderr == ""
    assert not list(home.rglob("*onnxruntime*"))
