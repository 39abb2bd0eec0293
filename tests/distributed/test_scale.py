"""Bytes between processes, and bytes that each holds, as docs/explanation/scale.md says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_torch import registry
from t2t_torch.data.generate import generate_data

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_a_step_sends_what_a_ring_sends(tmp_path, monkeypatch):
    """And FSDP 4(n-1)/n with gloo, whose reduce-scatter is an all-reduce."""
    if os.getuid() or not all(map(shutil.which, ("ip", "unshare"))):
        pytest.skip("needs root, ip and unshare")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("network namespaces are not permitted here")
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    import scale

    problem, size = registry.problem(scale.PROBLEM), 2
    generate_data(problem, tmp_path, tmp_path, num_processes=1, max_cases=500)
    found = scale.alone(size, tmp_path, tokens=64)
    times = {"DDP": 2, "--deterministic_world=n": 2, "shard_weights=True": 4}
    for way, of_ranks in found["ways"].items():
        weights = 4 * of_ranks[0]["parameters"]
        assert of_ranks[0]["payload"] == pytest.approx(times[way] * (size - 1) * weights, rel=0.005)
        parts = size if way == "shard_weights=True" else 1
        for rank in of_ranks:
            held = [rank[name] * parts / weights for name in ("weights", "gradients", "slots")]
            assert held == pytest.approx([1, 1, 2], rel=0.001)
    assert max(count["payload"] for count in found["small"].values()) < 600_000
    assert found["small"]["Agreement of a step"]["payload"] < 2_000
