"""A process that exchanged messages ends with none of gloo's threads left, which could abort it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import atexit
import os
from pathlib import Path

def threads():
    return [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]

def say(*words):
    # At one stroke: two processes write to one pipe, and `print` may write a line in pieces.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

# Registered first, so run last: after all of the package has let go.
atexit.register(lambda: say("left:", sum("gloo" in name for name in threads())))

import torch
from t2t_torch.compute.distributed import join_world
from t2t_torch.compute.side_channel import SideChannel

with join_world(use_gpu=False) as world:
    channel = SideChannel.open()
    channel.exchange("here")
    say(int(world.sum(torch.ones(1))), world.maximum(world.rank), world.from_leader(7))
    assert sum("gloo" in name for name in threads())
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_threads_of_gloo_end_before_python_does(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(_SCRIPT, "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["2 1 7", "2 1 7", "left: 0", "left: 0"]
