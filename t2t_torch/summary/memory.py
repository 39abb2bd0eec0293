"""How much memory training has taken."""

from __future__ import annotations

import resource
import sys

import torch

_MEBIBYTE = 2**20


def peak_memory(device: torch.device) -> float:
    """Returns the most MiB that this process ever held: on its GPU, or without one in all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _MEBIBYTE
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes, but on macOS bytes: getrusage(2).
    return most / _MEBIBYTE if sys.platform == "darwin" else most / 1024
