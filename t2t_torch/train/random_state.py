"""Random numbers of a training: functions of the position in the run, not of its history.

No generator state has to be stored: before each micro-batch the generators are seeded from (seed,
number of the global batch).  Therefore dropout is the same after a resume, and for any number of
processes.  torch's generators are global: trainings in several threads take turns while they draw.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

INITIALIZATION = -1
"""The "batch" whose seed initializes the weights."""

_DRAWING = threading.RLock()
_before = contextlib.ExitStack()  # restores the states before the first training that runs
_running = 0  # trainings that run


@contextlib.contextmanager
def seeded(seed: int, batch: int, device: torch.device, *, piece: int = 0) -> Iterator[None]:
    """Context of a pass, which alone draws from the seeded generators of the CPU and the device.

    Args:
      seed: seed of the run.
      batch: number of the global batch, or `INITIALIZATION`.
      device: device of the model.
      piece: number of the piece of a batch that is computed in pieces, from 0.
    """
    place = f"{seed}/{batch}/{piece}" if piece else f"{seed}/{batch}"
    digest = hashlib.blake2b(place.encode(), digest_size=8).digest()
    # Without the sign bit: torch accepts seeds below 2^63 on every device.
    derived = int.from_bytes(digest, "little") >> 1
    with _DRAWING:
        # Not torch.manual_seed: without a GPU in use it formats a stack trace at every call.
        torch.default_generator.manual_seed(derived)
        if device.type == "cuda":
            torch.cuda.manual_seed(derived)
        yield


@contextlib.contextmanager
def restored_generators() -> Iterator[None]:
    """Restores the caller's states of the generators when the last of all trainings ends.

    Those of torch, and of Python and numpy, from which a trial may draw.
    """
    global _running
    with _DRAWING:
        if not _running:
            _before.enter_context(_forked())
            _before.callback(random.setstate, random.getstate())
            _before.callback(np.random.set_state, np.random.get_state())
        _running += 1
    try:
        yield
    finally:
        with _DRAWING:
            _running -= 1
            if not _running:
                _before.close()


@contextlib.contextmanager
def isolated_generators() -> Iterator[None]:
    """Context of code whose random numbers do not matter: its draws change no generator."""
    with _DRAWING, _forked():
        yield


def _forked() -> contextlib.AbstractContextManager[None]:
    """Returns a context that restores torch's generators, those of GPUs only if they are in use."""
    cuda: Any = torch.cuda
    gpus = range(cuda.device_count()) if cuda.is_initialized() else ()
    return torch.random.fork_rng(gpus, device_type="cuda")
