"""The allocator."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from t2t_torch.bin.flags import keep_freed_memory
import torch
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def make():
    return torch.ones(1 << 20).sum()  # 4 MB, freed at once
torch.set_num_threads(1)
make()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    make(), torch.ones(1 << 24)[0]  # 64 MB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_pages_are_not_paid_for_again_and_again():
    faults = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True
            ).stdout
        )
        for how in ("keep", "default")
    }
    assert faults["keep"] < faults["default"] / 5
