"""Random numbers that depend on the place in the run, not on how the run got there.

Nothing is drawn from a stream that would have to be stored: before each micro-batch the generators
are seeded from (seed, number of the global batch).  So dropout is the same after a resume, and for
any number of processes.
"""

from __future__ import annotations

import hashlib

import torch

INITIALIZATION = -1  # the "batch" whose seed initializes the weights


def seed_batch(seed: int, batch: int, device: torch.device, *, piece: int = 0) -> None:
    """Seeds the generators of the CPU and of the device.

    Args:
      seed: of the run.
      batch: number of the global batch, or `INITIALIZATION`.
      device: where the model computes.
      piece: of a batch that is computed in several, from 0.
    """
    place = f"{seed}/{batch}/{piece}" if piece else f"{seed}/{batch}"
    digest = hashlib.blake2b(place.encode(), digest_size=8).digest()
    # The sign bit is left out: torch takes seeds below 2^63 on every device.
    derived = int.from_bytes(digest, "little") >> 1
    # Not torch.manual_seed: on a machine without a GPU in use it formats a stack trace every time.
    torch.default_generator.manual_seed(derived)
    if device.type == "cuda":
        torch.cuda.manual_seed(derived)
