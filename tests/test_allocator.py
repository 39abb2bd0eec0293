"""The allocator."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from t2t_torch.train.memory import keep_freed_memory
import torch
def make():
    return torch.ones(1 << 20).sum()  # 4 MB, freed at once
def faults():
    make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        make(), torch.ones(1 << 24)[0]  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
torch.set_num_threads(1)
default = faults()
assert keep_freed_memory()
print(default, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_pages_are_not_paid_for_again_and_again():
    command = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    default, kept = map(int, said.split())
    assert kept < default / 5
