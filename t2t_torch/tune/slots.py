"""What each of several trainings on one machine gets of it: threads, and a GPU if there are any."""

from __future__ import annotations

import os
from pathlib import Path

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def environment(slot: int, parallel: int) -> dict[str, str]:
    """Returns what is added to the environment of the training in a slot.

    What the user has set stays: OMP_NUM_THREADS, and which GPUs CUDA_VISIBLE_DEVICES names.

    Args:
      slot: from 0.
      parallel: how many slots there are.
    """
    threads = str(max(_cores() // parallel, 1))
    added = {name: threads for name in _THREADS if name not in os.environ}
    devices = _devices()
    if devices:
        added["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    return added


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _devices() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device for device in named.split(",") if device]
    found = len(list(_NVIDIA.iterdir())) if _NVIDIA.is_dir() else 0
    return [str(number) for number in range(found)]
